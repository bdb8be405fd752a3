"""Corrects a partition by what a person knows: these samples belong together, those belong apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ucds.math.arrays import FloatArray, IntArray
from ucds.math.consensus import Partition
from ucds.math.spaces import unit_rows

Pair = tuple[IntArray, IntArray]
"""Positions of two groups of samples."""

_ROUNDS = 20  # of two-means; clusters of some hundred samples need fewer than ten


@dataclass(frozen=True)
class Constraints:
    """What a person knows of the groups of samples.

    Attributes:
        together: pairs of groups that belong to one cluster. A first group of a single sample is moved to
            the cluster of the second; otherwise the clusters of both become one.
        apart: pairs of groups that belong to two clusters.
    """

    together: tuple[Pair, ...] = ()
    apart: tuple[Pair, ...] = ()

    @property
    def samples(self) -> IntArray:
        """Positions of all samples that something is known of, ascending."""
        groups = [group for pair in self.together + self.apart for group in pair]
        return np.unique(np.concatenate(groups)) if groups else np.empty(0, np.int64)

    def among(self, positions: IntArray) -> Constraints:
        """Express what is known by positions among some of the samples; the others are left out.

        Args:
            positions: ``(m,)`` positions of these samples, ascending.
        """

        def find(pairs: tuple[Pair, ...]) -> tuple[Pair, ...]:
            found = [tuple(np.flatnonzero(np.isin(positions, group)) for group in pair) for pair in pairs]
            return tuple((one, other) for one, other in found if len(one) and len(other))

        return Constraints(find(self.together), find(self.apart))


def constrain(
    partition: Partition, vectors: FloatArray, constraints: Constraints, n_clusters: int
) -> Partition:
    """Change a partition as constraints ask for, and nothing else.

    A group stands for its cluster, the one that holds most of it: an answer about a few typical samples
    corrects all samples that are like them. Clusters that belong together are joined, which leaves a number
    free. A cluster that holds two groups that belong apart is divided between them, as long as a number is
    free. Nothing else is divided to use up free numbers: in trials that lost accuracy.

    Args:
        partition: ``(n,)`` clusters in ``[0, n_clusters)``.
        vectors: ``(n, d)`` vectors in which near samples are alike.
        constraints: pairs of groups; where they contradict each other, ``apart`` counts.
        n_clusters: number of clusters, K.

    Returns:
        ``(n,)`` clusters in ``[0, n_clusters)``; all that are not joined or divided keep their numbers.
    """
    found, rows = partition.copy(), unit_rows(vectors)
    for one, other in constraints.together:
        if len(one) > 1:
            found[found == _home(found, other)] = _home(found, one)
    for one, other in constraints.apart:
        cluster, free = _home(found, one), np.setdiff1d(np.arange(n_clusters), found)
        if cluster == _home(found, other) and len(free):
            members = np.flatnonzero(found == cluster)
            second = _two_means(rows[members], rows[one].mean(0), rows[other].mean(0))
            found[members[second]] = free[0]
            found[one], found[other] = cluster, free[0]
    for one, other in constraints.together:
        found[one] = _home(found, other)
    return found


def carry_shares(shares: FloatArray, before: Partition, after: Partition) -> FloatArray:
    """Carry shares of clusters over from a partition to its correction.

    A sample's share of its own cluster becomes that of its new one. The share of any other cluster goes
    where the samples of that cluster went.

    Args:
        shares: ``(n, K)`` share of each cluster before the correction, rows sum to 1.
        before: ``(n,)`` clusters before the correction.
        after: ``(n,)`` clusters after it.

    Returns:
        ``(n, K)`` shares; rows sum to 1.
    """
    went, everyone = np.eye(shares.shape[1]), np.arange(len(shares))
    for cluster in np.unique(before):
        counts = np.bincount(after[before == cluster], minlength=shares.shape[1])
        went[cluster] = counts / counts.sum()
    others, own = shares.copy(), shares[everyone, before]
    others[everyone, before] = 0
    carried = others @ went
    carried[everyone, after] += own
    return np.asarray(carried, dtype=np.float32)


def unmet(partition: Partition, constraints: Constraints) -> int:
    """Count the pairs that a partition does not respect: apart in one cluster, or together in two."""
    together = sum(_home(partition, one) != _home(partition, other) for one, other in constraints.together)
    apart = sum(_home(partition, one) == _home(partition, other) for one, other in constraints.apart)
    return together + apart


def split_in_two(rows: FloatArray) -> tuple[NDArray[np.bool_], float]:
    """Divide unit vectors into two groups, and measure how clearly they fall apart.

    Args:
        rows: ``(m, d)`` unit vectors of one cluster.

    Returns:
        Whether each row belongs to the second group; and the squared distance of the two means in relation
        to the mean squared distance of the rows from theirs, 0 if a group is a tenth of the rows or less.
    """
    middle = rows.mean(0)
    axis = np.linalg.svd(rows - middle, full_matrices=False)[2][0]
    second = _two_means(rows, middle - axis, middle + axis)
    if min(second.sum(), (~second).sum()) <= max(1, len(rows) / 10):
        return second, 0.0
    means = np.where(second[:, None], rows[second].mean(0), rows[~second].mean(0))
    between = ((rows[second].mean(0) - rows[~second].mean(0)) ** 2).sum()
    return second, float(between / max(((rows - means) ** 2).sum() / len(rows), 1e-12))


def _home(partition: Partition, group: IntArray) -> int:
    """Return the cluster that holds most of a group."""
    return int(np.bincount(partition[group]).argmax())


def _two_means(rows: FloatArray, first: FloatArray, second: FloatArray) -> NDArray[np.bool_]:
    """Assign unit vectors to the nearer of two centres, which move to the means of their rows."""
    nearer = np.asarray(rows @ (second - first) > (second @ second - first @ first) / 2)
    for _ in range(_ROUNDS):
        if nearer.all() or not nearer.any():
            break
        before, centres = nearer, unit_rows(np.stack([rows[~nearer].mean(0), rows[nearer].mean(0)]))
        nearer = np.asarray(rows @ (centres[1] - centres[0]) > 0)
        if (nearer == before).all():
            break
    return nearer
