"""Runs k-means from many starts, in threads that share the processors; for the vote of the consensus."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits  # type: ignore[import-untyped]

from ucds.math.arrays import FloatArray, IntArray, Watch, counted

REPRESENTATIVES = 3000
"""Largest number of samples that one run of k-means sees, and whose pairs a consensus compares; the
time and memory of the consensus grow with the square."""


class KMeansRun(NamedTuple):
    """Clusters ``(n,)`` of all samples, and the sum of squared distances of seen samples from centres."""

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

    If there are more than :data:`REPRESENTATIVES` samples, the runs in a space see that many, and every other
    sample gets the nearest centre. The ``starts`` runs of each space and size are one list, by space.
    """
    from sklearn.exceptions import ConvergenceWarning

    with side_by_side() as pool, warnings.catch_warnings():
        # Copies give fewer clusters than asked for, which is no matter for a vote.
        warnings.simplefilter("ignore", ConvergenceWarning)
        jobs = []
        for space in spaces:
            seen = space[draw_representatives(len(space), rng)]
            distances = squared_distances(seen)
            for size in sizes:
                seeds = [int(rng.integers(2**31)) for _ in range(starts)]
                jobs.append(pool.submit(_run, space, seen, distances, size, seeds))
        return [job.result() for job in counted(watch, "k-means", jobs)]


@contextmanager
def side_by_side() -> Iterator[ThreadPoolExecutor]:
    """Open a pool with as many threads as libraries may use.

    Inside the block, libraries start no threads, so that results are the same for any number of threads. If
    the caller fails, work that has not begun is dropped.
    """
    threads = max((library["num_threads"] for library in threadpool_info()), default=1)
    with threadpool_limits(1, "blas"):  # of the whole process
        pool = ThreadPoolExecutor(threads, initializer=threadpool_limits, initargs=(1, "openmp"))
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


def _run(
    space: FloatArray, seen: FloatArray, distances: FloatArray, size: int, seeds: Sequence[int]
) -> list[KMeansRun]:
    """Find centres among the samples seen, once for each seed; all samples get the nearest one."""
    from sklearn import config_context
    from sklearn.cluster import KMeans

    found = []
    for positions in spread_samples(distances, size, seeds):
        # All samples are finite, and the size is one that scikit-learn takes.
        with config_context(assume_finite=True, skip_parameter_validation=True):
            kmeans = KMeans(size, init=seen[positions], n_init=1).fit(seen)
            found.append(KMeansRun(kmeans.predict(space).astype(np.int64), float(kmeans.inertia_)))
    return found


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


def spread_samples(distances: FloatArray, count: int, seeds: Sequence[int]) -> IntArray:
    """Choose positions ``(s, count)`` of samples far apart, where the k-means of each seed starts.

    This is greedy k-means++ on ``(n, n)`` squared distances. scikit-learn chooses the same samples, except
    for rounding, but computes the distances again for every centre of every start. That takes several times
    as long as the k-means that follows.

    Source:
        D. Arthur and S. Vassilvitskii, k-means++: the advantages of careful seeding, 2007.
    """
    n, candidates, starts = len(distances), 2 + int(np.log(count)), np.arange(len(seeds))
    draws = [np.random.RandomState(seed) for seed in seeds]
    chosen = np.empty((len(seeds), count), dtype=np.int64)
    chosen[:, 0] = [one.choice(n, p=np.full(n, 1 / n)) for one in draws]
    shares = np.stack([one.uniform(size=(count - 1, candidates)) for one in draws], axis=1)
    nearest = distances[chosen[:, 0]]
    for i, drawn in enumerate(shares, 1):
        bounds = np.cumsum(nearest, axis=1, dtype=np.float64)
        wanted = drawn * bounds[:, -1:]
        tried = np.stack([one.searchsorted(values) for one, values in zip(bounds, wanted, strict=True)])
        tried = np.minimum(tried, n - 1)  # rounding may lead one beyond the last
        closer = np.minimum(nearest[:, None], distances[tried])
        best = closer.sum(2, dtype=np.float64).argmin(1)
        chosen[:, i], nearest = tried[starts, best], closer[starts, best]
    return chosen
