"""Builds the model of a run and decides what of it is trained, on which data."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ucds.backbones import Backbone
from ucds.models import ClusteringModel
from ucds.training.features import frozen_features
from ucds.training.session import Session
from ucds.training.stage import TrainingData


@dataclass(frozen=True)
class Training:
    """A model, and what the stages are to see of it.

    Attributes:
        model: the whole model, to be saved and used.
        trained: what the stages train: the model itself, or its head, which shares its parameters.
        data: inputs of ``trained``.
    """

    model: ClusteringModel
    trained: ClusteringModel
    data: TrainingData


def prepare(
    session: Session,
    backbone: Backbone,
    data: TrainingData,
    n_clusters: int,
    *,
    side: str,
    cache: Path | None,
    unit_features: bool = False,
) -> Training:
    """Build a model with new bottleneck and prototypes for a run on ``data``.

    With ``tune = "head"`` the backbone stays frozen: its features are computed once and cached, and the
    stages see only them.

    Args:
        session: the run.
        backbone: the pre-trained encoder, without bottleneck.
        data: samples and views that the backbone takes.
        n_clusters: the paper's ``K``.
        side: name of the side of the wall; two sides with the same seed must not start alike.
        cache: folder for frozen features; ``None`` keeps them in memory.
        unit_features: whether the backbone's features are brought to unit length.
    """
    seeds = np.random.SeedSequence([session.runtime.seed, zlib.crc32(side.encode())])
    generator = torch.Generator().manual_seed(int(seeds.generate_state(1)[0]))
    model = ClusteringModel(
        backbone,
        n_clusters,
        bottleneck_width=session.config.bottleneck_width,
        unit_features=unit_features,
        generator=generator,
    )
    model.to(session.runtime.device)
    if session.config.tune == "full":
        return Training(model, model, data)
    features = frozen_features(
        backbone, data, session.runtime, cache, batch_size=session.config.prediction_batch_size
    )
    return Training(model, model.head(), features)
