"""Tests of IIC's and ACIDS's mathematics: known optima, known answers, and what gradient descent finds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.metrics import mutual_info_score
from torch import Tensor
from torch.nn.functional import one_hot

from ucds.baselines.joint_information import (
    RunningJoint,
    domain_joint,
    harden,
    mutual_information,
    view_joint,
)


def probabilities(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).softmax(-1)


def descend(loss: Callable[[Tensor], Tensor], logits: Tensor, steps: int) -> Tensor:
    logits = logits.clone().requires_grad_()
    optimiser = torch.optim.Adam([logits], lr=0.3)
    for _ in range(steps):
        optimiser.zero_grad()
        loss(logits.softmax(-1)).backward()
        optimiser.step()
    return logits.detach().softmax(-1)


@pytest.mark.parametrize("k", [2, 7, 31])
def test_one_to_one_is_log_k_and_independence_is_zero(k: int) -> None:
    order = torch.randperm(k, generator=torch.Generator().manual_seed(k))
    one_to_one = torch.eye(k, dtype=torch.float64)[order] / k
    assert mutual_information(one_to_one).item() == pytest.approx(math.log(k), abs=1e-12)
    rows, columns = probabilities(k), probabilities(k, seed=1)
    assert mutual_information(torch.outer(rows, columns)).item() == pytest.approx(0, abs=1e-12)


def test_mutual_information_by_hand() -> None:
    joint = torch.tensor([[0.4, 0.1], [0.2, 0.3]], dtype=torch.float64)
    expected = (
        0.4 * math.log(0.4 / (0.5 * 0.6))
        + 0.1 * math.log(0.1 / (0.5 * 0.4))
        + 0.2 * math.log(0.2 / (0.5 * 0.6))
        + 0.3 * math.log(0.3 / (0.5 * 0.4))
    )
    assert mutual_information(joint).item() == pytest.approx(expected, abs=1e-12)


def test_mutual_information_of_labels_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    one, two = rng.integers(5, size=90), rng.integers(3, size=90)
    pairs = one_hot(torch.from_numpy(one)).double().T @ one_hot(torch.from_numpy(two)).double() / 90
    assert mutual_information(pairs).item() == pytest.approx(mutual_info_score(one, two), abs=1e-10)


def test_bounds_and_permutations() -> None:
    joint = probabilities(6 * 4).view(6, 4)
    information = mutual_information(joint)
    entropies = [torch.special.entr(joint.sum(axis)).sum() for axis in (0, 1)]
    assert 0 < information < min(entropies)
    torch.testing.assert_close(mutual_information(joint[[3, 1, 5, 0, 2, 4]][:, [2, 0, 3, 1]]), information)
    torch.testing.assert_close(mutual_information(joint.T), information)


def test_the_joint_of_views_by_hand() -> None:
    first = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    second = torch.tensor([[0.6, 0.4], [0.0, 1.0]])
    one_way = (torch.outer(first[0], second[0]) + torch.outer(first[1], second[1])) / 2
    torch.testing.assert_close(view_joint(first, second), (one_way + one_way.T) / 2)
    torch.testing.assert_close(view_joint(second, first), view_joint(first, second))


def test_the_joint_with_domains_by_hand() -> None:
    p = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
    expected = torch.tensor([[0.9, 0.1], [0.7, 1.3]]) / 3
    torch.testing.assert_close(domain_joint(p, (1, 2)), expected)


def test_sub_heads_are_a_batch() -> None:
    first, second = probabilities(3, 20, 4), probabilities(3, 20, 4, seed=1)
    for h in range(3):
        torch.testing.assert_close(view_joint(first, second)[h], view_joint(first[h], second[h]))
        torch.testing.assert_close(domain_joint(first, (8, 12))[h], domain_joint(first[h], (8, 12)))
    together = mutual_information(view_joint(first, second))
    assert together.shape == (3,)
    torch.testing.assert_close(together[2], mutual_information(view_joint(first[2], second[2])))


def test_certain_predictions_give_finite_gradients() -> None:
    logits = torch.tensor([[400.0, 0.0, 0.0], [0.0, 400.0, 0.0]], requires_grad=True)
    p = logits.softmax(-1)
    (-mutual_information(view_joint(p, p)) + mutual_information(domain_joint(p, (1, 1)))).backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("k", [2, 3, 5])
def test_gradient_descent_on_free_logits_reaches_log_k(k: int) -> None:
    """IIC's optimum: of five sub-heads at least one gives each of K samples a cluster of its own."""
    start = torch.randn(5, k, k, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = descend(lambda p: -mutual_information(view_joint(p, p)).sum(), start, 200)
    information = mutual_information(view_joint(found, found))
    assert information.max().item() == pytest.approx(math.log(k), abs=1e-3)
    assert sorted(found[information.argmax()].argmax(1).tolist()) == list(range(k))
    assert information.max().item() < math.log(k)


def test_gradient_descent_makes_clusters_independent_of_the_domain() -> None:
    """ACIDS's optimum, from a start with one cluster a domain, which is an optimum of IIC's term alone."""
    start = 2 * one_hot(torch.arange(2).repeat_interleave(4)).double()
    start += 0.5 * torch.randn(8, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def of_views(p: Tensor) -> Tensor:
        return mutual_information(view_joint(p, p))

    def of_domain(p: Tensor) -> Tensor:
        return mutual_information(domain_joint(p, (4, 4)))

    alone = descend(lambda p: -of_views(p), start, 200)
    assert of_views(alone).item() == pytest.approx(math.log(2), abs=1e-3)
    assert of_domain(alone).item() == pytest.approx(math.log(2), abs=1e-3)
    found = descend(lambda p: 10 * of_domain(p) - of_views(p), start, 400)
    assert of_views(found).item() == pytest.approx(math.log(2), abs=3e-3)
    assert of_domain(found).item() == pytest.approx(0, abs=1e-6)


def test_the_running_joint_is_an_average_whose_past_is_constant() -> None:
    running = RunningJoint(0.25)
    one = torch.tensor([[0.5, 0.1], [0.1, 0.3]], requires_grad=True)
    two = torch.tensor([[0.2, 0.3], [0.3, 0.2]], requires_grad=True)
    torch.testing.assert_close(running(one), 0.25 * one + 0.75 * torch.full((2, 2), 0.25))
    average = running(two)
    torch.testing.assert_close(average, 0.25 * two + 0.75 * (0.25 * one + 0.75 * 0.25))
    mutual_information(average).backward()
    assert one.grad is None
    assert two.grad is not None
    torch.testing.assert_close(RunningJoint(1.0)(two), two)


def test_only_sure_predictions_become_certain() -> None:
    logits = torch.tensor([[3.0, 0.0], [1.0, 0.0]], requires_grad=True)
    p = logits.softmax(-1)
    hard = harden(p, 0.9)
    assert hard[0].tolist() == [1.0, 0.0]
    assert torch.equal(hard[1], p[1])
    hard[:, 0].sum().backward()
    assert logits.grad is not None
    assert logits.grad[0].tolist() == [0.0, 0.0]
    assert logits.grad[1, 0] > 0
    assert torch.equal(harden(p, 1.1), p)
