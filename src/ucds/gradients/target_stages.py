"""Stages 2 and 3 of PCD on the target: distil labels while clustering, then refine alone (Algorithm 1)."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch

from ucds.config import PCDSettings, Settings
from ucds.data.dataset import Dataset
from ucds.data.samples import Samples
from ucds.encoders.encoder import Encoder
from ucds.errors import InputError
from ucds.gradients.pcd_loss import PCDLoss, cosine_momentum, place_targets, smooth_labels
from ucds.gradients.prepare import Learning, conclude, prepare
from ucds.gradients.session import Session
from ucds.gradients.stage import Stage
from ucds.labels.cluster_labels import ClusterLabels
from ucds.networks.model import ClusteringModel
from ucds.training.prepare import Training, draw_dataset
from ucds.training.results import StageResult
from ucds.training.work import Work

_USE = "get targets and choose the model; only the last stage sees all"


def cluster_target(
    session: Session[PCDSettings], model: ClusteringModel, data: Dataset, labels: ClusterLabels
) -> StageResult:
    """Train ``model`` in place on target samples, guided by the provider's labels.

    The paper has a label for every sample. Here some samples may lack one, because queries have a price. Such
    samples take part in the clustering terms from the first step on, and in distillation once the temporal
    ensemble has given them a target, a tenth of the stage later. Until then the distillation term is the mean
    over the samples of the batch that have a target: in a mean over the whole batch, a few labels would have
    too little weight for the model to keep the provider's cluster numbers.
    """
    if labels.n_clusters != model.n_clusters:
        raise InputError(
            f"the labels have {labels.n_clusters} clusters, but the model has {model.n_clusters}"
        )
    rows = labels.rows_in(data.samples.ids)
    settings = session.settings
    stage = Stage(session, "cluster-target", model, data, epochs=settings.clustering_epochs)
    device = session.runtime.device
    # Line 1: y^ are the smoothed labels at first, and zeros for samples that have none.
    hard, known = torch.tensor(labels.labels, device=device), torch.tensor(rows, device=device)
    smooth = smooth_labels(hard, labels.n_clusters, settings.label_smoothing)
    targets = place_targets(smooth, known, len(data.samples))
    loss = PCDLoss(stage.counts, labels.n_clusters, settings, targets=targets, device=device)
    for step in stage.steps(loss):  # line 2: a mini-batch of target data
        # Line 3: the temporal ensemble, over the whole target set ten times a stage.
        if step.predictions is not None:
            loss.update_targets(step.predictions)
        features, logits = stage.forward(step.inputs)
        # Eq. 2 and 1, as in stage 1, on the one target domain.
        loss.update_proportions(logits, cosine_momentum(settings.target_proportion_momentum, step.progress))
        transport, mixed = loss.transport(features, model.prototypes), stage.forward_mixed(step)
        # Line 4: distillation and the clustering loss of stage 1, Eq. 4.
        stage.update(**loss.terms(transport, logits, mixed=mixed, index=step.index))
    return stage.result()


def refine_target(
    session: Session[PCDSettings], model: ClusteringModel, data: Dataset, evaluation: Samples | None = None
) -> StageResult:
    """Train ``model`` in place so that target samples lie close to the prototypes.

    Neither the provider's labels nor CutMix are used: mixed targets would keep predictions uncertain.
    The proportions start from uniform again, as the paper hands over only the model to this stage: the one
    after stage 2, or a new one for target training only (TO). It is selected by its predictions of the
    samples of ``evaluation``, or of all.
    """
    settings = session.settings
    epochs = settings.refinement_epochs
    stage = Stage(session, "refine-target", model, data, epochs=epochs, evaluation=evaluation)
    loss = PCDLoss(stage.counts, model.n_clusters, settings, device=session.runtime.device)
    for step in stage.steps(loss):  # line 2: a mini-batch of target data
        features, logits = stage.forward(step.inputs)
        # Line 3, Eq. 2.
        loss.update_proportions(logits, cosine_momentum(settings.target_proportion_momentum, step.progress))
        # Line 4, Eq. 1.
        transport = loss.transport(features, model.prototypes)
        # Line 5: transport and mutual information.
        stage.update(**loss.terms(transport, logits))
    return stage.result()


def learn_target_model(
    session: Session[PCDSettings],
    encoder: Encoder,
    data: Dataset,
    n_clusters: int,
    labels: ClusterLabels | None,
) -> Learning:
    """Build a model and train it by stages 2 and 3; without labels by stage 3 only (the paper's TO).

    Stage 2 keeps a target for each sample, and predicts all samples ten times. It uses at most
    ``most_samples``, labelled ones first. Stage 3 draws its batches from all samples. Arguments and errors
    are those of :func:`ucds.target.train.fit_target`.
    """
    learning = prepare(session, encoder, data, n_clusters, side="target")
    labelled = np.empty(0, np.int64) if labels is None else labels.rows_in(data.samples.ids)
    drawn, positions = draw_dataset(session, learning.data, first=(labelled,), use=_USE)
    if labels is not None:
        known = labels.take(np.isin(labelled, positions))
        cluster_target(session, learning.trained, drawn, known)
    refine_target(session, learning.trained, learning.data, drawn.samples)
    return learning


def fit_target_by_pcd(
    work: Work[Settings], encoder: Encoder, data: Dataset, n_clusters: int, labels: ClusterLabels | None
) -> Training:
    """Learn a clustering model by stages 2 and 3, see :func:`ucds.target.train.fit_target`."""
    session = cast("Session[PCDSettings]", work)
    return conclude(session, learn_target_model(session, encoder, data, n_clusters, labels))
