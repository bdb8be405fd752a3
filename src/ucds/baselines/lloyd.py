"""K-means as DeepCluster uses it: on whitened features, with empty clusters refilled.

Source: Caron et al., ECCV 2018, Sections 3.3 and 3.4.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

_REFILL = 1e-3
"""Distance, as a share of their length, between a centre and the copy of it that an empty cluster gets."""

_RANK = 1e-10
"""Directions with less than this share of the largest variance count as having none."""


def whiten(features: Tensor, n_components: int) -> Tensor:
    """Project features on their principal components and bring each to variance one.

    Args:
        features: ``(n, d)``.
        n_components: at most so many components are kept; directions without variance are not.

    Returns:
        ``(n, c)`` fp64, by falling variance; the sign of a component is of no meaning.
    """
    centred = features.double() - features.double().mean(0)
    variances, directions = torch.linalg.eigh(centred.mT @ centred / max(1, len(centred) - 1))
    kept = max(1, min(n_components, int((variances > _RANK * variances[-1]).sum())))
    variances, directions = variances[-kept:].flip(0), directions[:, -kept:].flip(1)
    whitened: Tensor = centred @ directions / variances.clamp_min(1e-300).sqrt()
    return whitened


def kmeans(points: Tensor, n_clusters: int, rng: np.random.Generator, iterations: int) -> Tensor:
    """Lloyd's algorithm from random samples; see :func:`lloyd`.

    Returns:
        ``(n,)`` int64 cluster of each point.
    """
    start = torch.from_numpy(rng.choice(len(points), n_clusters, replace=False))
    return lloyd(points, points[start.to(points.device)], rng, iterations)


def lloyd(points: Tensor, centres: Tensor, rng: np.random.Generator, iterations: int) -> Tensor:
    """Move centres to the means of the points that are nearest to them, until no point changes sides.

    A cluster that becomes empty gets a slightly displaced copy of another one's centre, chosen at random:
    the two then share that one's points.

    Args:
        points: ``(n, c)``.
        centres: ``(K, c)`` to start from.
        rng: chooses what empty clusters get.
        iterations: at most.

    Returns:
        ``(n,)`` int64 cluster of each point. Fewer than K are in use only when points coincide or the
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
