"""Tests of TEMI: its loss at known answers, its heads, and its teacher."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ucds.baselines.settings import TEMISettings
from ucds.baselines.temi import ParallelHeads, standardised, weighted_information_loss

K = 4
SIZES = torch.full((1, 1, K), 1 / K)


def one_hot(clusters: list[list[int]]) -> torch.Tensor:
    return torch.eye(K)[torch.tensor(clusters)]


def test_defaults_are_the_authors() -> None:
    settings = TEMISettings()
    assert (settings.heads, settings.neighbours, settings.exponent) == (16, 50, 0.6)
    assert (settings.learning_rate, settings.weight_decay, settings.warm_up) == (1e-4, 1e-4, 0.2)
    assert (settings.temperature, settings.teacher_momentum, settings.batch_size) == (0.1, 0.996, 1024)


@pytest.mark.parametrize("exponent", [0.6, 1.0])
def test_sure_and_equal_pairs_have_the_information_of_their_cluster(exponent: float) -> None:
    sure = torch.eye(K).expand(1, 2, K, K)
    loss = weighted_information_loss(sure, sure, SIZES, exponent)
    torch.testing.assert_close(loss, torch.tensor([-math.log(K)]))


def test_uniform_predictions_have_none_with_exponent_one() -> None:
    uniform = torch.full((1, 2, 5, K), 1 / K)
    torch.testing.assert_close(weighted_information_loss(uniform, uniform, SIZES, 1.0), torch.zeros(1))
    # With a smaller exponent: 1 / K of log(K * K^(1 - 2 beta)).
    expected = -math.log(K * K ** (1 - 2 * 0.6)) / K
    torch.testing.assert_close(
        weighted_information_loss(uniform, uniform, SIZES, 0.6), torch.tensor([expected])
    )


def test_pairs_that_the_teacher_does_not_believe_in_do_not_count() -> None:
    predictions = torch.full((1, 2, 2, K), 1 / K)
    targets = one_hot([[0, 1], [0, 2]])[None]  # one pair in cluster 0, one pair in clusters 1 and 2
    loss = weighted_information_loss(predictions, targets, SIZES, 1.0)
    torch.testing.assert_close(loss, torch.zeros(1))  # log 1 for the first pair, weight 0 for the second
    predictions[0, :, 1] = torch.tensor([0.97, 0.01, 0.01, 0.01])
    torch.testing.assert_close(weighted_information_loss(predictions, targets, SIZES, 1.0), loss)


def test_students_are_compared_with_the_teacher_of_the_other_sample() -> None:
    student = one_hot([[0], [1]])[None].clamp_min(1e-12)  # sample one in cluster 0, sample two in 1
    crossed = torch.tensor([[[0.3, 0.5, 0.1, 0.1]], [[0.5, 0.3, 0.1, 0.1]]])[None]
    weight = (crossed[0, 0] * crossed[0, 1]).sum()
    loss = weighted_information_loss(student, crossed, SIZES, 1.0)
    torch.testing.assert_close(loss, -weight[None] * math.log(0.5 * K), atol=1e-5, rtol=1e-5)


def test_weights_are_those_of_all_heads_together() -> None:
    """A head that is sure of all pairs weighs half of its information for a head that believes in none."""
    sure = one_hot([[0], [0]])
    apart = one_hot([[0], [1]])
    loss = weighted_information_loss(
        torch.stack([sure, sure]), torch.stack([sure, apart]), SIZES.expand(2, 1, K), 1.0
    )
    assert loss[0].item() == pytest.approx(-math.log(K) / 2)


def test_no_gradient_reaches_the_teacher() -> None:
    logits = torch.randn(1, 2, 6, K, requires_grad=True)
    student = torch.randn(1, 2, 6, K, requires_grad=True)
    weighted_information_loss(student.softmax(-1), logits.softmax(-1), SIZES, 0.6).sum().backward()  # type: ignore[no-untyped-call]
    assert logits.grad is None
    assert student.grad is not None


def test_heads_are_separate_networks() -> None:
    settings = TEMISettings(heads=2, hidden_width=8, output_width=6)
    heads = ParallelHeads(5, K, settings, torch.Generator().manual_seed(0))
    inputs = torch.randn(7, 5)
    found = heads(inputs)
    assert found.shape == (2, 7, K)
    torch.testing.assert_close(found.sum(-1), torch.ones(2, 7))
    with torch.no_grad():
        heads.hidden[0].add_(1.0)
    assert torch.equal(heads(inputs)[1], found[1])
    assert not torch.equal(heads(inputs)[0], found[0])


def test_standardised_features_have_mean_zero_and_deviation_one() -> None:
    vectors = np.random.default_rng(0).normal(3, [1, 5, 0], size=(50, 3)).astype(np.float32)
    found = standardised(vectors)
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(found.std(0), [1, 1, 0], atol=1e-5)
