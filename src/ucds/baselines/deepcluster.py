"""DeepCluster: in turn, cluster the features by k-means and learn to predict the clusters.

Source: Caron et al., Deep clustering for unsupervised learning of visual features, ECCV 2018.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch.nn import functional

from ucds.backbones import Backbone
from ucds.baselines.clustering import Clustering
from ucds.baselines.lloyd import kmeans, whiten
from ucds.baselines.loop import Loop, generator_of, seeds_of
from ucds.baselines.views import resized_view
from ucds.config import Settings
from ucds.data.sampler import DomainBalancedSampler
from ucds.errors import UserError
from ucds.models import ClusteringModel
from ucds.training.prediction import encode
from ucds.training.prepare import prepare
from ucds.training.session import Session
from ucds.training.stage import TrainingData

_NAME = "deepcluster"


class DeepClusterSettings(Settings):
    """Settings of DeepCluster; the defaults are the authors' for ImageNet."""

    epochs: int = Field(500, ge=1, description="times that the samples are clustered and then learned")
    batch_size: int = Field(256, ge=2, description="samples a step; at least one of each cluster")
    learning_rate: float = Field(0.05, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1, description="of all layers but the re-initialised one")
    weight_decay: float = Field(1e-5, ge=0)
    principal_components: int = Field(256, ge=1, description="of the features, whitened, for k-means")
    iterations: int = Field(20, ge=1, description="of k-means, at most")
    crop: float = Field(224 / 256, gt=0, le=1, description="side of crops, as a share of the image's")


def cluster_by_deepcluster(
    session: Session,
    backbone: Backbone,
    data: TrainingData,
    n_clusters: int,
    settings: DeepClusterSettings,
    *,
    cache: Path | None = None,
) -> Clustering:
    """Cluster samples by k-means on features that are trained to tell the clusters apart.

    Args:
        session: the run; with ``tune = "head"`` the backbone stays frozen.
        backbone: encoder; the original starts from random weights.
        data: samples, whose domains are ignored. Images are cropped as the settings say.
        n_clusters: ``k`` of k-means.
        settings: of the method.
        cache: folder for frozen features; ``None`` keeps them in memory.

    Returns:
        The clusters of the last features; the model's own predictions are those of the epoch before.

    Raises:
        UserError: there are fewer samples than clusters, in all or in a batch, or the loss is no longer
            finite.
    """
    if n_clusters > min(settings.batch_size, len(data.samples)):
        raise UserError(f"{n_clusters} clusters need as many samples, in all and in a batch")
    training = prepare(session, backbone, data, n_clusters, side=_NAME, cache=cache)
    model, view = training.trained, resized_view(backbone.spec, training.data.view, settings.crop)
    own = TrainingData(training.data.samples, view)
    steps = -(-len(own.samples) // min(settings.batch_size, len(own.samples)))
    loop = Loop(session, _NAME, model, _optimise(model, settings), own, settings.epochs * steps)
    for epoch in range(settings.epochs):
        labels = _cluster(session, model, own, settings, epoch)
        _forget_prototypes(model, session.runtime.seed, epoch)
        # Each batch holds equally many samples of every cluster that is not empty.
        filled = np.unique(labels, return_inverse=True)[1]
        sampler = DomainBalancedSampler(filled, settings.batch_size, session.runtime.seed)
        targets = torch.from_numpy(labels).to(session.runtime.device)
        for batch in loop.epoch(sampler):
            logits = loop.forward(batch.inputs).logits
            loop.update(pseudo_labels=functional.cross_entropy(logits, targets[batch.index]))
    labels = _cluster(session, model, own, settings, settings.epochs)
    loop.finish(functional.one_hot(torch.from_numpy(labels), n_clusters).float())
    return Clustering(labels, loop.seconds, loop.images_seen, training.model.eval())


def _cluster(
    session: Session, model: ClusteringModel, data: TrainingData, settings: DeepClusterSettings, epoch: int
) -> NDArray[np.int64]:
    """Cluster the current features, from a start of this epoch's own."""
    runtime, batch_size = session.runtime, session.config.prediction_batch_size
    features = encode(model, data.samples, data.view, runtime, batch_size)
    points = functional.normalize(whiten(features, settings.principal_components))
    rng = np.random.default_rng(seeds_of(runtime.seed, _NAME, "k-means", epoch))
    labels: NDArray[np.int64] = kmeans(points, model.n_clusters, rng, settings.iterations).cpu().numpy()
    return labels


@torch.no_grad()
def _forget_prototypes(model: ClusteringModel, seed: int, epoch: int) -> None:
    """Start the last layer anew, for the clusters of two epochs have nothing to do with each other."""
    generator = generator_of(seeds_of(seed, _NAME, "prototypes", epoch))
    model.prototypes.copy_(torch.empty(model.prototypes.shape).normal_(0, 0.01, generator=generator))


def _optimise(model: ClusteringModel, settings: DeepClusterSettings) -> torch.optim.Optimizer:
    """SGD; without momentum for the last layer, which would remember what is to be forgotten."""
    body = [weight for weight in model.parameters() if weight is not model.prototypes]
    groups: list[dict[str, Any]] = [
        {"params": body, "momentum": settings.momentum},
        {"params": [model.prototypes]},
    ]
    return torch.optim.SGD(groups, lr=settings.learning_rate, weight_decay=settings.weight_decay)
