"""Places samples in the plane, similar ones near each other, for maps that people look at."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from ucds.math.embedding import embed
from ucds.math.spaces import unit_rows

LARGEST = 10_000
"""Samples at most that are embedded; further ones follow those that are most similar."""


def place_all(features: ArrayLike, largest: int = LARGEST) -> NDArray[np.float64]:
    """Place every sample in the plane, see :mod:`ucds.math.embedding`; equal features give equal points.

    Above ``largest`` samples, that many are drawn and embedded. Each further sample is placed in the middle
    of the three most similar ones.
    """
    from sklearn.neighbors import NearestNeighbors

    vectors, rng = unit_rows(np.asarray(features)), np.random.default_rng(0)
    if len(vectors) < 2:
        return np.zeros((len(vectors), 2))
    chosen = np.sort(rng.permutation(len(vectors))[:largest])
    with threadpool_limits(1):  # the figure must not depend on the number of processors
        placed = embed(vectors[chosen], 2, rng, neighbours=10, steps=500).astype(np.float64)
        if len(chosen) < len(vectors):
            search = NearestNeighbors(n_neighbors=3, algorithm="brute").fit(vectors[chosen])
            everything = placed[search.kneighbors(vectors, return_distance=False)].mean(1)
            everything[chosen] = placed
            placed = everything
    return placed
