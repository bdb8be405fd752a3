"""Chooses samples that show groups, alone or beside each other, and finds outliers and copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from ucds.math.arrays import FloatArray, IntArray
from ucds.math.spaces import unit_rows

OUTLIER_DEVIATIONS = 5.0
"""Number of robust standard deviations above the median distance beyond which a sample is an outlier."""

CLOSE_FEATURES = 0.9
"""Least cosine of features at which two images are compared pixel by pixel."""

SAME_PICTURE = 0.98
"""Least correlation of two small pictures at which they count as nearly the same.

On photographs, copies that were recompressed, halved in size or darkened reach 0.996 or more, and half of the
copies that lost two percent at every edge reach 0.985.
"""

SAME_VECTOR = 0.9999
"""Least cosine of features at which two samples without pictures count as nearly the same."""

_MAD_TO_DEVIATION = 1.4826  # of a normal distribution
_NEIGHBOURS = 5


def choose_typical(directions: FloatArray, group: IntArray, most: int) -> IntArray:
    """Choose the ``most`` samples of a group whose ``(n, d)`` unit directions are nearest to its mean."""
    nearness = directions[group] @ directions[group].sum(0)
    return np.asarray(group[np.argsort(-nearness, kind="stable")][:most])


def choose_beside(directions: FloatArray, groups: Sequence[IntArray], most: int) -> list[IntArray]:
    """Choose samples that show groups beside each other: typical ones, and those nearest to another group.

    The first group is shown beside the second one, and all others beside the first.

    Directions are ``(n, d)`` features of unit length. Half of a group's samples, ``most`` in all, are
    typical.
    """
    found = []
    for place, group in enumerate(groups):
        typical = choose_typical(directions, group, most // 2)
        rest = np.setdiff1d(group, typical)
        nearness = directions[rest] @ directions[groups[0 if place else 1]].mean(0)
        near = rest[np.argsort(-nearness, kind="stable")][: most - len(typical)]
        found.append(np.concatenate([typical, near]))
    return found


@dataclass(frozen=True, eq=False)
class Nearest:
    """The nearest other samples of each sample, nearest first."""

    distances: NDArray[np.float64]  # `(n, k)` cosine distances
    positions: IntArray  # `(n, k)` positions of these samples


def find_nearest(features: FloatArray) -> Nearest:
    """Find the five nearest other samples of each sample ``(n, d)``, all others if there are fewer."""
    from sklearn.neighbors import NearestNeighbors

    directions, count = unit_rows(features), min(_NEIGHBOURS, len(features) - 1)
    if count < 1:
        return Nearest(np.empty((len(features), 0)), np.empty((len(features), 0), dtype=np.int64))
    search = NearestNeighbors(n_neighbors=count, algorithm="brute")
    lengths, positions = search.fit(directions).kneighbors()
    return Nearest(np.asarray(lengths, dtype=np.float64) ** 2 / 2, np.asarray(positions, dtype=np.int64))


def find_outliers(nearest: Nearest) -> IntArray:
    """Find samples that are far from all others, the farthest first.

    A sample's distance is the mean cosine distance from its nearest neighbours: copies of an odd sample lie
    together, so a single neighbour would not be enough. Outliers are more than ``OUTLIER_DEVIATIONS`` robust
    standard deviations above the median of these distances. The deviation is estimated from the median
    absolute deviation, which outliers themselves do not change. Without further samples there are no
    outliers.
    """
    if len(nearest.positions) <= nearest.positions.shape[1] + 1:
        return np.empty(0, dtype=np.int64)
    mean = nearest.distances.mean(1)
    median = float(np.median(mean))
    deviation = _MAD_TO_DEVIATION * float(np.median(np.abs(mean - median)))
    far = np.flatnonzero(mean > median + OUTLIER_DEVIATIONS * max(deviation, 1e-6))
    return np.asarray(far[np.argsort(-mean[far], kind="stable")], dtype=np.int64)


def group_near_duplicates(nearest: Nearest, pictures: NDArray[np.uint8] | None) -> list[IntArray]:
    """Find groups of samples that are nearly the same, the largest group first.

    Similar features alone do not make two images copies: an encoder is meant to give all bicycles similar
    features. So images with similar features are compared pixel by pixel, on small pictures.

    Pictures are ``(n, s, s, 3)`` and small; without them, features alone are compared.
    """
    count = len(nearest.positions)
    if count < 2:
        return []
    # Each sample with its nearest neighbours: the smaller position first, and each pair once.
    rows = np.repeat(np.arange(count), nearest.positions.shape[1])
    pairs = np.sort(np.stack([rows, nearest.positions.ravel()], axis=1), axis=1)
    pairs, first = np.unique(pairs, axis=0, return_index=True)
    cosines = 1 - nearest.distances.ravel()[first]
    if pictures is None:
        same = pairs[cosines >= SAME_VECTOR]
    else:
        near = pairs[cosines >= CLOSE_FEATURES]
        left, right = (_standardised(pictures[side]) for side in near.T)
        same = near[(left * right).sum(1) >= SAME_PICTURE]  # the correlation of their pixels
    links = sparse.coo_array((np.ones(len(same)), (same[:, 0], same[:, 1])), shape=(count, count))
    _, component = connected_components(links, directed=False)
    members = np.argsort(component, kind="stable")
    groups = np.split(members, np.flatnonzero(np.diff(component[members])) + 1)
    return sorted((group for group in groups if len(group) > 1), key=len, reverse=True)


def _standardised(pictures: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Scale the pixels of each picture to mean 0 and length 1."""
    rows = pictures.reshape(len(pictures), int(np.prod(pictures.shape[1:]))).astype(np.float64)
    rows -= rows.mean(1, keepdims=True)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))
