"""Tests of `choose_cluster_number`: blobs of known number, noise without groups, several domains."""

import numpy as np
import pytest
from sklearn.metrics import silhouette_score

from ucds.math.cluster_number import ClusterNumber, choose_cluster_number, coarse_numbers, most_clusters
from ucds.math.spaces import make_spaces


def blobs(k: int, n: int, seed: int = 0, width: int = 16) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(100 + k).normal(size=(k, width))
    return (centres[np.arange(n) % k] + 0.25 * rng.normal(size=(n, width))).astype(np.float32)


@pytest.mark.parametrize(
    ("k", "n", "domains", "low", "high"), [(2, 60, 1, 2, 5), (5, 150, 2, 3, 7), (9, 180, 1, 7, 12)]
)
def test_the_number_of_blobs_is_found(k: int, n: int, domains: int, low: int, high: int) -> None:
    vectors = [blobs(k, n, seed) + 3 * seed for seed in range(domains)]
    found = choose_cluster_number(vectors, low, high, np.random.default_rng(0))
    assert found.number == k
    assert found.low <= k <= found.high
    assert found.clear
    assert found.candidates == tuple(range(low, high + 1))
    assert found.stability[k - low] == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    "vectors", [np.random.default_rng(0).normal(size=(120, 24)), np.ones((40, 4))], ids=["noise", "copies"]
)
def test_where_no_groups_are_no_number_stands_out(vectors: np.ndarray) -> None:
    found = choose_cluster_number([vectors.astype(np.float32)], 2, 5, np.random.default_rng(0))
    assert not found.clear


def test_groups_that_differ_in_length_alone_are_found_where_lengths_count() -> None:
    draw, groups = np.random.default_rng(0), np.arange(90) % 3
    vectors = (4 * groups[:, None] + 2 + 0.2 * draw.normal(size=(90, 6))).astype(np.float32)
    found = choose_cluster_number([vectors], 2, 4, np.random.default_rng(0), lengths=True)
    assert (found.number, found.clear) == (3, True)
    assert not choose_cluster_number([vectors], 2, 4, np.random.default_rng(0)).clear


def test_the_smallest_nearly_best_number_is_chosen_after_its_neighbours_were_tried() -> None:
    """There are 41 groups, a number that the first round leaves out, and 40 explain nearly as much."""
    groups = np.arange(41 * 12) % 41
    noise = np.random.default_rng(0).normal(size=(len(groups), 48))
    vectors = (np.eye(41, 48)[groups] + 0.1 * noise).astype(np.float32)
    found = choose_cluster_number([vectors], 40, 50, np.random.default_rng(0))
    assert 41 not in coarse_numbers(40, 50)
    assert found.candidates[:4] == (40, 41, 42, 43)
    assert found.candidates[int(np.argmax(found.scores))] == 41
    assert found.number == 40


def test_parts_that_agree_less_than_by_chance_count_as_not_agreeing_at_all() -> None:
    pairs = np.repeat(np.eye(15, dtype=np.float32), 2, axis=0)  # no two groups of them say more than others
    found = choose_cluster_number([pairs], 2, 3, np.random.default_rng(32))
    assert min(found.stability) >= 0


def test_the_separation_is_that_of_samples_averaged_with_their_neighbours() -> None:
    truth, draw = np.arange(160) % 4, np.random.default_rng(0)
    centres = np.random.default_rng(7).normal(size=(4, 16))
    vectors = (centres[truth] + 0.8 * draw.normal(size=(160, 16))).astype(np.float32)
    spaces = make_spaces(vectors, 2, names=("features", "principal")).vectors.values()
    single = [silhouette_score(space, truth, metric="cosine") for space in spaces]
    found = choose_cluster_number([vectors], 3, 5, np.random.default_rng(0))
    assert max(single) < 0.5
    assert found.separation[1] > 0.8


def test_what_one_part_in_twelve_prefers_does_not_widen_the_interval() -> None:
    """Of three domains with four parts each, one part prefers four clusters."""
    draw, groups = np.random.default_rng(1), np.random.default_rng(7).normal(size=(3, 8))[np.arange(60) % 3]
    domains = [(groups + 0.6 * draw.normal(size=(60, 8))).astype(np.float32) for _ in range(3)]
    found = choose_cluster_number(domains, 2, 6, np.random.default_rng(1))
    assert (found.low, found.high) == (2, 3)


def test_numbers_up_to_twelve_are_all_tried_and_then_every_seventh_percent() -> None:
    assert coarse_numbers(2, 16) == [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
    assert coarse_numbers(40, 50) == [40, 43, 46, 49, 50]
    assert coarse_numbers(2, 3) == [2, 3]


def test_the_samples_bound_the_number() -> None:
    assert [most_clusters(n) for n in (30, 500, 10_000)] == [3, 50, 100]
    assert [most_clusters(n, wanted=200) for n in (30, 500, 10_000)] == [6, 100, 600]


def test_an_interval_of_one_number_is_told_as_such() -> None:
    evidence = {"candidates": (2, 3, 4), "stability": (0.5, 0.9, 0.5), "separation": (0.5, 0.5, 0.5)}
    assert ClusterNumber(3, 3, 4, **evidence).plausible == "3 to 4 are about as good"
    assert ClusterNumber(3, 3, 3, **evidence).plausible == "no other is as good"
