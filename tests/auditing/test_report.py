"""Tests of `ucds.auditing.report`: areas and rates with ties, and what is said of them."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from ucds.auditing.attacks import Price
from ucds.auditing.report import Attack, Findings, Prevalence, attack_success


def test_scores_that_are_all_equal_find_nobody() -> None:
    found = attack_success(np.ones(50), np.ones(80))
    assert (found.auc, found.auc_low, found.auc_high) == (0.5, 0.5, 0.5)
    assert (found.tpr_at_10, found.tpr_at_1) == (0, 0)  # a threshold takes all of them or none


def test_ties_count_half_in_the_area_and_all_or_none_at_a_threshold() -> None:
    members, others = np.array([2.0, 2, 1, 0]), np.array([2.0, 1, 1, 0, 0, 0, 0, 0, 0, 0])
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in members for b in others]
    found = attack_success(members, others)
    assert found.auc == pytest.approx(np.mean(pairs))
    assert found.tpr_at_10 == 0.5  # score 2: one in ten others
    assert found.tpr_at_1 == 0


def test_perfect_scores_of_few_samples_leave_room_for_doubt() -> None:
    found = attack_success(np.arange(5.0) + 10, np.arange(20.0) - 20)
    assert (found.auc, found.auc_high, found.tpr_at_1) == (1, 1, 1)
    assert found.auc_low == pytest.approx(0.05 ** (1 / 5))


def test_the_interval_holds_the_true_area_in_95_of_100_cases() -> None:
    rng, held = np.random.default_rng(0), 0
    for _ in range(100):
        found = attack_success(rng.normal(1, 1, 60).round(1), rng.normal(0, 1, 90).round(1))
        held += found.auc_low <= 0.7602 <= found.auc_high  # Phi(1 / sqrt 2)
    assert binom.cdf(held, 100, 0.95) > 1e-3


def test_findings_are_told_in_sentences() -> None:
    perfect = Attack("perfect", "", 7, attack_success(np.arange(30.0) + 99, np.arange(40.0)))
    chance = Attack("chance", "", 7, attack_success(np.ones(30), np.ones(40)))
    missing = Attack("missing", "", 7, None, "too few samples")
    sizes = {"provider": "p", "n_clusters": 3, "privacy": None, "members": 30, "others": 40, "queries": 9}
    found = Findings(
        **sizes,
        membership=(chance, perfect, missing),
        domains=missing,
        stability={},
        prevalence=Prevalence(0.25, 0.5),
        prices=(Price(50, 0.5), Price(100, 0.91), Price(200, 0.95)),
    )
    membership, guarantee, domains, prices, shares = found.summary()
    assert "strongest attack is 'perfect'. A client with 7 queries" in membership
    assert "100 of 100 members" in membership
    assert "has none" in guarantee
    assert domains == "Domains: Not measured: too few samples."
    assert "100 bought labels" in prices
    assert "90 of 100 other samples or more" in prices
    assert "25 %" in shares
    assert "50 %" in shares
    other = replace(found, membership=(missing,), domains=perfect, prices=found.prices[:1], prevalence=None)
    membership, _, domains, prices = other.summary()
    assert "no attack could be measured" in membership
    assert "100 of 100 cases" in domains
    assert "50 bought labels" in prices
    assert "50 of 100 other samples; none here reached 90" in prices
    assert "No better than guessing" in chance.sentence
