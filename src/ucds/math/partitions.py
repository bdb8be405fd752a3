"""Partitions of one set of samples: k-means in several spaces, and what they agree on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.utils.extmath import randomized_svd

from ucds.math.spaces import FloatArray, unit_rows

Partition = NDArray[np.int64]
"""``(n,)`` cluster of each sample; the numbers themselves mean nothing."""

_CONSENSUS_STARTS = 50
"""Of k-means, whose space has few dimensions: they cost less than one partition more would."""


def kmeans_partitions(
    spaces: Iterable[FloatArray], n_clusters: int, starts: int, rng: np.random.Generator
) -> list[Partition]:
    """Cluster the samples by k-means in every space, from several starts.

    Args:
        spaces: each ``(n, d)``.
        n_clusters: the paper's ``K``.
        starts: partitions a space.
        rng: of the starts.
    """
    return [
        KMeans(n_clusters, n_init=1, random_state=int(rng.integers(2**31)))
        .fit_predict(space)
        .astype(np.int64)
        for space in spaces
        for _ in range(starts)
    ]


def consensus(partitions: Sequence[Partition], n_clusters: int, rng: np.random.Generator) -> Partition:
    """The partition on which others agree best.

    Samples that most partitions put together are put together: k-means on the leading eigenvectors of
    the co-association matrix, in which every cluster of every partition counts alike whatever its size.
    The matrix, ``(n, n)``, is never formed.
    (Spectral consensus; the partitions may have any number of clusters.)

    Args:
        partitions: at least one, each ``(n,)``; one that is listed m times has m votes.
        n_clusters: the paper's ``K``.
        rng: of k-means' starts.
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
    """Share of the partitions that put a sample into each cluster of an agreed one.

    Args:
        partitions: at least one; the clusters of each are matched to the agreed one's first.
        agreed: ``(n,)``, usually their consensus.
        n_clusters: of the agreed one.

    Returns:
        ``(n, K)``; rows sum to 1. A cluster that matches none votes for nothing, and a sample all whose
        votes are lost so keeps the agreed cluster.
    """
    votes = np.zeros((len(agreed), n_clusters), np.float32)
    everyone = np.arange(len(agreed))
    for partition in partitions:
        matching = match(partition, agreed)
        voted = np.full(int(partition.max()) + 1, -1)
        for cluster, partner in matching.items():
            voted[cluster] = partner
        chosen = voted[partition]
        valid = chosen >= 0
        votes[everyone[valid], chosen[valid]] += 1
    lost = votes.sum(1) == 0
    votes[lost, agreed[lost]] = 1
    return np.asarray(votes / votes.sum(1, keepdims=True), dtype=np.float32)


def contingency(partition: Partition, other: Partition) -> tuple[Partition, Partition, NDArray[np.int64]]:
    """The clusters that occur in each of two partitions, and the number of samples in each pair of them."""
    clusters, rows = np.unique(partition, return_inverse=True)
    others, columns = np.unique(other, return_inverse=True)
    counts = np.zeros((len(clusters), len(others)), dtype=np.int64)
    np.add.at(counts, (rows, columns), 1)
    return clusters, others, counts


def match(partition: Partition, other: Partition) -> dict[int, int]:
    """Pair the clusters of two partitions one to one, so that as many samples as possible agree.

    Pairs without a common sample are left out, and so are clusters that find no partner.

    Source:
        H. W. Kuhn, The Hungarian method for the assignment problem, 1955.
    """
    clusters, others, counts = contingency(partition, other)
    rows, columns = linear_sum_assignment(counts, maximize=True)
    common = counts[rows, columns] > 0
    return dict(zip(clusters[rows[common]].tolist(), others[columns[common]].tolist(), strict=True))


def share_unmatched(partition: Partition, other: Partition) -> float:
    """Share of a partition's clusters that another partition does not have.

    Clusters are paired one to one so that the sum of their F1 scores is largest. A pair is the same group
    if its F1 is at least one half; of a group that is split in two or merged with another, one part at most
    finds a counterpart.

    Args:
        partition: ``(n,)``; its clusters are counted.
        other: ``(n,)``.
    """
    _, _, counts = contingency(partition, other)
    f1 = 2 * counts / (counts.sum(1, keepdims=True) + counts.sum(0))
    pairs = linear_sum_assignment(f1, maximize=True)
    return 1 - float((f1[pairs] >= 0.5).sum()) / len(f1)


def _one_hot(partition: Partition) -> sparse.csr_array:
    rows = np.arange(len(partition))
    return sparse.csr_array((np.ones(len(partition), dtype=np.float32), (rows, partition)))
