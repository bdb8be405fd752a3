"""Gives a model the clusters that were found in its frozen features, on either side of the wall."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ucds.backbones import Backbone
from ucds.data.samples import Samples
from ucds.errors import UserError
from ucds.losses import soft_cross_entropy
from ucds.models import ClusteringModel
from ucds.spaces import FloatArray, unit_rows
from ucds.training.features import frozen_features
from ucds.training.health import assess
from ucds.training.objective import mixing_loss
from ucds.training.prediction import predict
from ucds.training.prepare import Training
from ucds.training.session import Session, StageResult
from ucds.training.stage import Stage, TrainingData, make_sampler

LOGIT_SCALE = 20.0
"""Logits are so many times the projection on a unit prototype; it orders nothing, and sets how certain a
model is before it is fitted."""


@dataclass(frozen=True)
class Found:
    """Clusters found in the frozen features of some samples.

    Attributes:
        axes: ``(d, w)`` directions in which the model is to look at unit features.
        mean: ``(d,)`` that it is to see them from.
        prototypes: ``(w, K)`` unit columns.
        proportions: ``(D, K)`` sizes of the clusters in each domain.
        assignments: ``(n, K)``, rows that sum to 1.
        seconds: that it took.
    """

    axes: FloatArray
    mean: FloatArray
    prototypes: FloatArray
    proportions: FloatArray
    assignments: FloatArray
    seconds: float


def refuse_unfit(session: Session, samples: Samples, n_clusters: int) -> None:
    """Make sure, before any work, that samples can be clustered and a model fitted to them.

    Raises:
        UserError: there are fewer samples than clusters or than a batch needs.
    """
    make_sampler(samples, session)
    if len(samples) < n_clusters:
        raise UserError(f"{len(samples)} samples cannot form {n_clusters} clusters")


def read_features(
    session: Session, backbone: Backbone, training: Training, data: TrainingData, cache: Path | None
) -> FloatArray:
    """Frozen features ``(n, d)`` of all samples."""
    seen = training.data
    if session.config.tune == "full":
        batch_size = session.config.prediction_batch_size
        seen = frozen_features(backbone, data, session.runtime, cache, batch_size=batch_size)
    vectors: FloatArray = seen.samples.read(np.arange(len(seen.samples))).numpy()
    return vectors


def start_model(session: Session, name: str, training: Training, found: Found, vectors: FloatArray) -> None:
    """Set the model's head by what was found, and keep the finding as the result of a stage.

    Args:
        session: the run.
        name: of the stage.
        training: the model.
        found: what was found.
        vectors: features ``(n, d)`` in which it was found.
    """
    projected = (unit_rows(vectors) - found.mean) @ found.axes
    device, trained = session.runtime.device, training.trained
    tensors = (found.axes, found.mean, projected.var(0), LOGIT_SCALE * found.prototypes)
    trained.set_head(*(torch.from_numpy(np.asarray(t, dtype=np.float32)).to(device) for t in tensors))
    data, config = training.data, session.config
    probabilities = predict(trained, data.samples, data.view, session.runtime, config.prediction_batch_size)
    state = {
        "proportions": torch.from_numpy(found.proportions),
        "assignments": torch.from_numpy(found.assignments),
    }
    result = StageResult(name, [assess(probabilities, 0)], 0, state, found.seconds)
    session.conclude(result, trained.state_dict())


class Assignments:
    """The state of the fit: what the model is to say, and how large clusters are.

    Args:
        targets: ``(N, K)`` rows that sum to 1.
        proportions: ``(D, K)`` of each domain.
    """

    warning: str | None = None

    def __init__(self, targets: Tensor, proportions: Tensor) -> None:
        self.targets, self.proportions = targets, proportions

    def tensors(self) -> dict[str, Tensor]:
        """State by name, for checkpoints."""
        return {"proportions": self.proportions, "targets": self.targets}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take over a state that :meth:`tensors` gave before."""
        self.proportions = tensors["proportions"].to(self.proportions)
        self.targets = tensors["targets"].to(self.targets)


def fit_assignments(
    session: Session, name: str, model: ClusteringModel, data: TrainingData, targets: Tensor
) -> StageResult:
    """Train ``model`` in place to give the assignments found for the samples.

    The pooled samples may be of several domains. CutMix (mix-up for vectors) takes part with its usual
    weight where the whole encoder is trained, which a few thousand fixed targets would overfit.

    Args:
        session: the run, with the settings.
        name: of the stage.
        model: with a start from :meth:`ucds.models.ClusteringModel.set_head`.
        data: samples to train on.
        targets: ``(N, K)``, rows that sum to 1.
    """
    config, device = session.config, session.runtime.device
    domain = torch.from_numpy(data.samples.domain)
    means = [targets[domain == d].mean(0) for d in range(len(data.samples.domain_names))]
    state = Assignments(targets.to(device), torch.stack(means).to(device))
    stage = Stage(session, name, model, data, state, epochs=config.fitting_epochs)
    for step in stage.steps():
        _, logits = stage.forward(step.inputs)
        terms = {"assignment": soft_cross_entropy(logits, state.targets[step.index])}
        if config.tune == "full":
            terms["mixing"] = config.mixing_weight * mixing_loss(stage, step, logits)
        stage.update(**terms)
    return stage.result()
