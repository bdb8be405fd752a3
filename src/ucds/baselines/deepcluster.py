"""DeepCluster: in turn, cluster the features by k-means and learn to predict the clusters.

Source: Caron et al., Deep clustering for unsupervised learning of visual features, ECCV 2018; its k-means, on
whitened features and with empty clusters refilled, is that of Sections 3.3 and 3.4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ucds.backbones import Backbone
from ucds.baselines.loop import Clustering, Loop
from ucds.baselines.settings import DeepClusterSettings
from ucds.baselines.views import resized_view
from ucds.data.batches import DomainBalancedSampler
from ucds.data.dataset import Dataset
from ucds.errors import InputError
from ucds.models import ClusteringModel
from ucds.training.prediction import encode
from ucds.training.prepare import prepare
from ucds.training.seeds import numpy_generator, torch_generator
from ucds.training.session import Session

_NAME = "deepcluster"

_REFILL = 1e-3
"""Distance between a centre and its copy for an empty cluster, as a share of the centre's length."""

_RANK = 1e-10
"""Directions with less than this share of the largest variance count as having no variance."""


def cluster_by_deepcluster(
    session: Session[DeepClusterSettings],
    backbone: Backbone,
    data: Dataset,
    n_clusters: int,
) -> Clustering:
    """Cluster samples by k-means on features that are trained to tell the clusters apart.

    Args:
        session: the run; with ``tune = "head"`` the backbone stays frozen.
        backbone: encoder; the original starts from random weights.
        data: samples, whose domains are ignored; images are cropped as the settings say.
        n_clusters: number of clusters, ``k`` of k-means.

    Returns:
        The clustering of the last features; the model's own predictions are those of the epoch before.

    Raises:
        InputError: there are fewer samples than clusters, in all or in a batch, or the loss is no longer
            finite.
    """
    settings = session.settings
    if n_clusters > min(settings.batch_size, len(data.samples)):
        raise InputError(f"{n_clusters} clusters need as many samples, in all and in a batch")
    training = prepare(session, backbone, data, n_clusters, side=_NAME)
    model, view = training.trained, resized_view(backbone.spec, training.data.view, settings.crop)
    own = Dataset(training.data.samples, view)
    steps = -(-len(own.samples) // min(settings.batch_size, len(own.samples)))
    loop = Loop(session, _NAME, model, make_optimiser(model, settings), own, settings.epochs * steps)
    for epoch in range(settings.epochs):
        labels = _cluster(session, model, own, epoch)
        _reset_prototypes(model, session.runtime.seed, epoch)
        # Each batch holds equally many samples of every cluster that is not empty.
        filled = np.unique(labels, return_inverse=True)[1]
        sampler = DomainBalancedSampler(filled, settings.batch_size, session.runtime.seed)
        targets = torch.from_numpy(labels).to(session.runtime.device)
        for batch in loop.epoch(sampler):
            features = loop.forward(batch.inputs).features
            # As in the released code, k-means sees the features before the ReLU, the last layer after it.
            logits = (features.relu() if settings.rectified else features) @ model.prototypes
            loop.update(pseudo_labels=functional.cross_entropy(logits, targets[batch.index]))
    labels = _cluster(session, model, own, settings.epochs)
    loop.finish(functional.one_hot(torch.from_numpy(labels), n_clusters).float())
    return Clustering(labels, loop.seconds, loop.images_seen, training.model.eval())


def _cluster(
    session: Session[DeepClusterSettings], model: ClusteringModel, data: Dataset, epoch: int
) -> NDArray[np.int64]:
    """Cluster the current features by k-means, from a random start of this epoch."""
    runtime, settings = session.runtime, session.settings
    features = encode(model, data.samples, data.view, runtime, settings.prediction_batch_size)
    points = functional.normalize(whiten(features, settings.principal_components))
    rng = numpy_generator(runtime.seed, _NAME, "k-means", epoch)
    labels: NDArray[np.int64] = kmeans(points, model.n_clusters, rng, settings.iterations).cpu().numpy()
    return labels


@torch.no_grad()
def _reset_prototypes(model: ClusteringModel, seed: int, epoch: int) -> None:
    """Re-initialise the last layer, because the clusters of two epochs are numbered differently."""
    generator = torch_generator(seed, _NAME, "prototypes", epoch)
    model.prototypes.copy_(torch.empty(model.prototypes.shape).normal_(0, 0.01, generator=generator))


def make_optimiser(model: ClusteringModel, settings: DeepClusterSettings) -> torch.optim.Optimizer:
    """Make SGD with momentum for all layers but the last one, which is re-initialised at every epoch."""
    body = [weight for weight in model.parameters() if weight is not model.prototypes]
    groups: list[dict[str, Any]] = [
        {"params": body, "momentum": settings.momentum},
        {"params": [model.prototypes]},
    ]
    return torch.optim.SGD(groups, lr=settings.learning_rate, weight_decay=settings.weight_decay)


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
