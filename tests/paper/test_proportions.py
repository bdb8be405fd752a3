"""Eq. 2 against values worked out by hand."""

from __future__ import annotations

import pytest
import torch

from ucds.math.domains import sample_weights, stack_domains
from ucds.math.proportions import cluster_posterior, cosine_momentum, uniform_proportions, update_proportions


def test_they_start_uniform() -> None:
    torch.testing.assert_close(uniform_proportions(2, 4), torch.full((2, 4), 0.25))


def test_posterior_is_likelihood_times_proportion() -> None:
    logits = torch.tensor([[[1.0, 3.0]]]).log()
    proportions = torch.tensor([[0.75, 0.25]])
    # 1 * 3/4 against 3 * 1/4: even.
    torch.testing.assert_close(cluster_posterior(logits, proportions), torch.tensor([[[0.5, 0.5]]]))


def test_update_by_hand() -> None:
    logits = torch.tensor([[[1.0, 3.0], [1.0, 1.0]]]).log()
    proportions = torch.tensor([[0.75, 0.25]])
    # Posteriors (1/2, 1/2) and (3/4, 1/4): mean (5/8, 3/8); beta = 0.9.
    new = update_proportions(proportions, logits, torch.tensor([[0.5, 0.5]]), 0.9)
    torch.testing.assert_close(new, torch.tensor([[0.9 * 0.75 + 0.0625, 0.9 * 0.25 + 0.0375]]))


def test_domains_do_not_mix_and_padding_counts_for_nothing() -> None:
    logits = torch.randn(5, 3)
    counts = (3, 2)
    both = update_proportions(
        uniform_proportions(2, 3), stack_domains(logits, counts), sample_weights(counts), 0.5
    )
    for d, rows in enumerate((logits[:3], logits[3:])):
        alone = update_proportions(
            uniform_proportions(1, 3), rows.unsqueeze(0), sample_weights((len(rows),)), 0.5
        )
        torch.testing.assert_close(both[d], alone[0])


def test_they_stay_on_the_simplex_and_carry_no_gradient() -> None:
    proportions = uniform_proportions(3, 6)
    weights = sample_weights((4, 4, 4))
    for _ in range(50):
        logits = torch.randn(3, 4, 6, requires_grad=True) * 10
        proportions = update_proportions(proportions, logits, weights, 0.9)
    assert not proportions.requires_grad
    assert (proportions >= 0).all()
    torch.testing.assert_close(proportions.sum(-1), torch.ones(3))


def test_an_excluded_cluster_stays_excluded() -> None:
    proportions = torch.tensor([[0.0, 1.0]])
    new = update_proportions(proportions, torch.randn(1, 4, 2), sample_weights((4,)), 0.5)
    torch.testing.assert_close(new, proportions)


def test_iterating_eq_2_recovers_shifted_proportions() -> None:
    """EM on likelihoods of a known mixture: from uniform to the true prior of the sample."""
    generator = torch.Generator().manual_seed(1)
    true = torch.tensor([0.7, 0.2, 0.1])
    classes = torch.multinomial(true, 4000, replacement=True, generator=generator)
    x = torch.randn(4000, 3, generator=generator) + 2.0 * torch.eye(3)[classes]
    logits = 2.0 * x  # log-likelihood ratios of unit Gaussians two apart
    proportions = uniform_proportions(1, 3)
    for _ in range(200):
        proportions = update_proportions(proportions, logits.unsqueeze(0), sample_weights((4000,)), 0.5)
    torch.testing.assert_close(proportions[0], true, atol=0.02, rtol=0)


def test_momentum_schedule() -> None:
    assert cosine_momentum(0.99, 0.0) == pytest.approx(0.99)
    assert cosine_momentum(0.99, 0.5) == pytest.approx(0.995)
    assert cosine_momentum(0.99, 1.0) == pytest.approx(1.0)


def test_bad_momentum_is_refused() -> None:
    with pytest.raises(ValueError, match="momentum"):
        update_proportions(uniform_proportions(1, 2), torch.zeros(1, 1, 2), sample_weights((1,)), 1.5)
