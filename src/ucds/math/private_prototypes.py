"""Prototypes that several domains share, learned from sums with Gaussian noise (docs/privacy.md).

A sample adds a vector to every released sum that is no longer than its weight. So no sum changes by more than
1 when the samples of one person, whose weights sum to 1, are taken out. Everything else is computed from sums
that were released, from numbers drawn without looking at the data, and from the sum of the weights in each
domain, which is public and stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ucds.math.privacy import noise_scale
from ucds.math.spaces import FloatArray

Array = NDArray[np.float64]
AddNoise = Callable[[Array, float], Array]
"""Adds independent Gaussian noise of a standard deviation to the entries of a vector."""

PROJECTION = 128
"""Width of the random projection in which the principal axes are sought."""

SHARES = {"means": 0.1, "axes": 0.3, "steps": 0.55, "sizes": 0.05}
"""Parts of the budget rho: domains' means, principal axes, steps of Lloyd's algorithm, cluster sizes."""

_ROUNDING = 1 - 1e-9  # a vector scaled to length 1 may be longer by rounding


@dataclass(frozen=True)
class PrivateClusters:
    """Prototypes that were learned from noisy sums, and the projection under which samples are compared.

    Attributes:
        axes: ``(d, w)`` axes, each divided by a power of its scale.
        mean: ``(d,)`` mean of the domains' noisy means, within the space of the projection.
        prototypes: ``(w, K)`` unit columns.
        proportions: ``(D, K)`` noisy sizes of the clusters in each domain; rows sum to 1.
    """

    axes: FloatArray
    mean: FloatArray
    prototypes: FloatArray
    proportions: FloatArray


def learn_private_prototypes(
    vectors: FloatArray,
    domain: NDArray[np.int64],
    weights: NDArray[np.floating[Any]],
    n_clusters: int,
    rho: float,
    add_noise: AddNoise,
    rng: np.random.Generator,
    *,
    width: int = 32,
    whitening: float = 0.5,
    steps: int = 5,
) -> PrivateClusters:
    """Learn shared prototypes with rho-zCDP.

    Args:
        vectors: ``(n, d)`` features; a row of zeros stands for a sample that was taken out.
        domain: ``(n,)`` domain of each sample, from 0 without gaps.
        weights: ``(n,)`` weight of each sample: 1, or one over the number of samples of its person.
        n_clusters: number of clusters, K.
        rho: privacy budget in zCDP; infinity adds noise of scale 0.
        add_noise: source of noise; its randomness must be secret.
        rng: generator of the projection and of the start, which need not be secret.
        width: number of principal axes.
        whitening: 0 keeps the variances along the axes, 1 makes them equal.
        steps: number of steps of Lloyd's algorithm.
    """

    def release(total: Array, part: str, times: int = 1) -> Array:
        noisy = add_noise(total.ravel(), noise_scale(rho * SHARES[part] / times))
        return np.asarray(noisy.reshape(total.shape))

    base = random_projection(vectors.shape[1], min(PROJECTION, vectors.shape[1]), rng)
    projected = bounded(bounded(vectors) @ base)
    members = np.eye(int(domain.max()) + 1)[domain]
    totals = members.T @ weights[:, None]
    scaled = np.where(vectors.any(axis=1), weights, 0.0)[:, None]
    # Step 1: a mean for every domain, from which its samples are seen.
    means = release(members.T @ (scaled * projected), "means") / totals
    centred = bounded(projected - means[domain])
    # Step 2: principal axes.
    second = from_triangle(release(to_triangle(centred.T @ (scaled * centred)), "axes"))
    turn = leading_axes(second, min(width, len(second)), whitening)
    samples = bounded(centred @ turn)
    # Step 3: Lloyd's algorithm on the sphere, from directions that do not depend on the data.
    prototypes = bounded(rng.standard_normal((n_clusters, turn.shape[1])))
    for _ in range(steps):
        nearest = np.eye(n_clusters)[(samples @ prototypes.T).argmax(1)]
        sums = release(nearest.T @ (scaled * samples), "steps", steps)
        empty = np.linalg.norm(sums, axis=1, keepdims=True) == 0  # possible without noise only
        prototypes = bounded(np.where(empty, prototypes, sums))
    # Step 4: sizes of the clusters.
    nearest = np.eye(n_clusters)[(samples @ prototypes.T).argmax(1)]
    sizes = np.maximum(release(members.T @ (scaled * nearest), "sizes"), 1.0)
    parts = (base @ turn, base @ means.mean(0), prototypes.T, sizes / sizes.sum(1, keepdims=True))
    return PrivateClusters(*(np.ascontiguousarray(part, dtype=np.float32) for part in parts))


def bounded(vectors: NDArray[np.floating[Any]]) -> Array:
    """Scale the rows of ``(n, d)`` vectors to a length that is 1, and not more by rounding; zeros stay."""
    rows = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows * (_ROUNDING / np.maximum(lengths, 1e-12)))


def random_projection(dimension: int, width: int, rng: np.random.Generator) -> Array:
    """Draw ``(dimension, width)`` orthonormal columns of random directions."""
    return np.asarray(np.linalg.qr(rng.standard_normal((dimension, width)))[0])


def to_triangle(matrix: Array) -> Array:
    """Write a symmetric matrix as a vector of equal Euclidean length, so that no entry is released twice."""
    rows, columns = np.triu_indices(len(matrix))
    return np.asarray(matrix[rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2.0)))


def from_triangle(values: Array) -> Array:
    """Return the symmetric matrix of a vector that :func:`to_triangle` made."""
    width = int((np.sqrt(8 * len(values) + 1) - 1) / 2)
    rows, columns = np.triu_indices(width)
    matrix = np.zeros((width, width))
    matrix[rows, columns] = values / np.where(rows == columns, 1.0, np.sqrt(2.0))
    return matrix + np.triu(matrix, 1).T


def leading_axes(second: Array, width: int, whitening: float) -> Array:
    """Find the principal axes of a noisy matrix of second moments, weighted as a principal space has them.

    Args:
        second: ``(p, p)`` symmetric matrix; noise may have made eigenvalues negative.
        width: number of axes.
        whitening: 0 keeps the variances along the axes, 1 makes them equal.

    Returns:
        ``(p, width)`` axes as columns, widest first.
    """
    values, axes = np.linalg.eigh(second)
    # One image's worth of variance at least: smaller eigenvalues are noise.
    values = np.maximum(values[::-1][:width], 1.0)
    return np.asarray(axes[:, ::-1][:, :width] * (values[0] / values) ** (whitening / 2))
