"""Clusters the samples of one domain by a vote of many k-means partitions in several spaces; for both sides.

The *co-association* of two samples is the share of the votes that put both into one cluster. It is the
inner product of two rows of a memberships matrix, so the ``(n, n)`` matrix of all co-associations is only
formed for a bounded number of samples. The letters of the steps are those of ``docs/consensus.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import ceil
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import linear_sum_assignment

from ucds.choices import VoteChoices
from ucds.math.arrays import DoubleArray, FloatArray, IntArray, Watch, counted
from ucds.math.kmeans import REPRESENTATIVES, draw_representatives, run_kmeans, side_by_side

Partition = NDArray[np.int64]
"""``(n,)`` cluster of each sample; the numbers themselves mean nothing."""

Memberships: TypeAlias = sparse.csr_array
"""``(n, m)`` rows of unit length; the inner product of two rows is the co-association of the two samples."""

USUAL = VoteChoices()

_BLOCK = 500  # samples whose co-associations with all others are computed at a time
_ROUNDING = 1e-5  # of mean co-associations, which are sums in single precision


@dataclass(frozen=True)
class Opinion:
    """A second opinion on a consensus, see :mod:`ucds.math.second_opinion`."""

    taken: bool  # whether it votes beside the own clusterings
    agreement: float  # adjusted mutual information of the two consensuses
    partitions: list[Partition]  # partitions ``(n,)`` in embeddings


@dataclass(frozen=True)
class Vote:
    """Partitions of one domain in several spaces, and their consensus."""

    by_space: list[list[Partition]]  # `(n,)` of each space; the first of each has K clusters
    memberships: Memberships  # `(n, m)` all that votes
    partition: Partition  # `(n,)` consensus
    n_clusters: int  # of the consensus, K
    opinion: Opinion | None = None  # `None` if none was asked for

    @property
    def partitions(self) -> list[Partition]:
        """All partitions that vote, including those of a second opinion that was taken."""
        own = [one for space in self.by_space for one in space]
        return own + self.opinion.partitions if self.opinion and self.opinion.taken else own

    @property
    def compared(self) -> list[Partition]:
        """Partitions that compare the spaces: the first of each space, or all of a single space."""
        return [space[0] for space in self.by_space] if len(self.by_space) > 1 else self.by_space[0]

    @cached_property
    def agreement(self) -> float:
        """Mean adjusted mutual information of the partitions that are compared; 1 for a single one."""
        from sklearn.metrics import adjusted_mutual_info_score

        pairs = [(a, b) for i, a in enumerate(self.compared) for b in self.compared[:i]]
        return float(np.mean([adjusted_mutual_info_score(a, b) for a, b in pairs])) if pairs else 1.0


def cluster_by_vote(
    vectors: Sequence[FloatArray],
    n_clusters: int,
    rng: np.random.Generator,
    *,
    choices: VoteChoices = USUAL,
    watch: Watch | None = None,
) -> Vote:
    """Cluster the samples in every space, and find a tight partition on which these clusterings agree.

    The vectors are representations ``(n, d)`` of the samples, that with the closest groups last.
    """
    n = len(vectors[0])
    # a. Every k-means partition is a vote; there are several for each space and number of clusters.
    most = max(n_clusters, n // 2)  # finer partitions of few samples would consist of single samples
    sizes = [min(round(n_clusters * fine), most) for fine in choices.fineness]
    runs = run_kmeans(vectors, sizes, choices.starts(n), rng, watch)
    votes = [run.partition for same in runs for run in same]
    every = memberships(votes)
    # b. The votes may have two consensuses of nearly equal merit. So there are several candidates: that of
    # the tightest quarter of the votes, and of random halves, each with samples moved by all votes.
    ranked = [sorted(same, key=lambda run: run.inertia) for same in runs]
    tightest = [run.partition for same in ranked for run in same[: ceil(choices.tightest * len(same))]]
    half = ceil(len(votes) / 2)
    halves = [[votes[i] for i in rng.choice(len(votes), half, replace=False)] for _ in range(choices.halves)]
    most = min(choices.seen, 2 * n // 3)

    def settle_some(subset: list[Partition], seen: IntArray) -> tuple[Partition, float]:
        some = memberships(subset)
        return settle(
            every, refine(some, join_samples(some, n_clusters, seen), n_clusters, rounds=2), n_clusters
        )

    with side_by_side() as pool:
        jobs = [
            pool.submit(settle_some, subset, draw_representatives(n, rng, max(n_clusters, most)))
            for subset in [tightest, *halves]
        ]
        candidates = [job.result() for job in counted(watch, "find the consensus", jobs)]
    partitions, agreement = zip(*candidates, strict=True)
    # c. The candidate with the largest ratio of co-association to a power of its inertia is the consensus.
    # The last space, where groups are closest, has as much weight as the mean of all.
    loose = np.maximum([inertias(space, partitions, n_clusters) for space in vectors], 1e-12)
    loose /= loose.min(1, keepdims=True)
    looseness = (loose.mean(0) + loose[-1]) / 2
    best = int((agreement / looseness**choices.tightness).argmax())
    of_space = len(votes) // len(vectors)
    by_space = [votes[first : first + of_space] for first in range(0, len(votes), of_space)]
    return Vote(by_space, every, partitions[best], n_clusters)


def memberships(partitions: Sequence[NDArray[np.integer[Any]]]) -> Memberships:
    """Write partitions ``(n,)``, of any numbers of clusters, as one matrix of memberships."""
    widths = [int(partition.max()) + 1 for partition in partitions]
    # A sample has one entry for each partition. So the rows are known, and nothing is sorted or joined.
    columns = np.empty((len(partitions[0]), len(partitions)), np.int32)
    for place, (partition, first) in enumerate(zip(partitions, accumulate(widths, initial=0), strict=False)):
        columns[:, place] = np.add(partition, first, dtype=np.int32)
    entries = np.full(columns.size, np.sqrt(1 / len(partitions)), np.float32)
    ends = np.arange(0, columns.size + 1, len(partitions))
    return sparse.csr_array((entries, columns.ravel(), ends), shape=(len(columns), sum(widths)))


def blend(votes: Memberships, others: Memberships, weight: float) -> Memberships:
    """Join memberships of the same samples, averaging their co-associations; the others have ``weight``."""
    parts = [votes * np.float32(np.sqrt(1 - weight)), others * np.float32(np.sqrt(weight))]
    return sparse.csr_array(sparse.hstack(parts, format="csr"))


def average_linkage(votes: Memberships, n_clusters: int, rng: np.random.Generator) -> Partition:
    """Join all samples, at most :data:`REPRESENTATIVES` random ones; see :func:`join_samples`."""
    seen = draw_representatives(votes.shape[0], rng, max(n_clusters, REPRESENTATIVES))
    return join_samples(votes, n_clusters, seen)


def join_samples(votes: Memberships, n_clusters: int, seen: IntArray) -> Partition:
    """Join the samples with the largest mean co-association until ``n_clusters`` groups are left.

    This finds groups of unequal sizes, and hardly depends on chance when there are many votes. Samples
    outside ``seen`` get the group with which their mean co-association is largest.

    The positions ``seen`` ascend, and are at least K.

    Source:
        A. Fred and A. Jain, Combining multiple clusterings using evidence accumulation, 2005.
    """
    rows = votes[seen]
    tree = average_tree(rows)
    tree[:, 2] = np.arange(len(tree))  # merges of one height would be cut together, to fewer groups than K
    groups: Partition = fcluster(tree, n_clusters, "maxclust").astype(np.int64) - 1
    if len(seen) == votes.shape[0]:
        return groups
    found = _affinities(votes, rows, groups, np.arange(n_clusters))
    partition: Partition = found.argmax(1)
    partition[seen] = _move(found[seen], groups)
    return partition


def average_tree(votes: Memberships) -> DoubleArray:
    """Build the tree of average linkage of ``(n, m)`` memberships by their co-association, as SciPy does."""
    n, others, end = votes.shape[0], votes.T.tocsr(), 0
    distances = np.empty(n * (n - 1) // 2, np.float32)  # of each sample from those after it
    for start in range(0, n, _BLOCK):  # the whole matrix would take five times the memory
        block = (votes[start : start + _BLOCK] @ others).toarray()
        for i, row in enumerate(block, start + 1):
            begin, end = end, end + n - i
            np.maximum(1 - row[i:], 0, out=distances[begin:end])
    tree: DoubleArray = linkage(distances, "average")
    return tree


def refine(
    votes: Memberships,
    partition: Partition,
    n_clusters: int,
    rounds: int = 30,
    gain: float | FloatArray = 0.0,
) -> Partition:
    """Move every sample to the cluster with which its mean co-association is largest, until no sample moves.

    From the second round on, only clusters that samples have left or joined are compared again. Three to ten
    rounds are usually enough. A sample moves only if its mean co-association gains at least ``gain``, a
    number or ``(n,)`` numbers. A sample in no cluster, -1, moves with any gain, unless ``gain`` is infinite.
    """
    return _refine(votes, partition, n_clusters, rounds, gain)[0]


def settle(
    votes: Memberships, partition: Partition, n_clusters: int, rounds: int = 30
) -> tuple[Partition, float]:
    """Refine a partition, and compute the mean co-association of its samples with their own clusters."""
    partition, found, stale = _refine(votes, partition, n_clusters, rounds)
    if len(stale):
        found[:, stale] = _affinities(votes, votes, partition, stale)
    return partition, float(found[np.arange(len(partition)), partition].mean())


def _refine(
    votes: Memberships, partition: Partition, n_clusters: int, rounds: int, gain: float | FloatArray = 0.0
) -> tuple[Partition, FloatArray, IntArray]:
    """Return the partition, mean co-associations ``(n, K)`` with its clusters, and the outdated clusters."""
    found = np.empty((len(partition), n_clusters), np.float32)
    changed = np.arange(n_clusters)
    for _ in range(rounds):
        found[:, changed] = _affinities(votes, votes, partition, changed)
        moved = _move(found, partition, gain)
        left = moved != partition
        changed = np.setdiff1d(np.union1d(partition[left], moved[left]), [-1])
        partition = moved
        if not len(changed):
            break
    return partition, found, changed


def _move(found: FloatArray, partition: Partition, gain: float | FloatArray = 0.0) -> Partition:
    """Move every sample to its best cluster, but empty no cluster that is as good for its last samples."""
    # So K clusters come out even where the votes tell fewer apart.
    moved: Partition = found.argmax(1)
    if np.any(gain):
        own = np.where(partition < 0, -np.inf, found[np.arange(len(found)), partition])
        moved = np.where((found.max(1) - own < gain) | np.isinf(gain), partition, moved)
    sizes, before = (np.bincount(some[some >= 0], minlength=found.shape[1]) for some in (moved, partition))
    for cluster in np.flatnonzero((sizes == 0) & (before > 0)):
        rows = np.flatnonzero(partition == cluster)
        moved[rows[found[rows, cluster] >= found[rows].max(1) - _ROUNDING]] = cluster
    return moved


def _affinities(
    votes: Memberships, members: Memberships, partition: Partition, clusters: IntArray
) -> FloatArray:
    """Compute the mean co-association ``(n, c)`` of every sample with the members of ascending clusters."""
    inside = np.flatnonzero(np.isin(partition, clusters))
    places = np.searchsorted(clusters, partition[inside])
    chosen = sparse.csr_array(
        (np.ones(len(inside), np.float32), (places, inside)), shape=(len(clusters), len(partition))
    )
    sums, sizes = (chosen @ members).toarray(), np.bincount(places, minlength=len(clusters))
    return np.asarray(votes @ np.ascontiguousarray(sums.T) / np.maximum(sizes, 1), dtype=np.float32)


def inertias(vectors: FloatArray, partitions: Sequence[Partition], n_clusters: int) -> list[float]:
    """Compute for each partition the sum of squared distances of ``(n, d)`` vectors to the cluster means."""
    doubled = vectors.astype(np.float64)
    total = (doubled**2).sum()
    found = []
    for partition in partitions:
        members = sparse.csr_array(
            (np.ones(len(partition)), (partition, np.arange(len(partition)))), (n_clusters, len(partition))
        )
        sizes = np.maximum(np.bincount(partition, minlength=n_clusters), 1)
        found.append(float(total - (((members @ doubled) ** 2).sum(1) / sizes).sum()))
    return found


def mean_shares(
    votes: Sequence[NDArray[np.integer[Any]]], weights: DoubleArray, like: Partition, n_clusters: int
) -> FloatArray:
    """Compute the share ``(n, K)`` of partitions that put a sample into each cluster of another one.

    Clusters are matched; a cluster without a counterpart counts equally for all clusters.

    Votes ``(n,)`` are partitions into at most K clusters, or labels of any number.
    """
    shares = np.full((len(like), n_clusters), 1e-12)  # rows sum to 1 where nothing can be matched, too
    for partition, weight in zip(votes, weights, strict=True):
        partners = match(partition, like)
        renamed = np.array([partners.get(c, -1) for c in range(int(partition.max()) + 1)])[partition]
        known = np.flatnonzero(renamed >= 0)
        shares[known, renamed[known]] += weight
        shares[renamed < 0] += weight / n_clusters
    return np.asarray(shares / shares.sum(1, keepdims=True), dtype=np.float32)


def soften(partition: Partition, single: FloatArray, weight: float = USUAL.single_weight) -> FloatArray:
    """Compute the shares ``(n, K)`` that a model is fitted to: a partition, softened by single clusterings.

    Shares ``(n, K)`` of single clusterings come from :func:`mean_shares`.
    """
    certain = np.eye(single.shape[1], dtype=np.float32)[partition]
    return np.asarray((1 - weight) * certain + np.float32(weight) * single, dtype=np.float32)


def match(partition: NDArray[np.integer[Any]], other: Partition) -> dict[int, int]:
    """Pair the clusters of two partitions one to one, so that as many samples as possible agree.

    Pairs without a common sample, and clusters without a partner, are left out.

    Source:
        H. W. Kuhn, The Hungarian method for the assignment problem, 1955.
    """
    from sklearn.metrics.cluster import contingency_matrix

    counts = contingency_matrix(partition, other)
    rows, columns = linear_sum_assignment(counts, maximize=True)
    common = counts[rows, columns] > 0
    clusters, partners = np.unique(partition)[rows[common]], np.unique(other)[columns[common]]
    return dict(zip(clusters.tolist(), partners.tolist(), strict=True))
