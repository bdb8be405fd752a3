"""Groups of samples that are nearly the same: copies, resized copies, neighbouring frames of a film."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from ucds.math.arrays import IntArray
from ucds.math.exemplars import Nearest

CLOSE_FEATURES = 0.9
"""Cosine of features from which two images are compared pixel by pixel."""

SAME_PICTURE = 0.98
"""Correlation of two small pictures from which they count as nearly the same.

On photographs, copies that were compressed again, halved or made darker reach 0.996 and more, and half of the
copies that lost two percent at every edge reach 0.985.
"""

SAME_VECTOR = 0.9999
"""Cosine of features from which two samples without pictures count as nearly the same."""


def group_near_duplicates(nearest: Nearest, pictures: NDArray[np.uint8] | None) -> list[IntArray]:
    """Find groups of samples that are nearly the same, the largest group first.

    Similar features alone do not make two images copies: an encoder is meant to give all bicycles similar
    features. So images with similar features are compared pixel by pixel, on small pictures.

    Args:
        nearest: nearest other samples of each sample, by their features.
        pictures: ``(n, s, s, 3)`` small pictures of the samples; ``None`` compares features only.
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
    """Bring the pixels of each picture to mean 0 and length 1."""
    rows = pictures.reshape(len(pictures), int(np.prod(pictures.shape[1:]))).astype(np.float64)
    rows -= rows.mean(1, keepdims=True)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))
