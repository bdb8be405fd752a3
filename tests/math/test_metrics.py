"""Tests of the scores against values worked out by hand, brute force, and their invariances."""

from itertools import permutations
from math import log

import numpy as np
import pytest

from ucds.math.metrics import (
    ClusteringScores,
    clustering_accuracy,
    match_clusters,
    proportions_by_class,
    proportions_l1,
    score,
)

# Two classes of three; cluster 1 holds two of class 0, cluster 0 the other one and all of class 1.
LABELS = [1, 1, 0, 0, 0, 0]
CLASSES = [0, 0, 0, 1, 1, 1]


def random_labels(k: int, n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, k, n)


def test_scores_by_hand() -> None:
    found = score(LABELS, CLASSES)
    assert match_clusters(LABELS, CLASSES) == {0: 1, 1: 0}
    assert found.accuracy == clustering_accuracy(LABELS, CLASSES) == pytest.approx(5 / 6)
    joint = [(2 / 6, 2 / 6, 3 / 6), (1 / 6, 4 / 6, 3 / 6), (3 / 6, 4 / 6, 3 / 6)]  # p(j, k), p(j), p(k)
    information = sum(pjk * log(pjk / (pj * pk)) for pjk, pj, pk in joint)
    mean_entropy = (log(2) - (2 / 6 * log(2 / 6) + 4 / 6 * log(4 / 6))) / 2
    assert found.nmi == pytest.approx(information / mean_entropy)
    # Pairs together in both: 1 + 3 = 4; in clusters: 1 + 6 = 7; in classes: 3 + 3 = 6; of 15.
    by_chance = 7 * 6 / 15
    assert found.ari == pytest.approx((4 - by_chance) / ((7 + 6) / 2 - by_chance))


@pytest.mark.parametrize(("k", "c"), [(4, 4), (3, 5), (5, 3), (2, 6), (6, 1), (1, 5)])
@pytest.mark.parametrize("seed", range(4))
def test_accuracy_is_the_best_over_all_pairings(k: int, c: int, seed: int) -> None:
    labels, classes = random_labels(k, 30, seed), random_labels(c, 30, seed + 100)
    size = max(k, c)
    best = max(np.mean(np.array(order)[labels] == classes) for order in permutations(range(size)))
    assert clustering_accuracy(labels, classes) == pytest.approx(best)
    matching = match_clusters(labels, classes)
    assert len(set(matching.values())) == len(matching) <= min(k, c)
    agreement = np.mean(
        [matching.get(int(label), -1) == klass for label, klass in zip(labels, classes, strict=True)]
    )
    assert agreement == pytest.approx(best)


def test_one_cluster_is_right_for_the_largest_class_only() -> None:
    labels, classes = [0] * 10, [0] * 3 + [1] * 7
    assert match_clusters(labels, classes) == {0: 1}
    assert score(labels, classes) == ClusteringScores(accuracy=0.7, nmi=0.0, ari=0.0)
    assert score([2], [7]) == ClusteringScores(accuracy=1.0, nmi=1.0, ari=1.0)


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        ([], [], "at least one integer"),
        ([0, 1], [0, 1, 1], "2 cluster labels cannot be compared with 3 classes"),
        ([0, -1], [0, 1], "cluster labels must not be negative, but -1 occurs"),
        ([0, 1], [0, -2], "classes must not be negative"),
        ([0.0, 1.0], [0, 1], "must be integers, not float64"),
        ([[0, 1]], [0, 1], "vector"),
    ],
)
def test_impossible_labels_are_refused(labels: list[int], classes: list[int], message: str) -> None:
    for measure in (clustering_accuracy, match_clusters, score):
        with pytest.raises(ValueError, match=message):
            measure(labels, classes)


def test_proportions_l1_by_hand() -> None:
    assert proportions_l1([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]) == pytest.approx(0.6)
    assert proportions_l1([1, 0], [0, 1]) == 2
    assert proportions_l1([0.25] * 4, [0.25] * 4) == 0
    assert proportions_l1([0.5, 0.4, 0.1], [0.5, 0.5]) == pytest.approx(0.2)


def test_proportions_are_brought_to_the_order_of_classes() -> None:
    matching = {0: 2, 1: 0, 3: 1}
    np.testing.assert_array_equal(
        proportions_by_class([0.1, 0.2, 0.3, 0.4], matching, 3), [0.2, 0.4, 0.1, 0.3]
    )
    np.testing.assert_array_equal(proportions_by_class([0.7, 0.3], {1: 2}, 3), [0, 0, 0.3, 0.7])
