"""Places features and prototypes in the plane, similar ones near each other, for maps that people look at."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from ucds.math.embedding import embed
from ucds.math.spaces import unit_rows

LARGEST = 10_000
"""Samples at most that are embedded; further ones follow those that are most similar."""


def place_all(
    features: ArrayLike, prototypes: ArrayLike, seed: int, largest: int = LARGEST
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Place every sample, and the prototypes, in the plane, see :mod:`ucds.math.embedding`.

    Above ``largest`` samples, that many are drawn and embedded with the prototypes. Each further sample is
    placed in the middle of the three most similar ones.

    Args:
        features: ``(n, d)`` finite features.
        prototypes: ``(d, K)`` prototypes, as a model holds them.
        seed: seed of the embedding and of the samples drawn; equal seeds give equal points.
        largest: largest number of samples to embed.

    Returns:
        ``(n, 2)`` points of the samples and ``(K, 2)`` points of the prototypes.
    """
    from sklearn.neighbors import NearestNeighbors

    vectors, stars = unit_rows(np.asarray(features)), unit_rows(np.asarray(prototypes).T)
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.permutation(len(vectors))[:largest])
    with threadpool_limits(1):  # the figure must not depend on the number of processors
        together = np.concatenate([vectors[chosen], stars])
        points = embed(together, 2, rng, neighbours=10, steps=500).astype(np.float64)
        placed, drawn = points[: len(chosen)], points[len(chosen) :]
        if len(chosen) < len(vectors):
            search = NearestNeighbors(n_neighbors=3, algorithm="brute").fit(vectors[chosen])
            everything = placed[search.kneighbors(vectors, return_distance=False)].mean(1)
            everything[chosen] = placed
            placed = everything
    return placed, drawn
