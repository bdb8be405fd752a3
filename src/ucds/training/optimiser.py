"""The optimiser and learning-rate schedule that all three stages share."""

from __future__ import annotations

import torch
from torch.optim import Optimizer

from ucds.config import Config
from ucds.models import ClusteringModel


def build_optimiser(model: ClusteringModel, config: Config) -> Optimizer:
    """SGD with one learning rate for pre-trained layers and a larger one for new layers."""
    groups = model.parameter_groups()
    rated = [(groups.backbone, config.learning_rate), (groups.new, config.new_layer_learning_rate)]
    return torch.optim.SGD(
        [{"params": params, "lr": rate, "initial_lr": rate} for params, rate in rated if params],
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        nesterov=config.nesterov and config.momentum > 0,
    )


def set_learning_rate(optimiser: Optimizer, progress: float, config: Config) -> None:
    """Apply ``eta = eta_0 (1 + a p)^-b`` to every group; ``progress`` is the share of the stage done."""
    factor = (1.0 + config.decay_rate * progress) ** -config.decay_power
    for group in optimiser.param_groups:
        group["lr"] = group["initial_lr"] * factor
