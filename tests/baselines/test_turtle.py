"""Tests of TURTLE: its classifier, and what its labels are rewarded for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from ucds.baselines.settings import TURTLESettings
from ucds.baselines.turtle import cluster_by_turtle, fit_classifier, random_layer
from ucds.training.runtime import Runtime
from ucds.training.session import Session


def test_defaults_are_the_authors() -> None:
    settings = TURTLESettings()
    assert (settings.steps, settings.inner_steps, settings.batch_size) == (6000, 10, 10_000)
    assert (settings.entropy_weight, settings.learning_rate, settings.inner_learning_rate) == (10, 1e-3, 1e-3)


def test_the_first_step_of_the_classifier_is_adams() -> None:
    """Adam's first step moves every weight by the learning rate against the sign of its gradient."""
    generator = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(9, 5, generator=generator), torch.eye(3).repeat(3, 1)
    layer = random_layer(5, 3, generator)
    before = layer.weight.detach().clone()
    (slope,) = torch.autograd.grad(functional.cross_entropy(layer(inputs), labels), layer.weight)
    fit_classifier(layer, inputs, labels, TURTLESettings(inner_steps=1, inner_learning_rate=0.01))
    torch.testing.assert_close(layer.weight.detach(), before - 0.01 * slope.sign(), atol=1e-5, rtol=0)


def test_layers_start_as_pytorchs_do() -> None:
    layer = random_layer(400, 50, torch.Generator().manual_seed(0))
    assert layer.weight.abs().max().item() == pytest.approx(1 / 20, rel=0.01)
    assert layer.bias.abs().max().item() <= 1 / 20


@pytest.mark.filterwarnings("ignore:turtle.* (empty|collapsed):ucds.errors.UcdsWarning")
def test_the_entropy_keeps_clusters_in_use(target: Any) -> None:
    """Without it, a cluster for most samples is learned best; with it, all four have a quarter."""
    sizes = {}
    for weight in (0.0, 10.0):
        settings = TURTLESettings(
            steps=30, learning_rate=0.1, inner_learning_rate=0.03, inner_steps=5, entropy_weight=weight
        )
        session = Session(Runtime(accelerator="cpu", seed=0), settings)
        labels = cluster_by_turtle(session, target.samples, 4).labels
        sizes[weight] = np.bincount(labels, minlength=4).max()
    assert sizes[10.0] == 20
    assert sizes[0.0] >= 40
