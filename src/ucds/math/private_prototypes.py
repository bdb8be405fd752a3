"""Prototypes that several domains share, learned from sums with Gaussian noise (docs/privacy.md).

The numbers of the steps are those of the page. To every released sum, a sample adds a vector no longer than
its weight. So no sum changes by more than 1 when the samples of one person, whose weights sum to 1, are taken
out. Everything else is computed from released sums, from random numbers that do not depend on the data, and
from the sum of the weights in each domain, which is public and unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ucds.math.arrays import DoubleArray, FloatArray, IntArray
from ucds.math.domain_transport import SharedPrototypes, match_domains
from ucds.math.privacy import noise_scale

Weights = NDArray[np.floating[Any]]

AddNoise = Callable[[DoubleArray, float], DoubleArray]
"""Function that adds independent Gaussian noise of a given standard deviation to the entries of a vector."""

Release = Callable[[DoubleArray, float], DoubleArray]
"""Function that adds to a sum the noise for a given part of the budget, between 0 and 1."""

DIRECTIONS = 128
"""Number of directions in which the principal axes are sought; the noise on these grows with its root."""

MEANS, AXES, STEPS, SIZES = 0.1, 0.3, 0.55, 0.05
"""Parts of the budget rho for the domains' means, the principal axes, the steps of Lloyd's algorithm, and the
sizes of the clusters."""

_ROUNDING = 1 - 1e-9  # a vector scaled to length 1 may be longer by rounding
_FINENESS = 2  # prototypes that are learned for each cluster, before they are merged
_COHERENCE = 0.5  # assumed length of the mean of the samples of a prototype, all of which have length 1
_REST = 1e-9  # weight of the previous prototype in a sum, so that one without samples stays where it is


def learn_private_prototypes(
    vectors: FloatArray,
    domain: IntArray,
    weights: Weights,
    n_clusters: int,
    rho: float,
    add_noise: AddNoise,
    rng: np.random.Generator,
    *,
    directions: DoubleArray | None = None,
    width: int = 32,
    whitening: float = 0.5,
    steps: int = 5,
) -> SharedPrototypes:
    """Learn shared prototypes with rho-zCDP; the mean and the proportions of the result are noisy, too.

    A row of zeros in the ``(n, d)`` vectors stands for a sample that was taken out. A weight is 1, or one
    over the number of samples of its person. The randomness of the noise must be secret, that of the
    generator need not be. The principal axes are sought along ``(d, p)`` orthonormal public directions, along
    random ones if ``None`` are given. An infinite ``rho`` adds noise of scale 0.
    """
    release = releases(rho, add_noise)
    # Steps 1 and 2: the domains' means and the principal axes.
    base = random_directions(vectors.shape[1], rng) if directions is None else directions
    space = find_private_space(vectors, domain, weights, release, base, width=width, whitening=whitening)
    samples, present, part = space.samples, space.weights, STEPS / steps
    counts, fine = np.bincount(domain, weights), _FINENESS * n_clusters
    noise = noise_scale(rho * part) * np.sqrt(samples.shape[1])
    groups = choose_groups(domain, counts, fine, float(noise))
    masses = np.bincount(groups, weights)[:, None, None]
    # Step 3: Lloyd's algorithm on the sphere for every group, from directions that do not depend on the data.
    start = bounded(rng.standard_normal((len(masses) * fine, samples.shape[1])))
    sums = start.reshape(len(masses), fine, -1)
    for _ in range(steps - 1):
        prototypes = np.stack([bounded(own) for own in sums])
        sums = _REST * prototypes + release(sum_clusters(samples, present, groups, prototypes), part)
    # Step 4: prototypes of one cluster are merged, and the clusters of the groups are matched.
    shared = bounded(match_domains([bounded(merge(own, n_clusters)) for own in sums]))
    # Step 5: a step of all groups together, in which each counts the same.
    alike = np.repeat(shared[None], len(masses), axis=0)
    moved = release(sum_clusters(samples, present, groups, alike), part)
    shared = bounded((moved / masses).sum(0) + _REST * shared)
    # Step 6: sizes of the clusters.
    nearest = np.eye(n_clusters)[(samples @ shared.T).argmax(1)]
    members = np.eye(len(counts))[domain]
    sizes = np.maximum(release(members.T @ (present[:, None] * nearest), SIZES), 1.0)
    parts = (space.axes, space.mean, shared.T, sizes / sizes.sum(1, keepdims=True))
    return SharedPrototypes(*(np.ascontiguousarray(part, dtype=np.float32) for part in parts))


class PrivateSpace(NamedTuple):
    """Samples in the space of a private clustering, with the axes and the mean of this space."""

    axes: DoubleArray
    mean: DoubleArray
    samples: DoubleArray  # (n, w) directions along the axes, from the means of their domains; not released
    weights: DoubleArray  # (n,) weight of each sample, 0 if it was taken out; not released


def releases(rho: float, add_noise: AddNoise) -> Release:
    """Return a function that releases sums of sensitivity 1, each for a part of the budget ``rho``."""
    return lambda total, part: add_noise(total.ravel(), noise_scale(rho * part)).reshape(total.shape)


def find_private_space(
    vectors: FloatArray,
    domain: IntArray,
    weights: Weights,
    release: Release,
    base: DoubleArray,
    *,
    width: int = 32,
    whitening: float = 0.5,
) -> PrivateSpace:
    """Find principal axes along ``base`` from noisy sums, which spend :data:`MEANS` and :data:`AXES`."""
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


def bounded(vectors: NDArray[np.floating[Any]]) -> DoubleArray:
    """Scale the rows of ``(n, d)`` vectors to length 1, never more by rounding; rows of zeros stay."""
    rows = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows * (_ROUNDING / np.maximum(lengths, 1e-12)))


def random_directions(dimension: int, rng: np.random.Generator) -> DoubleArray:
    """Draw ``(dimension, p)`` orthonormal columns, :data:`DIRECTIONS` or as many as there can be."""
    return np.asarray(np.linalg.qr(rng.standard_normal((dimension, min(DIRECTIONS, dimension))))[0])


def to_triangle(matrix: DoubleArray) -> DoubleArray:
    """Write a symmetric matrix as a vector of equal Euclidean length, so that no entry is released twice."""
    rows, columns = np.triu_indices(len(matrix))
    return np.asarray(matrix[rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2.0)))


def from_triangle(values: DoubleArray) -> DoubleArray:
    """Return the symmetric matrix of a vector that :func:`to_triangle` made."""
    width = int((np.sqrt(8 * len(values) + 1) - 1) / 2)
    rows, columns = np.triu_indices(width)
    matrix = np.zeros((width, width))
    matrix[rows, columns] = values / np.where(rows == columns, 1.0, np.sqrt(2.0))
    return matrix + np.triu(matrix, 1).T


def leading_axes(second: DoubleArray, width: int, whitening: float) -> DoubleArray:
    """Find the principal axes, widest first, of a ``(p, p)`` noisy matrix of second moments.

    They are weighted as a principal space has them. Noise may have made eigenvalues negative.
    """
    values, axes = np.linalg.eigh(second)
    # One image's worth of variance at least: smaller eigenvalues are noise.
    values = np.maximum(values[::-1][:width], 1.0)
    return np.asarray(axes[:, ::-1][:, :width] * (values[0] / values) ** (whitening / 2))


def choose_groups(
    domain: IntArray, counts: NDArray[np.number[Any]], n_prototypes: int, noise: float
) -> IntArray:
    """Decide, by public numbers only, whether every domain is clustered by itself or all together.

    The group of a sample is its domain if, in the smallest domain, the sums for the prototypes are expected
    to be longer than their noise; otherwise it is 0.
    """
    apart = _COHERENCE * counts.min() / n_prototypes >= noise
    return domain if apart else np.zeros_like(domain)


def sum_clusters(
    samples: DoubleArray, weights: DoubleArray, groups: IntArray, prototypes: DoubleArray
) -> DoubleArray:
    """Sum the samples that are nearest to each of the ``(G, m, w)`` prototypes of their group.

    A sample is in one of the sums, so it changes all together by at most its weight.
    """
    sums = np.zeros_like(prototypes)
    for group, own in enumerate(prototypes):
        mine = groups == group
        nearest = np.eye(len(own))[(samples[mine] @ own.T).argmax(1)]
        sums[group] = nearest.T @ (weights[mine, None] * samples[mine])
    return sums


def merge(sums: DoubleArray, count: int) -> DoubleArray:
    """Merge sums until ``count`` are left; each time, merge the two whose merger loses least.

    The length of a sum is the sum of its samples' cosines with its direction, which Lloyd's algorithm on the
    sphere maximises. The loss of a merger is the sum of the two lengths minus the length of the merged sum.
    So this is Ward's method on the sphere, with sums in place of samples.

    Source:
        J. H. Ward, Hierarchical grouping to optimize an objective function, 1963.
    """
    while len(sums) > count:
        lengths = np.linalg.norm(sums, axis=1)
        alone = lengths[:, None] + lengths
        squares = lengths[:, None] ** 2 + lengths**2 + 2 * sums @ sums.T
        lost = alone - np.sqrt(np.maximum(squares, 0.0))
        np.fill_diagonal(lost, np.inf)
        first, second = sorted(divmod(int(lost.argmin()), len(sums)))
        sums = np.vstack([np.delete(sums, [first, second], axis=0), sums[first] + sums[second]])
    return sums
