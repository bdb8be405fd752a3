"""The target owner's training run, from samples and labels to a model."""

from __future__ import annotations

import warnings
from pathlib import Path

from ucds.backbones import Backbone
from ucds.errors import UcdsWarning
from ucds.labels.cluster_labels import ClusterLabels
from ucds.models import ClusteringModel
from ucds.target.cluster import cluster_target
from ucds.target.refine import refine_target
from ucds.training.prepare import prepare
from ucds.training.session import Session
from ucds.training.stage import TrainingData


def train_target(
    session: Session,
    backbone: Backbone,
    data: TrainingData,
    labels: ClusterLabels,
    *,
    cache: Path | None = None,
    refine: bool = True,
) -> ClusteringModel:
    """Train a target model: distil and cluster (stage 2), then refine alone (stage 3).

    Args:
        session: the run; afterwards it holds the results of the stages.
        backbone: pre-trained encoder, of any architecture.
        data: target samples and views.
        labels: the provider's answers; they may be in any order, and some samples may have none.
        cache: folder for frozen features, with ``tune = "head"``.
        refine: whether stage 3 follows; without it the method is "adaptation only" (AO).

    Returns:
        The whole model, in evaluation mode.

    Raises:
        UserError: no sample has a label.

    Warns:
        UcdsWarning: only some have one.
    """
    labels = labels.align(data.samples.ids)
    if len(labels.ids) < len(data.samples):
        message = f"{len(labels.ids):,} of {len(data.samples):,} samples have a label of the provider"
        warnings.warn(f"{message}; the others are clustered along with them", UcdsWarning, stacklevel=2)
    training = prepare(session, backbone, data, labels.n_clusters, side="target", cache=cache)
    cluster_target(session, training.trained, training.data, labels)
    if refine:
        refine_target(session, training.trained, training.data)
    session.save_evaluations(data.samples)
    return training.model.eval()


def train_target_alone(
    session: Session, backbone: Backbone, data: TrainingData, n_clusters: int, *, cache: Path | None = None
) -> ClusteringModel:
    """Train a target model that asks nobody: stage 3 on a fresh model (TO).

    Args:
        session: the run; afterwards it holds the result of the stage.
        backbone: pre-trained encoder.
        data: target samples and views.
        n_clusters: the paper's ``K``.
        cache: folder for frozen features, with ``tune = "head"``.

    Returns:
        The whole model, in evaluation mode.
    """
    training = prepare(session, backbone, data, n_clusters, side="target", cache=cache)
    refine_target(session, training.trained, training.data)
    session.save_evaluations(data.samples)
    return training.model.eval()
