"""Stage 3: refine the model on target data alone (Algorithm 1, part 3)."""

from __future__ import annotations

from ucds.losses import mutual_information_loss
from ucds.models import ClusteringModel
from ucds.proportions import cosine_momentum
from ucds.training.objective import PrototypeTransport
from ucds.training.session import Session, StageResult
from ucds.training.stage import Stage, TrainingData


def refine_target(session: Session, model: ClusteringModel, data: TrainingData) -> StageResult:
    """Train ``model`` in place so that target samples gather tightly around the prototypes.

    Neither the provider's labels nor CutMix take part: mixed targets would keep predictions unsure.
    The proportions start from uniform again, as the paper hands over only the model to this stage.

    Args:
        session: the run, with the settings.
        model: from stage 2, or fresh for target training only (TO).
        data: target samples, one domain.
    """
    config = session.config
    transport = PrototypeTransport(1, model.n_clusters, config, session.runtime.device)
    stage = Stage(session, "refine-target", model, data, transport, epochs=config.refinement_epochs)
    counts, weights = stage.counts, stage.weights
    for step in stage.steps():  # line 2: a mini-batch of target data
        features, logits = stage.forward(step.inputs)
        # Line 3, Eq. 2.
        momentum = cosine_momentum(config.target_proportion_momentum, step.progress)
        transport.update_proportions(logits, counts, weights, momentum)
        # Line 4, Eq. 1.
        transport_term = transport.loss(features, model.prototypes, counts, weights)
        # Line 5.
        stage.update(
            transport=config.transport_weight * transport_term,
            information=config.information_weight * mutual_information_loss(logits),
        )
    return stage.result()
