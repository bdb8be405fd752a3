"""The paper's losses against values worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from ucds.math.losses import distillation_loss, mutual_information_loss, soft_cross_entropy, transport_loss

LOG2, LOG3 = math.log(2.0), math.log(3.0)


def logits_of(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


def entropy(*p: float) -> float:
    return -sum(q * math.log(q) for q in p if q > 0)


def test_transport_loss_is_the_mean_cost_of_the_domains() -> None:
    cost = torch.tensor([[[0.2, 1.0], [0.6, 0.4]], [[1.0, 2.0], [0.0, 0.0]]])
    plan = torch.tensor([[[0.5, 0.0], [0.1, 0.4]], [[0.25, 0.75], [0.0, 0.0]]])
    # Domain 1: 0.10 + 0.06 + 0.16 = 0.32; domain 2: 0.25 + 1.50 = 1.75.
    assert transport_loss(cost, plan).item() == pytest.approx((0.32 + 1.75) / 2)


def test_transport_loss_moves_the_cost_and_not_the_plan() -> None:
    cost = torch.rand(2, 3, 4, requires_grad=True)
    plan = torch.rand(2, 3, 4, requires_grad=True)
    transport_loss(cost, plan).backward()
    assert plan.grad is None
    torch.testing.assert_close(cost.grad, plan.detach() / 2)


def test_mutual_information_of_certain_and_balanced_predictions_is_log_k() -> None:
    logits = 200.0 * torch.eye(3, dtype=torch.float64).repeat(2, 1)
    assert mutual_information_loss(logits).item() == pytest.approx(-LOG3)


@pytest.mark.parametrize("row", [[0.5, 0.5], [0.9, 0.1]])
def test_mutual_information_is_zero_when_all_predictions_are_equal(row: list[float]) -> None:
    assert mutual_information_loss(logits_of(row, row, row)).item() == pytest.approx(0.0, abs=1e-12)


def test_mutual_information_by_hand() -> None:
    # Rows (1, 3)/4 and (3, 3, .)... mean (5/8, 3/8) of (1/4, 3/4) and (1, 0).
    loss = mutual_information_loss(logits_of([0.25, 0.75], [1.0 - 1e-12, 1e-12]))
    expected = -(entropy(0.625, 0.375) - entropy(0.25, 0.75) / 2)
    assert loss.item() == pytest.approx(expected, abs=1e-9)


def test_mutual_information_survives_dead_clusters() -> None:
    logits = torch.tensor([[0.0, -200.0], [0.0, -200.0]], requires_grad=True)
    loss = mutual_information_loss(logits)
    loss.backward()
    assert loss.item() == pytest.approx(0.0, abs=1e-6)
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_soft_cross_entropy_by_hand_and_without_gradient_to_targets() -> None:
    targets = torch.tensor([[0.5, 0.5], [1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    logits = logits_of([0.25, 0.75], [0.5, 0.5]).requires_grad_()
    loss = soft_cross_entropy(logits, targets)
    loss.backward()
    expected = ((-0.5 * math.log(0.25) - 0.5 * math.log(0.75)) + LOG2) / 2
    assert loss.item() == pytest.approx(expected)
    assert targets.grad is None


def test_distillation_loss_by_hand() -> None:
    targets = torch.tensor([[0.75, 0.25]], dtype=torch.float64)
    logits = logits_of([0.5, 0.5])
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert distillation_loss(logits, targets).item() == pytest.approx(expected)


def test_distillation_loss_accepts_hard_targets() -> None:
    loss = distillation_loss(logits_of([0.2, 0.8]), torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    assert loss.item() == pytest.approx(math.log(5.0))


def test_distillation_loss_is_a_divergence() -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(50, 7, generator=generator, dtype=torch.float64)
    q = torch.randn(50, 7, generator=generator, dtype=torch.float64)
    assert distillation_loss(p, q.softmax(-1)).item() > 0
    assert distillation_loss(p, p.softmax(-1)).item() == pytest.approx(0.0, abs=1e-12)


def test_losses_are_computed_in_single_precision_from_half() -> None:
    logits = torch.randn(8, 5).bfloat16()
    for loss in (mutual_information_loss(logits), soft_cross_entropy(logits, torch.full((8, 5), 0.2))):
        assert loss.dtype == torch.float32
