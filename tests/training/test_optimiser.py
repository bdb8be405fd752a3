"""Tests of the optimiser: two learning rates, the schedule, and one step by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ucds.backbones import identity_backbone, module_backbone
from ucds.config import PCDSettings
from ucds.models import ClusteringModel
from ucds.training.optimiser import build_optimiser, set_learning_rate

RATES = PCDSettings(learning_rate=0.002, new_layer_learning_rate=0.03)


def model() -> ClusteringModel:
    return ClusteringModel(module_backbone(nn.Linear(5, 4), 4), 3, bottleneck_width=6)


def rates(optimiser: torch.optim.Optimizer) -> list[float]:
    return [group["lr"] for group in optimiser.param_groups]


def test_pretrained_and_new_layers_have_rates_of_their_own() -> None:
    net = model()
    optimiser = build_optimiser(net, RATES)
    backbone, new = optimiser.param_groups
    assert rates(optimiser) == [0.002, 0.03]
    assert {id(p) for p in backbone["params"]} == {id(p) for p in net.encoder.backbone.parameters()}
    others = [*net.encoder.bottleneck.parameters(), net.prototypes]
    assert {id(p) for p in new["params"]} == {id(p) for p in others}


def test_without_a_trainable_backbone_there_is_one_group() -> None:
    frozen = model()
    frozen.encoder.backbone.requires_grad_(False)
    for net in (frozen, model().head(), ClusteringModel(identity_backbone(4), 3)):
        optimiser = build_optimiser(net, RATES)
        assert rates(optimiser) == [0.03]
        assert sum(len(group["params"]) for group in optimiser.param_groups) == 5


@pytest.mark.parametrize(
    ("progress", "factor"),
    [(0.0, 1.0), (0.1, 2**-0.75), (0.5, 6**-0.75), (1.0, 11**-0.75)],
)
def test_the_schedule_is_the_papers(progress: float, factor: float) -> None:
    optimiser = build_optimiser(model(), RATES)
    for _ in range(2):  # from the initial rate, not from the last one
        set_learning_rate(optimiser, progress, RATES)
    assert rates(optimiser) == pytest.approx([0.002 * factor, 0.03 * factor], rel=1e-12)


def test_the_schedule_follows_its_settings() -> None:
    config = PCDSettings(learning_rate=1.0, new_layer_learning_rate=2.0, decay_rate=3.0, decay_power=2.0)
    optimiser = build_optimiser(model(), config)
    set_learning_rate(optimiser, 1 / 3, config)
    assert rates(optimiser) == pytest.approx([0.25, 0.5], rel=1e-12)
    still = PCDSettings(decay_power=0)
    set_learning_rate(optimiser, 0.9, still)
    assert rates(optimiser) == [1.0, 2.0]


def test_momentum_nesterov_and_decay_are_set_in_every_group() -> None:
    for group in build_optimiser(model(), PCDSettings()).param_groups:
        assert (group["momentum"], group["nesterov"], group["weight_decay"]) == (0.9, True, 1e-3)
    for group in build_optimiser(model(), PCDSettings(nesterov=False, weight_decay=0)).param_groups:
        assert (group["nesterov"], group["weight_decay"]) == (False, 0)


def test_no_momentum_means_no_nesterov() -> None:
    assert not build_optimiser(model(), PCDSettings(momentum=0)).param_groups[0]["nesterov"]


def test_two_steps_by_hand() -> None:
    """Nesterov: g' = g + wd w;  v = m v + g';  w = w - eta (g' + m v)."""
    config = PCDSettings(new_layer_learning_rate=0.1, momentum=0.5, weight_decay=0.01)
    net = ClusteringModel(identity_backbone(4), 3)
    optimiser = build_optimiser(net, config)
    weight, velocity = net.prototypes.detach().double().clone(), 0.0
    for progress, slope in ((0.0, 2.0), (0.5, -1.0)):
        optimiser.zero_grad()
        (slope * net.prototypes).sum().backward()
        set_learning_rate(optimiser, progress, config)
        optimiser.step()
        gradient = slope + 0.01 * weight
        velocity = 0.5 * velocity + gradient
        weight = weight - 0.1 * (1 + 10 * progress) ** -0.75 * (gradient + 0.5 * velocity)
    torch.testing.assert_close(net.prototypes.detach().double(), weight, rtol=1e-6, atol=1e-6)
