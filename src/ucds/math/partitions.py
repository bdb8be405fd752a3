"""Partitions of one set of samples, and what they agree on.

A consensus looks at the *co-association* of two samples: the share of the votes that put both into one
cluster. It is an inner product of two rows of a memberships matrix, so that the ``(n, n)`` matrix of all of
them is formed for a bounded number of samples only.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import squareform
from sklearn.metrics.cluster import contingency_matrix

from ucds.math.arrays import FloatArray

Partition = NDArray[np.int64]
"""``(n,)`` cluster of each sample; the numbers themselves mean nothing."""

Memberships: TypeAlias = sparse.csr_array
"""``(n, m)`` rows of unit length; the inner product of two rows is the co-association of the two samples."""

REPRESENTATIVES = 3000
"""Samples at most that one run of k-means sees, and whose pairs a consensus compares one by one. The time and
memory of the latter grow with the square."""

_ROUNDING = 1e-5  # of mean co-associations, which are sums in single precision


def memberships(partitions: Sequence[Partition]) -> Memberships:
    """Write partitions, of any numbers of clusters, as one matrix of memberships.

    Args:
        partitions: ``(n,)`` clusters by each partition.
    """
    widths = [int(partition.max()) + 1 for partition in partitions]
    # A sample has one entry for each partition. So the rows are known, and nothing is sorted or joined.
    columns = np.empty((len(partitions[0]), len(partitions)), np.int32)
    for place, (partition, first) in enumerate(zip(partitions, accumulate(widths, initial=0), strict=False)):
        columns[:, place] = partition + first
    entries = np.full(columns.size, np.sqrt(1 / len(partitions)), np.float32)
    ends = np.arange(0, columns.size + 1, len(partitions))
    return sparse.csr_array((entries, columns.ravel(), ends), shape=(len(columns), sum(widths)))


def blend(votes: Memberships, others: Memberships, weight: float) -> Memberships:
    """Join memberships so that co-associations are averaged.

    Args:
        votes: ``(n, m)`` memberships.
        others: ``(n, l)`` memberships of the same samples.
        weight: share of ``others`` in the average, 0 to 1.
    """
    parts = [votes * np.float32(np.sqrt(1 - weight)), others * np.float32(np.sqrt(weight))]
    return sparse.csr_array(sparse.hstack(parts, format="csr"))


def consensus(
    votes: Memberships,
    n_clusters: int,
    rng: np.random.Generator,
    *,
    representatives: int = REPRESENTATIVES,
    refinements: int = 30,
) -> Partition:
    """Find the partition on which votes agree best.

    Average linkage joins the samples with the largest mean co-association until ``n_clusters`` groups are
    left. Then every sample moves to the group with which its mean co-association is largest, until no sample
    moves. In ties no group loses its last samples, so that ``n_clusters`` of them come out even where the
    votes do not tell so many apart. The first step finds groups of unequal sizes and hardly depends on chance
    when there are many votes; the second corrects single samples, and reaches those that are no
    representatives.

    Args:
        votes: ``(n, m)`` memberships.
        n_clusters: the paper's ``K``.
        rng: generator of the choice of representatives; not used if all samples are representatives.
        representatives: number of samples at most that average linkage joins.
        refinements: number of rounds of :func:`refine` at most; usually three to ten are enough.

    Source:
        A. Fred and A. Jain, Combining multiple clusterings using evidence accumulation, 2005.
    """
    seen = draw_representatives(votes.shape[0], rng, representatives)
    rows = votes[seen]
    distances = np.maximum(1 - (rows @ rows.T).toarray(), 0)
    np.fill_diagonal(distances, 0)
    tree = linkage(squareform(distances, checks=False), "average")
    tree[:, 2] = np.arange(len(tree))  # merges of one height would be cut together, to fewer groups than K
    groups = fcluster(tree, n_clusters, "maxclust").astype(np.int64) - 1
    partition: Partition = groups
    if len(seen) < votes.shape[0]:
        found = affinities(votes, groups, n_clusters, seen)
        partition = found.argmax(1)
        partition[seen] = _move(found[seen], groups)
    return refine(votes, partition, n_clusters, refinements)


def refine(votes: Memberships, partition: Partition, n_clusters: int, rounds: int = 30) -> Partition:
    """Move every sample to the cluster with which its mean co-association is largest, until no sample moves.

    From the second round on, only those clusters are compared anew that samples have left or joined.

    Args:
        votes: ``(n, m)`` memberships.
        partition: ``(n,)`` partition to start from.
        n_clusters: the paper's ``K``.
        rounds: number of rounds at most.
    """
    found = np.empty((len(partition), n_clusters), np.float32)
    changed = np.arange(n_clusters)
    for _ in range(rounds):
        found[:, changed] = _affinities(votes, votes, partition, changed)
        moved = _move(found, partition)
        left = moved != partition
        if not left.any():
            break
        changed, partition = np.union1d(partition[left], moved[left]), moved
    return partition


def _move(found: FloatArray, partition: Partition) -> Partition:
    """Move every sample to its best cluster, but not the last ones out of a cluster that is as good for them.

    Args:
        found: ``(n, K)`` mean co-association of every sample with the members of every cluster.
        partition: ``(n,)`` cluster of each sample now.
    """
    moved: Partition = found.argmax(1)
    sizes, before = (np.bincount(clusters, minlength=found.shape[1]) for clusters in (moved, partition))
    for cluster in np.flatnonzero((sizes == 0) & (before > 0)):
        rows = np.flatnonzero(partition == cluster)
        moved[rows[found[rows, cluster] >= found[rows].max(1) - _ROUNDING]] = cluster
    return moved


def mean_coassociation(votes: Memberships, partition: Partition, n_clusters: int) -> float:
    """Compute the mean co-association of the samples with the members of their own cluster."""
    sums, sizes = _sums_of_members(votes, partition, np.arange(n_clusters))
    own = np.empty(len(partition), np.float32)
    for cluster in range(n_clusters):
        rows = np.flatnonzero(partition == cluster)
        own[rows] = votes[rows] @ sums[cluster] / sizes[cluster]
    return float(own.mean())


def inertia(vectors: FloatArray, partition: Partition, n_clusters: int) -> float:
    """Compute the sum of squared distances of ``(n, d)`` vectors from the means of their clusters."""
    members = sparse.csr_array(
        (np.ones(len(partition)), (partition, np.arange(len(partition)))), (n_clusters, len(partition))
    )
    sums = members @ vectors.astype(np.float64)
    sizes = np.maximum(np.bincount(partition, minlength=n_clusters), 1)
    return float((vectors.astype(np.float64) ** 2).sum() - ((sums**2).sum(1) / sizes).sum())


def affinities(
    votes: Memberships, partition: Partition, n_clusters: int, rows: NDArray[np.int64] | None = None
) -> FloatArray:
    """Compute the mean co-association ``(n, K)`` of every sample with the members of every cluster.

    Args:
        votes: ``(n, m)`` memberships.
        partition: cluster of each sample, or of those in ``rows``.
        n_clusters: the paper's ``K``; a cluster without members has 0.
        rows: positions of the samples that ``partition`` is about; all, in order, if ``None``.
    """
    members = votes if rows is None else votes[rows]
    return _affinities(votes, members, partition, np.arange(n_clusters))


def _affinities(
    votes: Memberships, members: Memberships, partition: Partition, clusters: NDArray[np.int64]
) -> FloatArray:
    """Mean co-association ``(n, c)`` of every sample with the members of some clusters."""
    sums, sizes = _sums_of_members(members, partition, clusters)
    return np.asarray(votes @ np.ascontiguousarray(sums.T) / sizes, dtype=np.float32)


def _sums_of_members(
    members: Memberships, partition: Partition, clusters: NDArray[np.int64]
) -> tuple[FloatArray, NDArray[np.int64]]:
    """Sums ``(c, m)`` of the memberships in some clusters, ascending, and sizes of these, 1 at least."""
    inside = np.flatnonzero(np.isin(partition, clusters))
    places = np.searchsorted(clusters, partition[inside])
    chosen = sparse.csr_array(
        (np.ones(len(inside), np.float32), (places, inside)), shape=(len(clusters), len(partition))
    )
    return (chosen @ members).toarray(), np.maximum(np.bincount(places, minlength=len(clusters)), 1)


def match(partition: Partition, other: Partition) -> dict[int, int]:
    """Pair the clusters of two partitions one to one, so that as many samples as possible agree.

    Pairs without a common sample are left out, and so are clusters that find no partner.

    Source:
        H. W. Kuhn, The Hungarian method for the assignment problem, 1955.
    """
    counts = contingency_matrix(partition, other)
    rows, columns = linear_sum_assignment(counts, maximize=True)
    common = counts[rows, columns] > 0
    clusters, others = np.unique(partition)[rows[common]], np.unique(other)[columns[common]]
    return dict(zip(clusters.tolist(), others.tolist(), strict=True))


def share_unmatched(partition: Partition, other: Partition) -> float:
    """Compute the share of a partition's clusters that another partition does not have.

    Clusters are paired one to one so that the sum of their F1 scores is largest. A pair is the same group
    if its F1 is at least one half; of a group that is split in two or merged with another, one part at most
    finds a counterpart.

    Args:
        partition: ``(n,)`` partition whose clusters are counted.
        other: ``(n,)`` partition of the same samples.
    """
    counts = contingency_matrix(partition, other)
    f1 = 2 * counts / (counts.sum(1, keepdims=True) + counts.sum(0))
    pairs = linear_sum_assignment(f1, maximize=True)
    return 1 - float((f1[pairs] >= 0.5).sum()) / len(f1)


def draw_representatives(
    count: int, rng: np.random.Generator, most: int = REPRESENTATIVES
) -> NDArray[np.int64]:
    """Draw positions of samples, ascending: all if there are no more than ``most``."""
    return np.arange(count) if count <= most else np.sort(rng.choice(count, most, replace=False))
