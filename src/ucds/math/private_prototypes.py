"""Prototypes that several domains share, learned from sums with Gaussian noise (docs/privacy.md).

The numbers of the steps are those of the page. Steps 1 and 2, and what a sum may be, are in
:mod:`ucds.math.private_space`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ucds.math.arrays import FloatArray
from ucds.math.domain_transport import match_domains
from ucds.math.privacy import noise_scale
from ucds.math.private_space import AddNoise, Array, bounded, find_private_space, releases

STEPS, SIZES = 0.55, 0.05
"""Parts of the budget rho for the steps of Lloyd's algorithm, and for the sizes of the clusters."""

FINENESS = 2
"""Number of prototypes that are learned for each cluster, before they are merged."""

COHERENCE = 0.5
"""Assumed length of the mean of the samples of a prototype, all of which have length 1."""

_REST = 1e-9  # weight of the previous prototype in a sum, so that one without samples stays where it is


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
    directions: Array | None = None,
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
        rng: generator of the start, and of the projection if it is random; it need not be secret.
        directions: ``(d, p)`` orthonormal public directions in which to look for the axes; random ones if
            ``None``.
        width: number of principal axes.
        whitening: 0 keeps the variances along the axes, 1 makes them equal.
        steps: number of steps of Lloyd's algorithm, the last of which all domains take together.
    """
    release = releases(rho, add_noise)
    # Steps 1 and 2: the domains' means and the principal axes.
    space = find_private_space(
        vectors, domain, weights, release, rng, directions=directions, width=width, whitening=whitening
    )
    samples, present, part = space.samples, space.weights, STEPS / steps
    counts, fine = np.bincount(domain, weights), FINENESS * n_clusters
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
    merged = [torch.from_numpy(bounded(merge(own, n_clusters))) for own in sums]
    shared = match_domains(merged).numpy()
    # Step 5: a step of all groups together, in which each counts the same.
    alike = np.repeat(shared[None], len(masses), axis=0)
    moved = release(sum_clusters(samples, present, groups, alike), part)
    shared = bounded((moved / masses).sum(0) + _REST * shared)
    # Step 6: sizes of the clusters.
    nearest = np.eye(n_clusters)[(samples @ shared.T).argmax(1)]
    members = np.eye(len(counts))[domain]
    sizes = np.maximum(release(members.T @ (present[:, None] * nearest), SIZES), 1.0)
    parts = (space.axes, space.mean, shared.T, sizes / sizes.sum(1, keepdims=True))
    return PrivateClusters(*(np.ascontiguousarray(part, dtype=np.float32) for part in parts))


def choose_groups(
    domain: NDArray[np.int64], counts: NDArray[np.number[Any]], n_prototypes: int, noise: float
) -> NDArray[np.int64]:
    """Decide by public figures alone whether every domain is clustered by itself, or all are as one.

    Args:
        domain: ``(n,)`` domain of each sample.
        counts: ``(D,)`` public sizes of the domains.
        n_prototypes: number of prototypes of a group.
        noise: expected length of the noise on the sum of a prototype's samples.

    Returns:
        ``(n,)`` group of each sample: its domain, if the sums of the smallest domain are expected to be
        longer than their noise, and otherwise 0.
    """
    apart = COHERENCE * counts.min() / n_prototypes >= noise
    return domain if apart else np.zeros_like(domain)


def sum_clusters(samples: Array, weights: Array, groups: NDArray[np.int64], prototypes: Array) -> Array:
    """Sum the samples that are nearest to each prototype of their group.

    Args:
        samples: ``(n, w)`` vectors, no longer than 1.
        weights: ``(n,)`` weight of each.
        groups: ``(n,)`` group of each.
        prototypes: ``(G, m, w)`` unit vectors.

    Returns:
        ``(G, m, w)`` sums. A sample is in one of them, so that all together move by its weight at most.
    """
    sums = np.zeros_like(prototypes)
    for group, own in enumerate(prototypes):
        mine = groups == group
        nearest = np.eye(len(own))[(samples[mine] @ own.T).argmax(1)]
        sums[group] = nearest.T @ (weights[mine, None] * samples[mine])
    return sums


def merge(sums: Array, count: int) -> Array:
    """Merge sums until ``count`` are left, each time the two that lose least.

    The length of a sum is the sum of its samples' cosines with its direction, which Lloyd's algorithm on the
    sphere makes large; a merger loses the two lengths, less that of the two together. So this is Ward's
    method on the sphere, with sums in place of samples.

    Args:
        sums: ``(m, w)`` vectors.
        count: number of vectors wanted, at most m.

    Returns:
        ``(count, w)`` sums of some of them.

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
