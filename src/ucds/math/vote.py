"""Clusters the samples of one domain by a vote of k-means partitions in several spaces; for both sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from sklearn.metrics import adjusted_mutual_info_score

from ucds.math.arrays import FloatArray
from ucds.math.kmeans import KMeansRun, run_kmeans
from ucds.math.partitions import (
    Memberships,
    Partition,
    blend,
    consensus,
    inertia,
    match,
    mean_coassociation,
    memberships,
    refine,
)
from ucds.math.spaces import Spaces
from ucds.math.watch import Watch, count_parts, unwatched

FINENESS = (1.0, 1.25, 1.5, 2.0)
"""Numbers of clusters of the partitions that vote, as multiples of K.

Partitions into more clusters than are sought split large groups in different places and keep small groups
whole. What all of them put together depends little on single starts of k-means, most of which are poor when
K is small."""

_VOTERS = 15_000  # samples times starts; few samples need more starts, because single samples matter more
_FEWEST_STARTS, _MOST_STARTS = 4, 20

# With six, the best of them depends on the draw where several consensuses are of nearly equal merit.
_HALVES = 24
_TIGHTEST_SHARE = 0.25  # of the runs in each space and size, that have a consensus of their own
_TIGHTNESS = 6.0  # exponent of the inertia; docs/consensus-results.md says on which tasks these were chosen
_RESAMPLES = 8
_ROUNDS = 3  # of moving samples in a resampled partition
_RESAMPLED = 1000  # representatives of a resampled consensus at most


@dataclass(frozen=True)
class Vote:
    """Partitions of one domain in several spaces, and what they agree on.

    Attributes:
        spaces: partitions ``(n,)`` of each space; the first of each has K clusters.
        memberships: ``(n, m)`` all of these as one matrix.
        partition: ``(n,)`` consensus, with K clusters.
    """

    spaces: list[list[Partition]]
    memberships: Memberships
    partition: Partition


def vote(
    spaces: Spaces,
    n_clusters: int,
    rng: np.random.Generator,
    *,
    starts: int | None = None,
    watch: Watch = unwatched,
) -> Vote:
    """Cluster the samples in every space, and find a tight partition on which these clusterings agree.

    Votes may have two consensuses of nearly equal merit. Therefore there are several candidates: the
    consensus of all partitions, those of random halves of them, and that of the tightest quarter of them.
    The one with the largest ratio of co-association to the sixth power of its inertia is taken.

    Args:
        spaces: representations of the samples.
        n_clusters: number of clusters of the consensus, K.
        rng: generator of the starts.
        starts: number of partitions for each space and number of clusters; ``None`` chooses it by the number
            of samples.
        watch: told after each clustering and each candidate.
    """
    vectors = list(spaces.vectors.values())
    runs = runs_by_space(vectors, n_clusters, rng, starts=starts, watch=watch)
    found = [[run.partition for run in space] for space in runs]
    votes = [partition for space in found for partition in space]
    joined = memberships(votes)
    advance = count_parts(watch, "find the consensus", 2 + _HALVES)
    candidates = [consensus(joined, n_clusters, rng)]
    advance()
    for _ in range(_HALVES):
        candidates.append(_consensus_of_half(votes, joined, n_clusters, rng))
        advance()
    tight = consensus(memberships(tightest(runs)), n_clusters, rng)
    candidates.append(refine(joined, tight, n_clusters))
    advance()
    return Vote(found, joined, choose_consensus(candidates, joined, vectors, n_clusters))


def choose_consensus(
    candidates: Sequence[Partition],
    joined: Memberships,
    vectors: Sequence[FloatArray],
    n_clusters: int,
) -> Partition:
    """Choose the candidate with the largest ratio of co-association to the sixth power of its inertia.

    Args:
        candidates: ``(n,)`` partitions.
        joined: ``(n, m)`` memberships that give the co-association.
        vectors: ``(n, w)`` vectors of each space, whose inertias are averaged, each in relation to the
            smallest of the candidates.
        n_clusters: number of clusters, K.
    """
    agreement = np.array([mean_coassociation(joined, one, n_clusters) for one in candidates])
    spread = np.array([[inertia(space, one, n_clusters) for space in vectors] for one in candidates])
    relative = np.maximum(spread, 1e-12) / np.maximum(spread.min(0), 1e-12)
    looseness = relative.mean(1)
    return candidates[int((agreement / looseness**_TIGHTNESS).argmax())]


def compared(spaces: Sequence[Sequence[Partition]]) -> list[Partition]:
    """Select the partitions by which spaces are compared: the first of each, or all of a single space."""
    return [space[0] for space in spaces] if len(spaces) > 1 else list(spaces[0])


def agreement_of_spaces(spaces: Sequence[Sequence[Partition]]) -> float:
    """Compute the mean adjusted mutual information of clusterings in different spaces.

    Args:
        spaces: partitions ``(n,)`` of each space, as in :class:`Vote`.
    """
    several = compared(spaces)
    pairs = [(a, b) for i, a in enumerate(several) for b in several[:i]]
    return float(np.mean([adjusted_mutual_info_score(a, b) for a, b in pairs])) if pairs else 1.0


def tightest(runs: Sequence[Sequence[KMeansRun]]) -> list[Partition]:
    """Select the quarter of the partitions of each space and number of clusters that has the least inertia.

    Args:
        runs: runs of each space, as :func:`runs_by_space` returns them.
    """
    chosen = []
    for space in runs:
        starts = len(space) // len(FINENESS)
        for first in range(0, len(space), starts):
            by_inertia = sorted(space[first : first + starts], key=lambda run: run.inertia)
            chosen += [run.partition for run in by_inertia[: ceil(_TIGHTEST_SHARE * starts)]]
    return chosen


def _consensus_of_half(
    votes: Sequence[Partition], joined: Memberships, n_clusters: int, rng: np.random.Generator
) -> Partition:
    """Find the consensus of half of the partitions, and refine it by all of them."""
    half = memberships([votes[i] for i in rng.choice(len(votes), -(-len(votes) // 2), replace=False)])
    seen = max(n_clusters, min(_RESAMPLED, 2 * joined.shape[0] // 3))
    return refine(joined, consensus(half, n_clusters, rng, representatives=seen, refinements=2), n_clusters)


def runs_by_space(
    vectors: Sequence[FloatArray],
    n_clusters: int,
    rng: np.random.Generator,
    *,
    starts: int | None = None,
    watch: Watch = unwatched,
) -> list[list[KMeansRun]]:
    """Cluster the same samples in every space into K clusters and into more, see :func:`vote`."""
    n = len(vectors[0])
    most = max(n_clusters, n // 2)  # finer partitions of few samples would consist of single samples
    sizes = [min(round(n_clusters * fine), most) for fine in FINENESS]
    count = int(np.clip(_VOTERS // n, _FEWEST_STARTS, _MOST_STARTS)) if starts is None else starts
    found, each = run_kmeans(vectors, sizes, count, rng, watch=watch), len(sizes) * count
    return [found[first : first + each] for first in range(0, len(found), each)]


@dataclass(frozen=True)
class Stability:
    """How far a consensus depends on the chance of its votes and samples.

    Attributes:
        agreement: mean adjusted mutual information of resampled consensuses with the consensus; 1 if chance
            plays no part.
        shares: ``(n, K)`` share of the resampled partitions that put a sample into each cluster of the
            consensus, rows sum to 1. A sample of which all are sure has a single 1.
        single: ``(n, K)`` share of the single partitions into K clusters, and of the other memberships with
            their weight, that put a sample into each cluster of the consensus, rows sum to 1.
    """

    agreement: float
    shares: FloatArray
    single: FloatArray


def resample(
    votes: Sequence[Partition],
    others: Memberships | None,
    weight: float,
    agreed: Partition,
    n_clusters: int,
    rng: np.random.Generator,
    *,
    watch: Watch = unwatched,
) -> Stability:
    """Find the consensus again from halves of the votes and two thirds of the samples, several times.

    Each half also moves samples between the clusters of the given consensus, and shares count both. Where
    the votes have two consensuses of nearly equal merit, those found anew are of both kinds; shares of these
    alone would undo the choice between the two.

    Args:
        votes: ``(n,)`` partitions that voted.
        others: ``(n, m)`` memberships that were blended with the votes; ``None`` if there were none.
        weight: share of ``others`` in the blend.
        agreed: ``(n,)`` consensus of all votes.
        n_clusters: number of clusters, K.
        rng: generator of the resampling.
        watch: told after each repetition.
    """
    advance = count_parts(watch, "repeat the vote in parts", _RESAMPLES)
    found, moved = [], []
    for _ in range(_RESAMPLES):
        half = rng.choice(len(votes), -(-len(votes) // 2), replace=False)
        joined = memberships([votes[i] for i in half])
        if others is not None:
            joined = blend(joined, others, weight)
        seen = max(n_clusters, min(_RESAMPLED, 2 * len(agreed) // 3))
        found.append(consensus(joined, n_clusters, rng, representatives=seen, refinements=_ROUNDS))
        moved.append(refine(joined, agreed, n_clusters, _ROUNDS))
        advance()
    agreement = float(np.mean([adjusted_mutual_info_score(agreed, other) for other in found]))
    shares = _shares([agreed, *moved, *found], agreed, n_clusters)
    single = _single_shares(votes, others, weight, agreed, n_clusters)
    return Stability(agreement, shares, single)


def _shares(partitions: Sequence[Partition], agreed: Partition, n_clusters: int) -> FloatArray:
    """Share of partitions that put a sample into each cluster of an agreed one, once clusters are matched.

    A cluster without a counterpart counts for the agreed cluster of its samples.
    """
    counts = np.zeros((len(agreed), n_clusters), np.float32)
    samples = np.arange(len(agreed))
    for partition in partitions:
        renamed = _renamed(partition, agreed)
        counts[samples, np.where(renamed < 0, agreed, renamed)] += 1
    return counts / np.float32(len(partitions))


def _renamed(partition: Partition, agreed: Partition) -> Partition:
    """Number the clusters of a partition as in an agreed one, once matched; -1 without a counterpart."""
    partners = match(partition, agreed)
    return np.array([partners.get(c, -1) for c in range(int(partition.max()) + 1)])[partition]


def _single_shares(
    votes: Sequence[Partition],
    others: Memberships | None,
    weight: float,
    agreed: Partition,
    n_clusters: int,
) -> FloatArray:
    """Share of single partitions that put a sample into each cluster of an agreed one, once matched.

    Partitions into more clusters than the agreed one cannot be matched with it and do not count. A cluster
    without a counterpart counts for all clusters alike.
    """
    alike = [partition for partition in votes if int(partition.max()) < n_clusters]
    weights = [(1 - weight) / max(len(alike), 1)] * len(alike)
    if others is not None:
        alike, weights = [*alike, np.asarray(others.argmax(1)).ravel()], [*weights, weight]
    counts = np.full((len(agreed), n_clusters), 1e-12)  # rows sum to 1 where nothing can be matched, too
    for partition, share in zip(alike, weights, strict=True):
        renamed = _renamed(partition, agreed)
        known = np.flatnonzero(renamed >= 0)
        counts[known, renamed[known]] += share
        counts[renamed < 0] += share / n_clusters
    return np.asarray(counts / counts.sum(1, keepdims=True), dtype=np.float32)
