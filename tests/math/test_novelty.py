"""New samples of no known kind are told from others, with the rates of false alarms that are stated."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import binom

from ucds.math.consensus import memberships
from ucds.math.novelty import GROUP_ALARMS, conformal, fit, fit_alone, fit_together, reject, scan
from ucds.math.spaces import principal_space

K, WIDTH = 6, 16


def draw(
    rng: np.random.Generator, count: int, kinds: int, width: int = WIDTH
) -> tuple[np.ndarray, np.ndarray]:
    """Draw samples of so many kinds: features, and the kind of each."""
    centres = 3 * np.random.default_rng(5).normal(size=(K + 2, width))
    kind = rng.integers(kinds, size=count)
    return (centres[kind] + rng.normal(size=(count, width))).astype(np.float32), kind


def test_a_p_value_is_the_share_of_known_scores_as_large() -> None:
    found = conformal(np.array([0.0, 2.0, 2.5, 9.0]), np.array([1.0, 2.0, 3.0]))
    assert found.tolist() == [1.0, 0.75, 0.5, 0.25]


def test_rejections_follow_benjamini_and_hochberg() -> None:
    assert reject(np.array([0.01, 0.04, 0.5, 0.021]), 0.05).tolist() == [True, False, False, True]
    assert not reject(np.array([0.02, 0.9, 0.9, 0.9]), 0.05).any()
    assert reject(np.empty(0)).shape == (0,)


def test_a_sample_by_itself_is_as_far_as_its_nearest_old_one() -> None:
    old, new = draw(np.random.default_rng(0), 50, K)[0], draw(np.random.default_rng(1), 20, K + 2)[0]
    apart = cdist(old, old, "cosine") + 9 * np.eye(50)
    expected = conformal(cdist(new, old, "cosine").min(1), apart.min(1))
    np.testing.assert_array_equal(fit_alone(old, new), expected)


def test_samples_together_have_a_share_of_new_ones_among_their_nearest() -> None:
    old, new = draw(np.random.default_rng(0), 500, K)[0], draw(np.random.default_rng(1), 100, K + 2)[0]
    space, is_new = principal_space(np.concatenate([old, new]))[0], np.arange(600) >= 500
    nearest = np.argsort(cdist(space, space) + 9 * np.eye(600), axis=1)[:, :20]
    shares = is_new[nearest].mean(1)
    expected = conformal(shares[is_new], shares[~is_new])
    np.testing.assert_array_equal(fit_together(old, new, K, np.random.default_rng(2)), expected)


@pytest.mark.parametrize(("count", "together"), [(31, False), (32, True)])
def test_from_32_new_samples_on_they_are_seen_together(count: int, together: bool) -> None:
    old, new = draw(np.random.default_rng(0), 50, K)[0], draw(np.random.default_rng(1), count, K + 2)[0]
    expected = fit_together(old, new, K, np.random.default_rng(2)) if together else fit_alone(old, new)
    np.testing.assert_array_equal(fit(old, new, K, np.random.default_rng(2)), expected)


@pytest.mark.parametrize("together", [False, True])
def test_false_alarms_are_at_most_as_frequent_as_stated(together: bool) -> None:
    rates = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        old, new = draw(rng, 100, K)[0], draw(rng, 60, K)[0]
        found = fit_together(old, new, K, rng) if together else fit_alone(old, new)
        rates.append((found <= 0.05).mean())
    # The old samples of a draw are the same for all its new ones: draws are independent, and samples are not.
    assert np.mean(rates) <= 0.05 + 1.65 * np.std(rates) / np.sqrt(len(rates))


@pytest.mark.parametrize("together", [False, True])
def test_samples_of_a_new_kind_are_found(together: bool) -> None:
    rng = np.random.default_rng(0)
    old, (new, kind) = draw(rng, 300, K)[0], draw(rng, 100, K + 2)
    found = fit_together(old, new, K, rng) if together else fit_alone(old, new)
    assert (found[kind >= K] <= 0.05).mean() > 0.9
    assert np.median(found[kind < K]) > 0.2


def test_many_samples_are_compared_with_some_of_them() -> None:
    rng = np.random.default_rng(0)
    old, (new, kind) = draw(rng, 1000, K)[0], draw(rng, 3300, K + 2)
    found = fit_together(old, new, K, rng)
    assert (found[kind >= K] <= 0.05).mean() > 0.9
    assert (found[kind < K] <= 0.05).mean() < 0.08


def test_a_batch_with_other_shares_of_the_known_kinds_is_not_rejected() -> None:
    rng = np.random.default_rng(0)
    old, new = draw(rng, 400, K)[0], draw(rng, 80, 1)[0]
    assert reject(fit_together(old, new, K, rng)).mean() < 0.1


def vote(kind: np.ndarray, rng: np.random.Generator, parts: int = 2) -> np.ndarray:
    """Make a clustering that cuts each kind into parts at random."""
    return np.asarray(kind * parts + rng.integers(parts, size=len(kind)))


def test_the_scan_finds_the_groups_that_are_new_and_no_others() -> None:
    rng = np.random.default_rng(0)
    kind = np.concatenate([rng.integers(K, size=300), rng.integers(K + 2, size=150)])
    is_new = np.arange(450) >= 300
    votes = [vote(kind, rng) for _ in range(15)] + [kind % K] * 5  # some take new kinds for known ones
    groups = scan(memberships(votes), is_new, K, rng)
    assert sorted(set(kind[group].tolist()).pop() for group in groups) == [K, K + 1]
    for group in groups:
        assert np.array_equal(group, np.flatnonzero(kind == kind[group[0]]))


@pytest.mark.parametrize("alarms", [GROUP_ALARMS, 0.6])
def test_the_scan_finds_a_group_where_none_is_new_at_most_as_often_as_stated(alarms: float) -> None:
    found = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        kind = rng.integers(K, size=100)
        votes = memberships([vote(kind, rng) for _ in range(8)])
        found += bool(scan(votes, rng.permutation(100) < 35, K, rng, alarms))
    assert found <= binom.ppf(0.99, 20, alarms)


@pytest.mark.parametrize("new", [0, 2, 59, 60])
def test_a_scan_of_too_few_old_or_new_samples_finds_nothing(new: int) -> None:
    rng = np.random.default_rng(0)
    votes = memberships([rng.integers(4, size=60)])
    assert scan(votes, np.arange(60) >= 60 - new, 4, rng) == []
