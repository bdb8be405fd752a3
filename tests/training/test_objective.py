"""Tests of the terms that the stages share, against the equations they are made of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ucds.config import PCDSettings
from ucds.math.pcd import sample_weights
from ucds.math.transport import cosine_cost, solve_transport
from ucds.training import objective
from ucds.training.objective import PrototypeTransport
from ucds.training.stage import Stage

CPU = torch.device("cpu")


def batch(n: int, width: int = 6, n_clusters: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, width, generator=generator), torch.randn(width, n_clusters, generator=generator)


def test_domains_of_unequal_size_are_as_if_each_were_alone() -> None:
    """Eq. 1 is a mean over domains; Eq. 2 is each domain's own."""
    features, prototypes = batch(8)
    counts = (5, 3)
    together = PrototypeTransport(2, 4, PCDSettings(transport_tolerance=1e-6), CPU)
    weights = sample_weights(counts)
    together.update_proportions(features @ prototypes, counts, weights, 0.5)
    loss = together.loss(features, prototypes, counts, weights)
    losses, start = [], 0
    for d, count in enumerate(counts):
        rows = features[start : start + count]
        alone = PrototypeTransport(1, 4, PCDSettings(transport_tolerance=1e-6), CPU)
        alone.update_proportions(rows @ prototypes, (count,), sample_weights((count,)), 0.5)
        torch.testing.assert_close(alone.proportions[0], together.proportions[d])
        losses.append(alone.loss(rows, prototypes, (count,), sample_weights((count,))))
        start += count
    torch.testing.assert_close(loss, torch.stack(losses).mean(), rtol=1e-4, atol=1e-5)


def test_update_by_hand() -> None:
    transport = PrototypeTransport(1, 2, PCDSettings(), CPU)  # with uniform proportions
    logits = torch.tensor([[2.0, 0.0], [0.0, 0.0]])
    posterior = torch.tensor([[torch.e**2 / (1 + torch.e**2), 1 / (1 + torch.e**2)], [0.5, 0.5]])
    transport.update_proportions(logits, (2,), sample_weights((2,)), 0.9)
    torch.testing.assert_close(
        transport.proportions[0], 0.9 * torch.full((2,), 0.5) + 0.1 * posterior.mean(0)
    )


def test_the_plan_is_constant_and_the_gradient_flows_through_the_cost() -> None:
    features, prototypes = batch(6)
    prototypes.requires_grad_()
    transport = PrototypeTransport(1, 4, PCDSettings(), CPU)
    weights = sample_weights((6,))
    (gradient,) = torch.autograd.grad(transport.loss(features, prototypes, (6,), weights), prototypes)
    cost = cosine_cost(features, prototypes)
    plan = solve_transport(
        cost.detach()[None], weights, transport.proportions, epsilon=0.01, tolerance=1e-3, max_iterations=100
    ).plan
    (expected,) = torch.autograd.grad((plan[0] * cost).sum(), prototypes)
    torch.testing.assert_close(gradient, expected)


def test_without_weight_nothing_is_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("solved for nothing")

    monkeypatch.setattr(objective, "solve_transport", refuse)
    features, prototypes = batch(6)
    transport = PrototypeTransport(1, 4, PCDSettings(transport_weight=0), CPU)
    assert transport.loss(features, prototypes, (6,), sample_weights((6,))).item() == 0
    with pytest.raises(AssertionError, match="solved"):
        PrototypeTransport(1, 4, PCDSettings(), CPU).loss(features, prototypes, (6,), sample_weights((6,)))


def test_the_settings_reach_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def solve(*args: Any, **options: Any) -> Any:
        seen.update(options)
        return solve_transport(*args, **options)

    monkeypatch.setattr(objective, "solve_transport", solve)
    features, prototypes = batch(6)
    settings = PCDSettings(epsilon=0.07, transport_tolerance=1e-4, transport_max_iterations=31)
    PrototypeTransport(1, 4, settings, CPU).loss(features, prototypes, (6,), sample_weights((6,)))
    assert seen == {"epsilon": 0.07, "tolerance": 1e-4, "max_iterations": 31}


def test_state_survives() -> None:
    transport, other = (PrototypeTransport(2, 4, PCDSettings(), CPU) for _ in range(2))
    transport.update_proportions(torch.randn(4, 4), (2, 2), sample_weights((2, 2)), 0.1)
    other.load({name: tensor.clone() for name, tensor in transport.tensors().items()})
    assert torch.equal(other.proportions, transport.proportions)


def stage(settings: PCDSettings, prototypes: Tensor) -> tuple[Any, list[Tensor]]:
    seen: list[Tensor] = []

    def forward(inputs: Tensor) -> SimpleNamespace:
        seen.append(inputs)
        return SimpleNamespace(logits=inputs @ prototypes)

    runtime = SimpleNamespace(pool=lambda inputs: inputs, share=slice)
    return SimpleNamespace(settings=settings, forward=forward, runtime=runtime), seen


def test_mixing_by_hand() -> None:
    """Mix-up: predictions of mixed vectors follow the mixed, constant predictions."""
    inputs, prototypes = batch(7)
    prototypes.requires_grad_()
    rng = np.random.default_rng(5)
    ratio = float(np.random.default_rng(5).beta(0.3, 0.3))
    replay = np.random.default_rng(5)
    replay.beta(0.3, 0.3)
    partner = torch.from_numpy(replay.permutation(7))
    assert 0.01 < ratio < 0.99
    fake, seen = stage(PCDSettings(), prototypes)
    logits = inputs @ prototypes
    loss = Stage.mixing_loss(fake, SimpleNamespace(inputs=inputs, rng=rng), logits)  # type: ignore[arg-type]
    mixed = ratio * inputs + (1 - ratio) * inputs[partner]
    torch.testing.assert_close(seen[0], mixed)
    p = logits.softmax(-1).detach()
    targets = ratio * p + (1 - ratio) * p[partner]
    expected = -(targets * (mixed @ prototypes).log_softmax(-1)).sum(-1).mean()
    torch.testing.assert_close(loss, expected)
    found, wanted = (torch.autograd.grad(x, prototypes, retain_graph=True)[0] for x in (loss, expected))
    torch.testing.assert_close(found, wanted)  # no gradient through the targets


def test_without_weight_nothing_is_mixed() -> None:
    inputs, prototypes = batch(7)
    fake, seen = stage(PCDSettings(mixing_weight=0), prototypes)
    rng = np.random.default_rng(0)
    step = SimpleNamespace(inputs=inputs, rng=rng)
    assert Stage.mixing_loss(fake, step, inputs @ prototypes).item() == 0  # type: ignore[arg-type]
    assert seen == []
    assert rng.random() == np.random.default_rng(0).random()
