"""Agreement of clusters with classes, for evaluation only: nothing here may be used in training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment

from ucds.errors import InputError
from ucds.math.arrays import DoubleArray, IntArray
from ucds.math.consensus import match
from ucds.showing import shows


@shows()
@dataclass(frozen=True)
class ClusteringScores:
    """Agreement of a clustering with the classes, each at most 1; 1 is perfect."""

    accuracy: float  # share of samples whose cluster is matched to their class
    nmi: float  # normalised mutual information, with the arithmetic mean of the entropies
    ari: float  # adjusted Rand index; 0 on average for random labels, below 0 for worse ones


def score(labels: ArrayLike, classes: ArrayLike) -> ClusteringScores:
    """Compute all scores of a clustering; arguments are those of :func:`match_clusters`."""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    return ClusteringScores(
        accuracy=clustering_accuracy(labels, classes),
        nmi=float(normalized_mutual_info_score(classes, labels)),
        ari=float(adjusted_rand_score(classes, labels)),
    )


def match_clusters(labels: ArrayLike, classes: ArrayLike) -> dict[int, int]:
    """Pair clusters with classes one to one, so that as many samples as possible agree.

    With more clusters than classes, some clusters have no class; with fewer, some classes have no cluster.
    Pairs without a common sample are left out.

    Returned is the class of each matched cluster, in the order of the clusters. Arguments and errors are
    those of :func:`clustering_accuracy`.
    """
    return match(*_checked(labels, classes))


def clustering_accuracy(labels: ArrayLike, classes: ArrayLike) -> float:
    """Compute the share of samples whose cluster is matched to their class.

    Clusters are matched to classes one to one, so that as many samples as possible agree; samples of clusters
    without a class count as wrong.

    Args:
        labels: cluster of each sample, ``(n,)`` integers from 0.
        classes: class of each sample, ``(n,)`` integers from 0.

    Raises:
        InputError: the two are empty, of different length, not integers, or negative.
    """
    from sklearn.metrics.cluster import contingency_matrix

    labels, classes = _checked(labels, classes)
    counts = contingency_matrix(labels, classes)
    return float(counts[linear_sum_assignment(counts, maximize=True)].sum() / len(labels))


def proportions_l1(estimated: ArrayLike, true: ArrayLike) -> float:
    """Compute the L1 distance of two vectors of proportions in the same order; 0 if equal, 2 if disjoint.

    There may be more estimated proportions (see :func:`proportions_by_class`) than the ``(C,)`` true ones of
    the classes; beyond the classes, the true proportions are 0.
    """
    found, truth = np.asarray(estimated, dtype=np.float64), np.asarray(true, dtype=np.float64)
    return float(np.abs(found - np.pad(truth, (0, len(found) - len(truth)))).sum())


def proportions_by_class(estimated: ArrayLike, matching: dict[int, int], n_classes: int) -> DoubleArray:
    """Sort the ``(K,)`` proportions of clusters by the classes that :func:`match_clusters` found.

    Clusters without a class come after the classes, so that no share is lost; classes without a cluster
    get a share of 0.
    """
    estimated = np.asarray(estimated, dtype=np.float64)
    ordered = np.zeros(n_classes)
    ordered[list(matching.values())] = estimated[list(matching)]
    return np.concatenate([ordered, np.delete(estimated, list(matching))])


def _checked(labels: ArrayLike, classes: ArrayLike) -> tuple[IntArray, IntArray]:
    """Return both as integers from 0, after checking that they have the same length."""
    clusters, truth = np.asarray(labels), np.asarray(classes)
    for array, name in ((clusters, "cluster labels"), (truth, "classes")):
        if array.ndim != 1 or array.size == 0:
            raise InputError(f"{name} must be a vector of at least one integer, not of shape {array.shape}")
        if not np.issubdtype(array.dtype, np.integer):
            raise InputError(f"{name} must be integers, not {array.dtype}")
        if array.min() < 0:
            raise InputError(f"{name} must not be negative, but {array.min()} occurs")
    if len(clusters) != len(truth):
        raise InputError(f"{len(clusters)} cluster labels cannot be compared with {len(truth)} classes")
    return clusters.astype(np.int64), truth.astype(np.int64)
