"""Partitions of one set of samples: k-means in several spaces, and what they agree on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.metrics.cluster import contingency_matrix
from sklearn.utils.extmath import randomized_svd

from ucds.math.spaces import FloatArray, unit_rows

Partition = NDArray[np.int64]
"""``(n,)`` cluster of each sample; the numbers themselves mean nothing."""

# Starts of k-means in the consensus, whose space has few dimensions: all cost less than one partition more.
_CONSENSUS_STARTS = 50


def kmeans_partitions(
    spaces: Iterable[FloatArray], n_clusters: int, starts: int, rng: np.random.Generator
) -> list[Partition]:
    """Cluster the samples by k-means in every space, from several starts.

    Args:
        spaces: ``(n, d)`` vectors of the same samples, with a ``d`` of its own for each space.
        n_clusters: the paper's ``K``.
        starts: number of partitions per space.
        rng: generator of the starts.
    """
    return [
        KMeans(n_clusters, n_init=1, random_state=int(rng.integers(2**31)))
        .fit_predict(space)
        .astype(np.int64)
        for space in spaces
        for _ in range(starts)
    ]


def consensus(partitions: Sequence[Partition], n_clusters: int, rng: np.random.Generator) -> Partition:
    """Find the partition on which others agree best (spectral consensus).

    Samples that most partitions put together are put together: k-means on the leading eigenvectors of
    the co-association matrix, in which every cluster of every partition counts alike whatever its size.
    The matrix, ``(n, n)``, is never formed.

    Args:
        partitions: ``(n,)`` each, with any number of clusters; a partition that is listed m times has m
            votes.
        n_clusters: the paper's ``K``.
        rng: generator of k-means' starts.
    """
    memberships = sparse.hstack([_one_hot(partition) for partition in partitions], format="csr")
    sizes = np.asarray(memberships.sum(0)).ravel()
    memberships = memberships @ sparse.diags_array(1 / np.sqrt(np.maximum(sizes, 1)))
    # Random projections lose nothing here: with many votes, what follows the leading directions is small.
    left, scales, _ = randomized_svd(
        memberships, n_clusters, n_oversamples=n_clusters, random_state=int(rng.integers(2**31))
    )
    kmeans = KMeans(n_clusters, n_init=_CONSENSUS_STARTS, random_state=int(rng.integers(2**31)))
    return np.asarray(kmeans.fit_predict(unit_rows(left * scales**2)), dtype=np.int64)


def vote_shares(partitions: Sequence[Partition], agreed: Partition, n_clusters: int) -> FloatArray:
    """Compute the share of the partitions that put a sample into each cluster of an agreed one.

    Args:
        partitions: at least one; the clusters of each are matched to the agreed one's first.
        agreed: ``(n,)`` partition, usually their consensus.
        n_clusters: number of clusters of the agreed partition.

    Returns:
        ``(n, K)`` shares; rows sum to 1. A cluster that matches none votes for nothing, and a sample that
        loses all its votes in this way keeps the agreed cluster.
    """
    votes = np.zeros((len(agreed), n_clusters), np.float32)
    for partition in partitions:
        voted = np.full(int(partition.max()) + 1, -1)
        for cluster, partner in match(partition, agreed).items():
            voted[cluster] = partner
        valid = np.flatnonzero(voted[partition] >= 0)
        votes[valid, voted[partition[valid]]] += 1
    lost = votes.sum(1) == 0
    votes[lost, agreed[lost]] = 1
    return np.asarray(votes / votes.sum(1, keepdims=True), dtype=np.float32)


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


def _one_hot(partition: Partition) -> sparse.csr_array:
    rows = np.arange(len(partition))
    return sparse.csr_array((np.ones(len(partition), dtype=np.float32), (rows, partition)))
