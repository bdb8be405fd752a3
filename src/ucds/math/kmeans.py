"""Runs of k-means on the same samples, whose distances are computed once for the starts of all of them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from ucds.math.arrays import FloatArray, IntArray, Watch, counted

REPRESENTATIVES = 3000
"""Samples at most that one run of k-means sees, and whose pairs a consensus compares one by one. The time and
memory of the latter grow with the square."""


class KMeansRun(NamedTuple):
    """Clusters ``(n,)`` of all samples, and the sum of squared distances of those seen from their centres."""

    partition: IntArray
    inertia: float


def run_kmeans(
    spaces: Sequence[FloatArray],
    sizes: Sequence[int],
    starts: int,
    rng: np.random.Generator,
    watch: Watch | None = None,
) -> list[list[KMeansRun]]:
    """Cluster the samples by k-means in every space, into several numbers of clusters, from several starts.

    Of more than :data:`REPRESENTATIVES` samples, the runs in a space see that many, and every other sample
    gets the nearest centre.

    Args:
        spaces: ``(n, d)`` vectors of the same samples, with a ``d`` of its own for each space.
        sizes: numbers of clusters.
        starts: number of runs for each space and size.
        rng: generator of the starts.
        watch: told after each space and size.

    Returns:
        Runs of each space and size, space after space.
    """
    found = []
    seen = distances = np.empty((0, 0), np.float32)
    jobs = [(space, size) for space in spaces for size in sizes]
    for number, (space, size) in enumerate(counted(watch, "k-means", jobs)):
        if number % len(sizes) == 0:
            seen = space[draw_representatives(len(space), rng)]
            distances = squared_distances(seen)
        found.append([_run(space, seen, distances, size, rng) for _ in range(starts)])
    return found


def _run(
    space: FloatArray, seen: FloatArray, distances: FloatArray, size: int, rng: np.random.Generator
) -> KMeansRun:
    """Find centres among the samples seen; all samples get the nearest one."""
    draws = np.random.RandomState(int(rng.integers(2**31)))
    centres = seen[spread_samples(distances, size, draws)]
    with warnings.catch_warnings():
        # Copies give fewer clusters than asked for, which is no matter for a vote.
        warnings.simplefilter("ignore", ConvergenceWarning)
        kmeans = KMeans(size, init=centres, n_init=1).fit(seen)
    return KMeansRun(kmeans.predict(space).astype(np.int64), float(kmeans.inertia_))


def draw_representatives(count: int, rng: np.random.Generator, most: int = REPRESENTATIVES) -> IntArray:
    """Draw positions of samples, ascending: all if there are no more than ``most``."""
    return np.arange(count) if count <= most else np.sort(rng.choice(count, most, replace=False))


def squared_distances(vectors: FloatArray) -> FloatArray:
    """Compute the squared distances ``(n, n)`` between all pairs of ``(n, d)`` vectors."""
    shifted = vectors - vectors.mean(0)
    squares = np.einsum("nd,nd->n", shifted, shifted)
    distances = np.asarray(squares[:, None] + squares - 2 * (shifted @ shifted.T), dtype=np.float32)
    np.maximum(distances, 0, out=distances)
    np.fill_diagonal(distances, 0)
    return distances


def spread_samples(distances: FloatArray, count: int, draws: np.random.RandomState) -> IntArray:
    """Choose positions of samples far apart, at whose places k-means starts: greedy k-means++.

    scikit-learn chooses the same samples, but for rounding. It computes the ``(n, n)`` distances anew for
    every centre of every start, which takes several times as long as the k-means that follows.

    Source:
        D. Arthur and S. Vassilvitskii, k-means++: the advantages of careful seeding, 2007.
    """
    n, candidates = len(distances), 2 + int(np.log(count))
    chosen = np.empty(count, dtype=np.int64)
    chosen[0] = draws.choice(n, p=np.full(n, 1 / n))
    nearest = distances[chosen[0]]
    for i in range(1, count):
        bounds = np.cumsum(nearest, dtype=np.float64)
        tried = np.searchsorted(bounds, draws.uniform(size=candidates) * bounds[-1])
        tried = np.minimum(tried, n - 1)  # rounding may lead one beyond the last
        closer = np.minimum(nearest, distances[tried])
        best = int(closer.sum(1, dtype=np.float64).argmin())
        chosen[i], nearest = tried[best], closer[best]
    return chosen
