"""K-means as DeepCluster uses it: on whitened features, with empty clusters refilled.

Source: Caron et al., ECCV 2018, Sections 3.3 and 3.4.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

_REFILL = 1e-3
"""Distance between a centre and its copy for an empty cluster, as a share of the centre's length."""

_RANK = 1e-10
"""Directions with less than this share of the largest variance count as having no variance."""


def whiten(features: Tensor, n_components: int) -> Tensor:
    """Project features on their principal components and bring each to variance one.

    Args:
        features: ``(n, d)`` features.
        n_components: largest number of components to keep; directions without variance are dropped.

    Returns:
        ``(n, c)`` components in fp64, by falling variance; their signs are arbitrary.
    """
    centred = features.double() - features.double().mean(0)
    variances, directions = torch.linalg.eigh(centred.mT @ centred / max(1, len(centred) - 1))
    kept = max(1, min(n_components, int((variances > _RANK * variances[-1]).sum())))
    variances, directions = variances[-kept:].flip(0), directions[:, -kept:].flip(1)
    whitened: Tensor = centred @ directions / variances.clamp_min(1e-300).sqrt()
    return whitened


def kmeans(points: Tensor, n_clusters: int, rng: np.random.Generator, iterations: int) -> Tensor:
    """Cluster points by Lloyd's algorithm, with random points as first centres; see :func:`lloyd`."""
    start = torch.from_numpy(rng.choice(len(points), n_clusters, replace=False))
    return lloyd(points, points[start.to(points.device)], rng, iterations)


def lloyd(points: Tensor, centres: Tensor, rng: np.random.Generator, iterations: int) -> Tensor:
    """Move centres to the means of their nearest points, until no point changes its cluster.

    A cluster that becomes empty gets a slightly displaced copy of another centre, chosen at random; the two
    then share the points of that cluster.

    Args:
        points: ``(n, c)`` points.
        centres: ``(K, c)`` first centres.
        rng: generator of the centres of empty clusters.
        iterations: largest number of iterations.

    Returns:
        ``(n,)`` int64 cluster of each point. Fewer than K clusters are in use only if points coincide or the
        last iteration emptied one.
    """
    labels = torch.cdist(points, centres).argmin(1)
    for _ in range(iterations):
        centres = _refilled_means(points, labels, len(centres), rng)
        before, labels = labels, torch.cdist(points, centres).argmin(1)
        if torch.equal(before, labels):
            break
    return labels


def _refilled_means(points: Tensor, labels: Tensor, n_clusters: int, rng: np.random.Generator) -> Tensor:
    sizes = labels.bincount(minlength=n_clusters)
    centres = points.new_zeros(n_clusters, points.shape[1]).index_add_(0, labels, points)
    centres = centres / sizes.clamp_min(1).unsqueeze(1)
    full, empty = sizes.nonzero().squeeze(1), (sizes == 0).nonzero().squeeze(1)
    if len(empty):
        chosen = full[torch.from_numpy(rng.integers(len(full), size=len(empty))).to(full.device)]
        noise = torch.from_numpy(rng.standard_normal((len(empty), points.shape[1]))).to(points)
        length = centres[chosen].norm(dim=1, keepdim=True)
        centres[empty] = centres[chosen] + _REFILL * length * functional.normalize(noise)
    return centres
