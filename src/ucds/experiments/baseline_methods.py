"""The baselines in a benchmark: which part of a task each one sees, and from which encoder it starts.

Code of a baseline is imported when it is run, so that the paper's methods need none of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from torch import nn

from ucds.backbones import Backbone
from ucds.baselines.kmeans import frozen_kmeans
from ucds.baselines.settings import ACIDSSettings, DeepClusterSettings, IICSettings, KMeansSettings
from ucds.config import ModelSettings
from ucds.experiments.pipeline import Outcome, Pipeline

if TYPE_CHECKING:
    from ucds.baselines.clustering import Clustering

S = TypeVar("S", bound=ModelSettings)


def kmeans(pipeline: Pipeline) -> Outcome:
    """Cluster frozen features of the target by k-means."""
    features, options = pipeline.target_vectors(), pipeline.options
    start, restarts = time.monotonic(), options.settings_of(KMeansSettings).restarts
    labels = frozen_kmeans(features.samples, pipeline.task.n_clusters, options.seed, restarts=restarts)
    return Outcome("kmeans", labels, time.monotonic() - start, (), None, features)


def deepcluster(from_scratch: bool) -> Callable[[Pipeline], Outcome]:
    """Make DeepCluster on the target alone, from a pre-trained encoder or, as in its paper, from scratch."""

    def run(pipeline: Pipeline) -> Outcome:
        from ucds.baselines.deepcluster import cluster_by_deepcluster

        task, options = pipeline.task, pipeline.options
        backbone, settings = _start(pipeline, DeepClusterSettings, task.backbone, from_scratch)
        session = options.session(settings)
        found = cluster_by_deepcluster(session, backbone, task.target, task.n_clusters, cache=options.cache)
        return _outcome("deepcluster", from_scratch, found, pipeline)

    return run


def iic(from_scratch: bool) -> Callable[[Pipeline], Outcome]:
    """Make IIC on the target alone, from a pre-trained encoder or, as in its paper, from scratch."""

    def run(pipeline: Pipeline) -> Outcome:
        from ucds.baselines.iic import cluster_by_iic

        task, options = pipeline.task, pipeline.options
        backbone, settings = _start(pipeline, IICSettings, task.backbone, from_scratch)
        session = options.session(settings)
        found = cluster_by_iic(session, backbone, task.target, task.n_clusters, cache=options.cache)
        return _outcome("iic", from_scratch, found, pipeline)

    return run


def acids(from_scratch: bool) -> Callable[[Pipeline], Outcome]:
    """Make ACIDS, whose target model starts from the source model; see :func:`deepcluster`."""

    def run(pipeline: Pipeline) -> Outcome:
        from ucds.baselines.acids import adapt_acids, learn_acids

        task, options = pipeline.task, pipeline.options
        backbone, settings = _start(pipeline, ACIDSSettings, task.make_source_backbone, from_scratch)
        source = learn_acids(
            options.session(settings), backbone, task.source, task.n_clusters, cache=options.cache
        )
        # As trained: of its two heads of several sub-heads, one sub-head is left in the end.
        trained = nn.ModuleList([source.networks.whole.encoder, source.networks.heads])
        target = task.target if from_scratch else task.seen_by_source
        found = adapt_acids(options.session(settings), source, target, cache=options.cache)
        return replace(_outcome("acids", from_scratch, found, pipeline), parameters=_count(trained))

    return run


def _start(
    pipeline: Pipeline, kind: type[S], make_backbone: Callable[[], Backbone], from_scratch: bool
) -> tuple[Backbone, S]:
    """Make the encoder that a baseline starts from, and its settings: a random encoder is always trained."""
    settings = pipeline.options.settings_of(kind)
    if not from_scratch:
        return make_backbone(), settings
    from ucds.baselines.sobel import sobel_backbone

    return sobel_backbone(seed=pipeline.options.seed), settings.model_copy(update={"tune": "full"})


def _outcome(name: str, from_scratch: bool, found: Clustering, pipeline: Pipeline) -> Outcome:
    method = f"{name}-original" if from_scratch else name
    data, parameters = pipeline.task.target, _count(found.model)
    return Outcome(method, found.labels, found.seconds, (), None, data, parameters, found.images_seen)


def _count(network: nn.Module) -> int:
    return sum(weight.numel() for weight in network.parameters())
