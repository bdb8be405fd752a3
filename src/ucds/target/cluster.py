"""Stage 2: distil the provider's labels while clustering the target data (Algorithm 1, part 2)."""

from __future__ import annotations

import torch
from torch import Tensor

from ucds.config import Config
from ucds.data.samples import IntArray
from ucds.labels.cluster_labels import ClusterLabels
from ucds.losses import distillation_loss, mutual_information_loss
from ucds.models import ClusteringModel
from ucds.proportions import cosine_momentum
from ucds.pseudo_labels import place_targets, smooth_labels, temporal_ensemble
from ucds.training.objective import PrototypeTransport, mixing_loss
from ucds.training.session import Session, StageResult
from ucds.training.stage import Stage, TrainingData


class TaughtTransport(PrototypeTransport):
    """The transport's state together with the soft targets that the provider's labels grow into.

    Attributes:
        targets: ``(N, K)``, the paper's ``y^``; smoothed provider labels at first, and zeros for samples
            that have none.
    """

    def __init__(
        self, labels: ClusterLabels, rows: IntArray, n_samples: int, config: Config, device: torch.device
    ) -> None:
        super().__init__(1, labels.n_clusters, config, device)
        hard = torch.tensor(labels.labels, device=device)
        smooth = smooth_labels(hard, labels.n_clusters, config.label_smoothing)
        self.targets = place_targets(smooth, torch.tensor(rows, device=device), n_samples)

    def tensors(self) -> dict[str, Tensor]:
        """State by name, for checkpoints."""
        return super().tensors() | {"targets": self.targets}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take over a state that :meth:`tensors` gave before."""
        super().load(tensors)
        self.targets = tensors["targets"].to(self.targets)


def cluster_target(
    session: Session, model: ClusteringModel, data: TrainingData, labels: ClusterLabels
) -> StageResult:
    """Train ``model`` in place on target samples, guided by one integer for each of them.

    The paper has a label for every sample. Here some may lack one, because queries cost something: they
    take part in clustering (transport, information, mixing) from the first step, but in distillation
    only once the temporal ensemble has given them a target, a tenth of the stage later. Until then the
    distillation term is the mean over those samples of the batch that have one. (A mean over the whole
    batch would let few labels drown in the clustering terms: the model would then group the samples but
    not know the provider's clusters again.)

    Args:
        session: the run, with the settings.
        model: pre-trained encoder with new bottleneck and prototypes; any architecture.
        data: target samples, one domain.
        labels: the provider's answers, in the order of the samples; at least one.

    Raises:
        UserError: labels and samples do not match, or labels have another number of clusters.
    """
    rows = labels.check_matches(data.samples.ids, model.n_clusters)
    config = session.config
    taught = TaughtTransport(labels, rows, len(data.samples), config, session.runtime.device)
    stage = Stage(session, "cluster-target", model, data, taught, epochs=config.clustering_epochs)
    counts, weights = stage.counts, stage.weights
    for step in stage.steps():  # line 2: a mini-batch of target data
        # Line 3: the temporal ensemble, over the whole target set ten times a stage.
        if step.predictions is not None:
            taught.targets = temporal_ensemble(taught.targets, step.predictions, config.ensemble_momentum)
        features, logits = stage.forward(step.inputs)
        # Eq. 2 and 1, as in stage 1, on the one target domain.
        momentum = cosine_momentum(config.target_proportion_momentum, step.progress)
        taught.update_proportions(logits, counts, weights, momentum)
        transport_term = taught.loss(features, model.prototypes, counts, weights)
        mixing_term = mixing_loss(stage, step, logits)
        distillation_term = distillation_loss(logits, taught.targets[step.index])
        # Line 4: distillation and the clustering loss of stage 1.
        stage.update(
            distillation=config.distillation_weight * distillation_term,
            transport=config.transport_weight * transport_term,
            information=config.information_weight * mutual_information_loss(logits),
            mixing=config.mixing_weight * mixing_term,
        )
    return stage.result()
