"""The layout by domain, Eq. 1 to 3, mixing, and the targets of stage 2, against values worked out by hand."""

import math

import numpy as np
import pytest
import torch

from ucds.gradients.mixing import mix
from ucds.gradients.pcd_loss import (
    cluster_posterior,
    cosine_momentum,
    distillation_loss,
    mutual_information_loss,
    sample_weights,
    smooth_labels,
    soft_cross_entropy,
    stack_domains,
    transport_loss,
    update_proportions,
)

pytestmark = pytest.mark.torch

LOG2 = math.log(2.0)


def logits_of(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


def entropy(*p: float) -> float:
    return -sum(q * math.log(q) for q in p if q > 0)


def test_rows_are_stacked_by_domain_and_padded_with_zero() -> None:
    values = torch.arange(1.0, 6.0).unsqueeze(1)
    stacked = stack_domains(values, (2, 3))
    torch.testing.assert_close(stacked[..., 0], torch.tensor([[1.0, 2.0, 0.0], [3.0, 4.0, 5.0]]))
    with pytest.raises(ValueError, match="add up"):
        stack_domains(values, (2, 2))


def test_weights_are_even_within_a_domain_and_zero_in_the_padding() -> None:
    torch.testing.assert_close(sample_weights((2, 4)), torch.tensor([[0.5, 0.5, 0, 0], [0.25] * 4]))
    torch.testing.assert_close(sample_weights((3,)), torch.full((1, 3), 1 / 3))


def test_transport_loss_is_the_mean_cost_of_the_domains_and_moves_the_cost_alone() -> None:
    cost = torch.tensor([[[0.2, 1.0], [0.6, 0.4]], [[1.0, 2.0], [0.0, 0.0]]], requires_grad=True)
    plan = torch.tensor([[[0.5, 0.0], [0.1, 0.4]], [[0.25, 0.75], [0.0, 0.0]]], requires_grad=True)
    loss = transport_loss(cost, plan)
    loss.backward()
    # Domain 1: 0.10 + 0.06 + 0.16 = 0.32; domain 2: 0.25 + 1.50 = 1.75.
    assert loss.item() == pytest.approx((0.32 + 1.75) / 2)
    assert plan.grad is None
    torch.testing.assert_close(cost.grad, plan.detach() / 2)


def test_posterior_and_update_of_proportions_by_hand() -> None:
    logits = torch.tensor([[[1.0, 3.0], [1.0, 1.0]]]).log().requires_grad_()
    proportions = torch.tensor([[0.75, 0.25]])
    # 1 * 3/4 against 3 * 1/4 is even; the mean of the posteriors is (5/8, 3/8); beta = 0.9.
    posterior = torch.tensor([[[0.5, 0.5], [0.75, 0.25]]])
    torch.testing.assert_close(cluster_posterior(logits, proportions), posterior)
    new = update_proportions(proportions, logits, torch.tensor([[0.5, 0.5]]), 0.9)
    torch.testing.assert_close(new, torch.tensor([[0.9 * 0.75 + 0.0625, 0.9 * 0.25 + 0.0375]]))
    assert not new.requires_grad
    excluded = torch.tensor([[0.0, 1.0]])
    new = update_proportions(excluded, torch.randn(1, 4, 2), sample_weights((4,)), 0.5)
    torch.testing.assert_close(new, excluded)


def test_momentum_schedule() -> None:
    assert cosine_momentum(0.99, 0.0) == pytest.approx(0.99)
    assert cosine_momentum(0.99, 0.5) == pytest.approx(0.995)
    assert cosine_momentum(0.99, 1.0) == pytest.approx(1.0)


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


def test_smoothing_by_hand() -> None:
    smoothed = smooth_labels(torch.tensor([2, 0]), 4, 0.1)
    torch.testing.assert_close(
        smoothed, torch.tensor([[0.025, 0.025, 0.925, 0.025], [0.925, 0.025, 0.025, 0.025]])
    )


def test_distillation_loss_by_hand() -> None:
    targets = torch.tensor([[0.75, 0.25], [1.0, 0.0]], dtype=torch.float64)  # a soft one and a hard one
    expected = (0.75 * math.log(1.5) + 0.25 * math.log(0.5) + math.log(5.0)) / 2
    assert distillation_loss(logits_of([0.5, 0.5], [0.2, 0.8]), targets).item() == pytest.approx(expected)


def test_losses_are_computed_in_single_precision_from_half() -> None:
    logits = torch.randn(8, 5).bfloat16()
    for loss in (mutual_information_loss(logits), soft_cross_entropy(logits, torch.full((8, 5), 0.2))):
        assert loss.dtype == torch.float32


def images(n: int = 8, side: int = 16) -> torch.Tensor:
    """Every image is constant, so that a pixel tells which image it came from."""
    return torch.arange(n, dtype=torch.float32).view(n, 1, 1, 1).expand(n, 3, side, side).clone()


@pytest.mark.parametrize("seed", range(20))
def test_cutmix_pastes_one_box_of_the_partner_and_reports_its_area(seed: int) -> None:
    batch = images()
    mixture = mix(batch, 1.0, np.random.default_rng(seed))
    torch.testing.assert_close(batch, images())  # the batch itself is left alone
    assert sorted(mixture.partner.tolist()) == list(range(8))
    pasted = mixture.inputs != batch
    for i, j in enumerate(mixture.partner.tolist()):
        found = set(mixture.inputs[i].unique().tolist())
        assert found <= {float(i), float(j)}
        if i != j:
            share = pasted[i].float().mean().item()
            assert share == pytest.approx(1.0 - mixture.ratio, abs=1e-6)
            rows, columns = pasted[i, 0].any(1), pasted[i, 0].any(0)
            assert pasted[i, 0].sum() == rows.sum() * columns.sum()  # a rectangle


def test_ratios_follow_the_beta_distribution() -> None:
    vectors = torch.zeros(2, 1)
    ratios = np.array([mix(vectors, 0.3, np.random.default_rng(s)).ratio for s in range(3000)])
    # Beta(a, a): mean 1/2, variance 1 / (4 (2a + 1)).
    assert ratios.mean() == pytest.approx(0.5, abs=0.03)
    assert ratios.var() == pytest.approx(1 / (4 * 1.6), abs=0.01)


@pytest.mark.parametrize(
    ("shape", "alpha", "words"),
    [((4,), 0.3, "images"), ((4, 3, 5), 0.3, "images"), ((2, 2), 0.0, "positive")],
)
def test_what_cannot_be_mixed_is_refused(shape: tuple[int, ...], alpha: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        mix(torch.zeros(shape), alpha, np.random.default_rng(0))
