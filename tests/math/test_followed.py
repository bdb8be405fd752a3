"""What clusters follow: known answers, a rate that holds for any kind of groups, and power within groups."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, rankdata
from sklearn.metrics import adjusted_mutual_info_score

from ucds.math import followed
from ucds.math.followed import find_following

Integers = np.ndarray[Any, np.dtype[np.int64]]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def patients(count: int, draw: np.random.Generator) -> Integers:
    """Groups of 1 to 9 samples each."""
    return np.repeat(np.arange(count), draw.integers(1, 10, count))


def test_clusters_that_are_the_column_follow_it_wholly() -> None:
    clusters = np.arange(60) % 3
    same, coarser = find_following(clusters, [clusters[::1] * 1, (clusters == 0).astype(np.int64)], rng())
    assert same.effect == pytest.approx(1)
    assert coarser.effect == pytest.approx(1)
    assert same.p_value == 1 / 1000
    assert same.by_cluster == pytest.approx([0.001] * 3)


def test_the_effect_on_categories_is_the_adjusted_mutual_information() -> None:
    draw = rng()
    clusters = draw.integers(0, 8, 500)
    values = np.where(draw.random(500) < 0.4, clusters % 3, draw.integers(0, 3, 500))
    found = find_following(clusters, [values], draw)[0].effect
    assert found == pytest.approx(
        adjusted_mutual_info_score(clusters, values, average_method="min"), abs=0.005
    )


def test_the_effect_on_numbers_is_the_correlation_ratio_of_their_ranks_less_chance() -> None:
    draw, n, k = rng(), 400, 4
    clusters = draw.integers(0, k, n)
    values = np.exp(draw.normal(size=n) + clusters)
    values[::10] = np.nan
    known = ~np.isnan(values)
    ranks, of_known = rankdata(values[known]), clusters[known]
    means = np.array([ranks[of_known == c].mean() for c in range(k)])
    ratio = (np.bincount(of_known) * (means - ranks.mean()) ** 2).sum() / (ranks.var() * len(ranks))
    by_chance = (k - 1) / (known.sum() - 1)
    found = find_following(clusters, [values], draw)[0]
    assert found.effect == pytest.approx((ratio - by_chance) / (1 - by_chance), abs=0.005)
    assert found.p_value == 1 / 1000


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of the usual draws are enough for p-values around 0.05."""
    monkeypatch.setattr(followed, "DRAWS", 199)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("kind", ["categories", "numbers"])
@pytest.mark.parametrize("grouped", [False, True], ids=["single", "groups of unequal sizes"])
def test_random_columns_are_declared_at_the_stated_rate(kind: str, grouped: bool) -> None:
    """The clusters depend on the patient, and each column has one value for a patient."""
    draw, draws, declared = rng(1), 20, 0
    for _ in range(draws):
        groups = patients(30, draw) if grouped else np.arange(80)
        count = int(groups.max()) + 1
        clusters = np.where(draw.random(len(groups)) < 0.9, draw.integers(0, 3, count)[groups], 0)
        drawn = (draw.integers(0, 4, count), draw.integers(0, 2, count))
        columns = [each[groups] if kind == "categories" else each[groups] + 0.5 for each in drawn]
        found = find_following(clusters, columns, draw, groups if grouped else None)
        declared += min(one.p_value for one in found) <= 0.05
    assert declared <= binom.ppf(0.999, draws, 0.05)


@pytest.mark.usefixtures("quick")
def test_what_holds_for_whole_groups_is_no_evidence_of_many_samples() -> None:
    """Ten patients in two clusters, by chance of unlike sites: of 100 single samples it would be sure."""
    groups = np.repeat(np.arange(10), 10)
    clusters, site = (groups < 5).astype(np.int64), (groups < 4).astype(np.int64)
    site[groups == 9] = 1
    assert find_following(clusters, [site], rng())[0].p_value == 1 / 200
    assert find_following(clusters, [site], rng(), groups)[0].p_value > 0.05
    assert find_following(clusters, [groups], rng(), groups)[0].p_value == 1
    # Every patient has a view from the front and one from the side, and the clusters are the views.
    groups, view = np.repeat(np.arange(20), 2), np.arange(40) % 2
    assert find_following(view, [view], rng(), groups)[0].p_value == 1 / 200


def test_the_p_value_of_a_column_counts_all_columns() -> None:
    draw = rng(3)
    clusters = draw.integers(0, 2, 100)
    weak = np.where(draw.random(100) < 0.2, clusters, draw.integers(0, 2, 100))
    others = [draw.integers(0, 2, 100) for _ in range(40)]
    alone = find_following(clusters, [weak], rng())[0].p_value
    among = find_following(clusters, [weak, *others], rng())[0].p_value
    assert alone < 0.05 < among


@pytest.mark.usefixtures("quick")
def test_the_clusters_that_follow_are_told_from_the_others() -> None:
    draw = rng(1)
    clusters = draw.integers(0, 12, 480)
    values = np.where(clusters == 2, 0, draw.integers(0, 6, 480))
    by_cluster = find_following(clusters, [values], draw)[0].by_cluster
    assert np.flatnonzero(by_cluster <= 0.05).tolist() == [2]
