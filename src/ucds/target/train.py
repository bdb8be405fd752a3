"""The target owner's training run, from samples and labels to a model."""

from __future__ import annotations

import warnings
from pathlib import Path

from ucds.backbones import Backbone
from ucds.errors import UcdsWarning, UserError
from ucds.labels.cluster_labels import ClusterLabels
from ucds.models import ClusteringModel
from ucds.target.cluster import cluster_target
from ucds.target.recipe import train_target_by_consensus
from ucds.target.refine import refine_target
from ucds.training.prepare import prepare
from ucds.training.session import Session
from ucds.training.stage import TrainingData


def train_target(
    session: Session,
    backbone: Backbone,
    data: TrainingData,
    labels: ClusterLabels | None,
    *,
    n_clusters: int | None = None,
    cache: Path | None = None,
) -> ClusteringModel:
    """Train a target model by the recipe of the configuration.

    The paper's distils the labels while clustering (stage 2), then refines alone (stage 3); without labels it
    only refines (its TO).

    Args:
        session: the run; afterwards it holds the results of the stages.
        backbone: pre-trained encoder, of any architecture.
        data: target samples and views.
        labels: the provider's answers; they may be in any order, and some samples may have none. ``None``
            clusters the samples alone.
        n_clusters: the paper's ``K``; the provider's if ``None``.
        cache: folder for frozen features, with ``tune = "head"``.

    Returns:
        The whole model, in evaluation mode.

    Raises:
        UserError: no sample has a label, nothing says how many clusters, or the recipe cannot take labels of
            another number of clusters.

    Warns:
        UcdsWarning: only some samples have a label.
    """
    if labels is not None:
        labels = labels.align(data.samples.ids)
        n_clusters = n_clusters or labels.n_clusters
        _tell_missing(labels, len(data.samples))
    if n_clusters is None:
        raise UserError("without a provider's labels, say how many clusters there are to be")
    if session.config.recipe == "ucds":
        return train_target_by_consensus(session, backbone, data, n_clusters, labels, cache=cache)
    training = prepare(session, backbone, data, n_clusters, side="target", cache=cache)
    if labels is not None:
        cluster_target(session, training.trained, training.data, labels)
    refine_target(session, training.trained, training.data)
    session.save_evaluations(data.samples)
    return training.model.eval()


def _tell_missing(labels: ClusterLabels, n_samples: int) -> None:
    if len(labels.ids) < n_samples:
        message = f"{len(labels.ids):,} of {n_samples:,} samples have a label of the provider"
        warnings.warn(f"{message}; the others are clustered along with them", UcdsWarning, stacklevel=3)
