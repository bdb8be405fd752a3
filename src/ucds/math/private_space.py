"""The space in which a private clustering sees its samples, learned from sums with Gaussian noise.

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

from ucds.math.arrays import FloatArray
from ucds.math.privacy import noise_scale

Array = NDArray[np.float64]
AddNoise = Callable[[Array, float], Array]
"""Adds independent Gaussian noise of a standard deviation to the entries of a vector."""

Release = Callable[[Array, float], Array]
"""Adds to a sum the noise that a part of the budget, between 0 and 1, pays for."""

DIRECTIONS = 128
"""Number of directions in which the principal axes are sought: noise on them grows with its root."""

MEANS, AXES = 0.1, 0.3
"""Parts of the budget for the domains' means and for the principal axes."""

_ROUNDING = 1 - 1e-9  # a vector scaled to length 1 may be longer by rounding


def releases(rho: float, add_noise: AddNoise) -> Release:
    """Return a function that releases sums of sensitivity 1, each for a part of one budget.

    Args:
        rho: whole budget in zCDP; infinity adds noise of scale 0.
        add_noise: source of noise; its randomness must be secret.
    """

    def release(total: Array, part: float) -> Array:
        return np.asarray(add_noise(total.ravel(), noise_scale(rho * part)).reshape(total.shape))

    return release


@dataclass(frozen=True)
class PrivateSpace:
    """Samples as a private clustering sees them.

    Attributes:
        axes: ``(d, w)`` axes, each divided by a power of its scale.
        mean: ``(d,)`` mean of the domains' noisy means, within the space of the projection.
        samples: ``(n, w)`` directions of the samples along the axes, from the means of their domains; no
            longer than 1. They are not released.
        weights: ``(n,)`` weight of each sample; 0 if it was taken out. They are not released.
    """

    axes: Array
    mean: Array
    samples: Array
    weights: Array


def find_private_space(
    vectors: FloatArray,
    domain: NDArray[np.int64],
    weights: NDArray[np.floating[Any]],
    release: Release,
    rng: np.random.Generator,
    *,
    directions: Array | None = None,
    width: int = 32,
    whitening: float = 0.5,
) -> PrivateSpace:
    """Find principal axes from noisy sums, for :data:`MEANS` and :data:`AXES` of the budget.

    Args:
        vectors: ``(n, d)`` features; a row of zeros stands for a sample that was taken out.
        domain: ``(n,)`` domain of each sample, from 0 without gaps.
        weights: ``(n,)`` weight of each sample: 1, or one over the number of samples of its person.
        release: adds the noise.
        rng: generator of the random directions, which need not be secret.
        directions: ``(d, p)`` orthonormal public directions in which to look for the axes;
            :data:`DIRECTIONS` random ones, or d, if ``None``.
        width: number of principal axes.
        whitening: 0 keeps the variances along the axes, 1 makes them equal.
    """
    base = random_directions(vectors.shape[1], rng) if directions is None else directions
    projected = bounded(bounded(vectors) @ base)
    members = np.eye(int(domain.max()) + 1)[domain]
    present = np.where(vectors.any(axis=1), weights, 0.0)
    scaled = present[:, None]
    # Step 1: a mean for every domain, from which its samples are seen.
    means = release(members.T @ (scaled * projected), MEANS) / (members.T @ weights[:, None])
    centred = bounded(projected - means[domain])
    # Step 2: principal axes.
    second = from_triangle(release(to_triangle(centred.T @ (scaled * centred)), AXES))
    turn = leading_axes(second, min(width, len(second)), whitening)
    return PrivateSpace(base @ turn, base @ means.mean(0), bounded(centred @ turn), present)


def bounded(vectors: NDArray[np.floating[Any]]) -> Array:
    """Scale the rows of ``(n, d)`` vectors to a length that is 1, and not more by rounding; zeros stay."""
    rows = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows * (_ROUNDING / np.maximum(lengths, 1e-12)))


def random_directions(dimension: int, rng: np.random.Generator) -> Array:
    """Draw ``(dimension, p)`` orthonormal columns, :data:`DIRECTIONS` or as many as there can be."""
    return np.asarray(np.linalg.qr(rng.standard_normal((dimension, min(DIRECTIONS, dimension))))[0])


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
