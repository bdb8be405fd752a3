"""The baselines in a benchmark: the part of a task that each sees, and the encoder that it starts from."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from ucds.backbones import Backbone
from ucds.baselines.acids import adapt_acids, learn_acids
from ucds.baselines.clustering import Clustering
from ucds.baselines.kmeans import frozen_kmeans
from ucds.baselines.settings import ACIDSSettings, KMeansSettings, PairSettings
from ucds.baselines.sobel import sobel_backbone
from ucds.baselines.sub_heads import with_best_rate
from ucds.config import ModelSettings
from ucds.data.dataset import Dataset
from ucds.experiments.pipeline import Outcome, Pipeline
from ucds.math.arrays import FloatArray
from ucds.math.spaces import unit_rows

S = TypeVar("S", bound=ModelSettings)


def kmeans(pipeline: Pipeline) -> Outcome:
    """Cluster frozen features of the target by k-means."""
    features, options = pipeline.target_vectors(), pipeline.options
    start, restarts = time.monotonic(), options.settings_of(KMeansSettings).restarts
    labels = frozen_kmeans(features.samples, pipeline.task.n_clusters, options.seed, restarts=restarts)
    return Outcome(labels, time.monotonic() - start, features)


def plain(cluster: Callable[[FloatArray, int, int], NDArray[np.int64]]) -> Callable[[Pipeline], Outcome]:
    """Make the method that clusters frozen features of the target by a function of vectors, K and seed."""

    def run(pipeline: Pipeline) -> Outcome:
        features = pipeline.target_vectors()
        vectors = unit_rows(features.samples.read(np.arange(len(features.samples))).numpy())
        start = time.monotonic()
        labels = cluster(vectors, pipeline.task.n_clusters, pipeline.options.seed)
        return Outcome(labels, time.monotonic() - start, features)

    return run


def on_target(
    kind: type[ModelSettings], cluster: Callable[..., Clustering], *, from_scratch: bool = False
) -> Callable[[Pipeline], Outcome]:
    """Make the method that clusters the target alone by a baseline.

    Args:
        kind: class of the baseline's settings.
        cluster: function of the baseline, such as :func:`ucds.baselines.iic.cluster_by_iic`.
        from_scratch: start from a random encoder, as in the baseline's paper, in place of the client's.
    """

    def run(pipeline: Pipeline) -> Outcome:
        task, options = pipeline.task, pipeline.options

        def train(settings: ModelSettings) -> Clustering:
            backbone = _backbone(pipeline, task.backbone, from_scratch)
            session = options.session(settings)
            return cluster(session, backbone, task.target, task.n_clusters, cache=options.cache)

        settings = _settings(pipeline, kind, from_scratch)
        found = with_best_rate(settings, train) if isinstance(settings, PairSettings) else train(settings)
        return _outcome(found, found.model, task.target)

    return run


def acids(pipeline: Pipeline, *, from_scratch: bool = False) -> Outcome:
    """Cluster by ACIDS, whose target model starts from the source model; see :func:`on_target`."""
    task, options = pipeline.task, pipeline.options
    target = task.target if from_scratch else task.seen_by_source
    trained = nn.ModuleList()

    def train(settings: ACIDSSettings) -> Clustering:
        nonlocal trained
        backbone, session = (
            _backbone(pipeline, task.make_source_backbone, from_scratch),
            options.session(settings),
        )
        source = learn_acids(session, backbone, task.source, task.n_clusters, cache=options.cache)
        # Counted as trained: of its two heads of several sub-heads, one sub-head is left in the end.
        trained = nn.ModuleList([source.networks.whole.encoder, source.networks.heads])
        return adapt_acids(options.session(settings), source, target, cache=options.cache)

    found = with_best_rate(_settings(pipeline, ACIDSSettings, from_scratch), train)
    return _outcome(found, trained, task.target)


def _settings(pipeline: Pipeline, kind: type[S], from_scratch: bool) -> S:
    """Return the settings of a baseline; a random encoder is always trained."""
    settings = pipeline.options.settings_of(kind)
    return settings.model_copy(update={"tune": "full"}) if from_scratch else settings


def _backbone(pipeline: Pipeline, make_backbone: Callable[[], Backbone], from_scratch: bool) -> Backbone:
    """Make the encoder that a baseline starts from, anew at every call."""
    return sobel_backbone(seed=pipeline.options.seed) if from_scratch else make_backbone()


def _outcome(found: Clustering, trained: nn.Module, data: Dataset) -> Outcome:
    parameters = sum(weight.numel() for weight in trained.parameters())
    return Outcome(found.labels, found.seconds, data, parameters=parameters, images=found.images_seen)
