"""Optimiser and learning-rate schedule of all stages."""

from __future__ import annotations

import torch
from torch.optim import Optimizer

from ucds.config import TrainingSettings
from ucds.models import ClusteringModel


def build_optimiser(model: ClusteringModel, settings: TrainingSettings) -> Optimizer:
    """Make SGD with one learning rate for pre-trained layers and a larger one for new layers."""
    groups = model.parameter_groups()
    rated = [(groups.backbone, settings.learning_rate), (groups.new, settings.new_layer_learning_rate)]
    return torch.optim.SGD(
        [{"params": params, "lr": rate, "initial_lr": rate} for params, rate in rated if params],
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        nesterov=settings.nesterov and settings.momentum > 0,
    )


def set_learning_rate(optimiser: Optimizer, progress: float, settings: TrainingSettings) -> None:
    """Set ``eta = eta_0 (1 + a p)^-b`` in every group, where p is the share of the stage done, in [0, 1]."""
    factor = (1.0 + settings.decay_rate * progress) ** -settings.decay_power
    for group in optimiser.param_groups:
        group["lr"] = group["initial_lr"] * factor
