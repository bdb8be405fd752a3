"""Embed features and prototypes in the plane by t-SNE."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def place_all(
    features: ArrayLike, prototypes: ArrayLike, seed: int, landmarks: int = 1000
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Place every sample, and the prototypes, in the plane, in a time that hardly grows with the samples.

    Of more samples than ``landmarks``, that many are chosen at random and embedded with the prototypes. Each
    further sample is placed among its three nearest landmarks, the nearer the more similar.

    Args:
        features: ``(n, d)`` finite features.
        prototypes: ``(d, K)`` prototypes, as a model holds them.
        seed: seed of the embedding and of the choice of landmarks; equal seeds give equal points.
        landmarks: largest number of samples to embed.

    Returns:
        ``(n, 2)`` points of the samples and ``(K, 2)`` points of the prototypes.

    Source:
        L. van der Maaten and G. Hinton, Visualizing data using t-SNE, 2008.
    """
    vectors = _directions(np.asarray(features, dtype=np.float64))
    stars = _directions(np.asarray(prototypes, dtype=np.float64).T)
    n, order = len(vectors), np.random.default_rng(seed).permutation(len(vectors))
    chosen, others = np.sort(order[:landmarks]), np.sort(order[landmarks:])
    together = np.concatenate([vectors[chosen], stars])
    points = _embed(together, seed)
    placed = np.empty((n, 2))
    placed[chosen] = points[: len(chosen)]
    if len(others):
        similar = vectors[others] @ vectors[chosen].T
        nearest = np.argpartition(-similar, 2, axis=1)[:, :3]
        weights = np.exp(20 * (np.take_along_axis(similar, nearest, 1) - 1))
        weights /= weights.sum(1, keepdims=True)
        placed[others] = (weights[:, :, None] * placed[chosen][nearest]).sum(1)
    return placed, points[len(chosen) :]


def _directions(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, np.finfo(np.float64).tiny))


def _embed(vectors: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Embed the directions of vectors ``(n, d)`` in the plane ``(n, 2)``."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    if len(vectors) < 5:  # too few to have neighbourhoods: the first two coordinates do
        return np.pad(vectors, ((0, 0), (0, 2)))[:, :2]
    directions = _directions(vectors)
    # scikit-learn divides by the spread, and would crash on features that are all equal, as after a collapse.
    spread = directions.shape[1] > 1 and np.ptp(directions, axis=0).max() > 1e-6
    tsne = TSNE(
        perplexity=min(30.0, (len(vectors) - 1) / 3),
        init="pca" if spread else "random",
        learning_rate="auto",
        max_iter=500,
        random_state=seed,
    )
    # One thread: the order of sums, and with it the figure, must not depend on the number of cores.
    with threadpool_limits(1):
        if spread:
            # The first fifty principal components keep the neighbours, at a fraction of the time.
            components = min(50, *directions.shape)
            directions = PCA(components, svd_solver="full").fit_transform(directions)
        points: NDArray[np.float64] = tsne.fit_transform(directions)
    return points
