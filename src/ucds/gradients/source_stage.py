"""Stage 1 of PCD: learn a clustering model from several unlabelled source domains (Algorithm 1, part 1)."""

from __future__ import annotations

from typing import cast

from ucds.config import PCDSettings, Settings
from ucds.data.dataset import Dataset
from ucds.data.samples import Samples, split_validation
from ucds.encoders.encoder import Encoder
from ucds.gradients.pcd_loss import PCDLoss, cosine_momentum
from ucds.gradients.prepare import Learning, conclude, prepare
from ucds.gradients.session import Session
from ucds.gradients.stage import Stage
from ucds.networks.model import ClusteringModel
from ucds.training.prepare import Training, draw_dataset
from ucds.training.results import StageResult
from ucds.training.work import Work


def learn_source(
    session: Session[PCDSettings], model: ClusteringModel, data: Dataset, validation: Samples
) -> StageResult:
    """Train ``model`` in place on all source domains together.

    Prototypes are shared by the domains, proportions are each domain's own. The model is chosen on further
    samples, the ``validation``.
    """
    settings = session.settings
    epochs = settings.source_epochs
    stage = Stage(session, "learn-source", model, data, epochs=epochs, evaluation=validation)
    loss = PCDLoss(stage.counts, model.n_clusters, settings, device=session.runtime.device)
    for step in stage.steps(loss):  # line 2: a mini-batch, split evenly over the domains
        features, logits = stage.forward(step.inputs)
        # Line 3, Eq. 2.
        loss.update_proportions(logits, cosine_momentum(settings.source_proportion_momentum, step.progress))
        # Line 4, Eq. 1: the plan is held fixed, the gradient flows through the cost.
        transport = loss.transport(features, model.prototypes)
        # Line 5, Eq. 4: transport, mutual information and CutMix.
        stage.update(**loss.terms(transport, logits, mixed=stage.forward_mixed(step)))
    return stage.result()


def learn_source_model(
    session: Session[PCDSettings], encoder: Encoder, data: Dataset, n_clusters: int
) -> Learning:
    """Build a model and train it by stage 1, which keeps part of the samples to choose the model on.

    If a domain has more than ``most_samples``, that many are used to choose the model, and as many make an
    epoch. Arguments are those of :func:`ucds.source.train.fit_source`.
    """
    learning = prepare(session, encoder, data, n_clusters, side="source")
    train = judging = learning.data
    if (fraction := session.settings.validation_fraction) > 0:
        part, kept = split_validation(train.samples, fraction, session.seed)
        train, judging = Dataset(part, train.view), Dataset(kept, train.view)
    judging, _ = draw_dataset(session, judging, use="choose the model")
    learn_source(session, learning.trained, train, judging.samples)
    return learning


def fit_source_by_pcd(work: Work[Settings], encoder: Encoder, data: Dataset, n_clusters: int) -> Training:
    """Learn a clustering model by stage 1; arguments are those of :func:`ucds.source.train.fit_source`."""
    session = cast("Session[PCDSettings]", work)
    return conclude(session, learn_source_model(session, encoder, data, n_clusters))
