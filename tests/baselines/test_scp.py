"""Tests of SCP: its terms at known answers."""

from __future__ import annotations

import math

import pytest
import torch

from ucds.baselines.scp import confidence_loss, consistency_loss, make_head
from ucds.baselines.settings import SCPSettings

K = 5


def test_defaults_are_those_of_tac() -> None:
    settings = SCPSettings()
    assert (settings.batch_size, settings.learning_rate, settings.hidden_width) == (512, 1e-3, 512)
    assert (settings.contrast_temperature, settings.entropy_weight, settings.neighbours) == (0.5, 5, 50)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_consistency_of_sure_and_equal_views(temperature: float) -> None:
    """The counterpart has cosine 1, the 2 K - 2 other columns cosine 0."""
    sure = torch.eye(K).repeat(3, 1)
    expected = math.log(1 + (2 * K - 2) * math.exp(-1 / temperature))
    assert consistency_loss(sure, sure, temperature).item() == pytest.approx(expected, rel=1e-5)


def test_consistency_of_views_that_say_nothing() -> None:
    """All 2 K - 1 columns look alike."""
    uniform = torch.full((8, K), 1 / K)
    assert consistency_loss(uniform, uniform, 0.5).item() == pytest.approx(math.log(2 * K - 1), rel=1e-5)


def test_consistency_is_about_the_numbering_too() -> None:
    sure = torch.eye(K).repeat(3, 1)
    assert consistency_loss(sure, sure.roll(1, 1), 0.5) > consistency_loss(sure, sure, 0.5) + 1


def test_confidence_is_zero_for_sure_agreement_and_log_k_without_any_idea() -> None:
    sure, uniform = torch.eye(K), torch.full((K, K), 1 / K)
    assert confidence_loss(sure, sure).item() == 0
    assert confidence_loss(uniform, uniform).item() == pytest.approx(math.log(K))
    assert confidence_loss(sure, uniform).item() == pytest.approx(math.log(K))


def test_the_head_has_two_layers() -> None:
    head = make_head(9, 16, K, torch.Generator().manual_seed(0))
    assert [tuple(weight.shape) for weight in head.parameters()] == [
        *((16, 9), (16,)),  # below
        *((16,), (16,)),  # batch normalisation
        *((K, 16), (K,)),  # above
    ]
    assert head(torch.randn(4, 9)).shape == (4, K)
