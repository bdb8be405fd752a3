"""Stage 1: learn a clustering model from several unlabelled source domains (Algorithm 1, part 1)."""

from __future__ import annotations

from ucds.data.samples import Samples
from ucds.losses import mutual_information_loss
from ucds.models import ClusteringModel
from ucds.proportions import cosine_momentum
from ucds.training.objective import PrototypeTransport, mixing_loss
from ucds.training.session import Session, StageResult
from ucds.training.stage import Stage, TrainingData


def learn_source(
    session: Session, model: ClusteringModel, data: TrainingData, validation: Samples
) -> StageResult:
    """Train ``model`` in place on all source domains together.

    Prototypes are shared by the domains, proportions are each domain's own.

    Args:
        session: the run, with the settings.
        model: pre-trained encoder with new bottleneck and prototypes.
        data: source samples; ``samples.domain`` tells which domain each one comes from.
        validation: further source samples, to choose the model with.
    """
    config = session.config
    transport = PrototypeTransport(
        len(data.samples.domain_names), model.n_clusters, config, session.runtime.device
    )
    stage = Stage(
        session,
        "learn-source",
        model,
        data,
        transport,
        epochs=config.source_epochs,
        evaluation=validation,
    )
    counts, weights = stage.counts, stage.weights
    for step in stage.steps():  # line 2: a mini-batch, split evenly over the domains
        features, logits = stage.forward(step.inputs)
        # Line 3, Eq. 2.
        momentum = cosine_momentum(config.source_proportion_momentum, step.progress)
        transport.update_proportions(logits, counts, weights, momentum)
        # Line 4, Eq. 1: the plan is held fixed, the gradient flows through the cost.
        transport_term = transport.loss(features, model.prototypes, counts, weights)
        mixing_term = mixing_loss(stage, step, logits)
        # Line 5, Eq. 4.
        stage.update(
            transport=config.transport_weight * transport_term,
            information=config.information_weight * mutual_information_loss(logits),
            mixing=config.mixing_weight * mixing_term,
        )
    return stage.result()
