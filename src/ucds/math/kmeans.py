"""Many k-means partitions of the same samples, each from a start of its own."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from ucds.math.arrays import FloatArray
from ucds.math.partitions import Partition, draw_representatives
from ucds.math.watch import Watch, count_parts, unwatched


@dataclass(frozen=True, eq=False)
class KMeansRun:
    """A single run of k-means.

    Attributes:
        partition: ``(n,)`` cluster of each sample.
        inertia: sum of squared distances of the samples that the run saw from their centres.
    """

    partition: Partition
    inertia: float


def run_kmeans(
    spaces: Sequence[FloatArray],
    sizes: Sequence[int],
    starts: int,
    rng: np.random.Generator,
    *,
    watch: Watch = unwatched,
) -> list[KMeansRun]:
    """Cluster the samples by k-means in every space, into several numbers of clusters, from several starts.

    Of more than :data:`ucds.math.partitions.REPRESENTATIVES` samples, the runs in a space see that many, and
    every other sample gets the nearest centre.

    Args:
        spaces: ``(n, d)`` vectors of the same samples, with a ``d`` of its own for each space.
        sizes: numbers of clusters.
        starts: number of runs for each space and size.
        rng: generator of the starts.
        watch: told after each start.

    Returns:
        Runs, space after space, size after size.
    """
    advance = count_parts(watch, "k-means", len(spaces) * len(sizes) * starts)
    found = []
    for space in spaces:
        seen = space[draw_representatives(len(space), rng)]
        distances = squared_distances(seen)
        for size in sizes:
            for _ in range(starts):
                draws = np.random.RandomState(int(rng.integers(2**31)))
                centres = seen[spread_samples(distances, size, draws)]
                with warnings.catch_warnings():
                    # Copies give fewer clusters than asked for, which is no matter for a vote.
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    kmeans = KMeans(size, init=centres, n_init=1).fit(seen)
                found.append(KMeansRun(kmeans.predict(space).astype(np.int64), float(kmeans.inertia_)))
                advance()
    return found


def squared_distances(vectors: FloatArray) -> FloatArray:
    """Compute the squared distances ``(n, n)`` between all pairs of ``(n, d)`` vectors."""
    shifted = vectors - vectors.mean(0)
    squares = np.einsum("nd,nd->n", shifted, shifted)
    distances = np.asarray(squares[:, None] + squares - 2 * (shifted @ shifted.T), dtype=np.float32)
    np.maximum(distances, 0, out=distances)
    np.fill_diagonal(distances, 0)
    return distances


def spread_samples(distances: FloatArray, count: int, draws: np.random.RandomState) -> NDArray[np.int64]:
    """Choose samples far apart, at whose places k-means starts: greedy k-means++.

    scikit-learn chooses the same samples, but for rounding. It computes the distances anew for every centre
    of every start, which takes several times as long as the k-means that follows.

    Args:
        distances: ``(n, n)`` squared distances between the samples.
        count: number of samples to choose.
        draws: generator of the candidates.

    Returns:
        ``(count,)`` positions of the samples.

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
