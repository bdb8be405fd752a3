"""Tests of the choice of samples to ask about."""

from __future__ import annotations

import numpy as np
import pytest

from ucds.target.selection import select_spread


def _groups(sizes: list[int], width: int = 20, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(len(sizes), width))
    group = np.repeat(np.arange(len(sizes)), sizes)
    return (centres[group] + 0.05 * rng.normal(size=(len(group), width))).astype(np.float32), group


@pytest.mark.parametrize("seed", range(5))
def test_one_query_a_group_reaches_even_the_small_groups(seed: int) -> None:
    features, group = _groups([500, 3, 200, 5, 50, 4, 300, 3])
    assert set(group[select_spread(features, 8, seed)]) == set(range(8))


def test_it_covers_better_than_chance() -> None:
    features = np.random.default_rng(1).normal(size=(600, 8)).astype(np.float32)
    directions = features / np.linalg.norm(features, axis=1, keepdims=True)

    def uncovered(chosen: np.ndarray) -> float:
        return float((2 - 2 * directions @ directions[chosen].T).min(1).mean())

    spread = [uncovered(select_spread(features, 40, seed)) for seed in range(5)]
    chance = [uncovered(np.random.default_rng(seed).permutation(600)[:40]) for seed in range(5)]
    assert max(spread) < min(chance)


def test_it_is_a_function_of_the_seed_and_begins_alike() -> None:
    features, _ = _groups([40, 40, 40])
    short, long = select_spread(features, 10, 7), select_spread(features, 30, 7)
    assert long[:10].tolist() == short.tolist()
    assert select_spread(features, 10, 7).tolist() == short.tolist()
    assert select_spread(features, 10, 8).tolist() != short.tolist()


def test_nothing_is_chosen_twice_and_no_more_than_there_is() -> None:
    features, _ = _groups([5, 5])
    assert sorted(select_spread(features, 100, 0)) == list(range(10))
    twice = np.concatenate([features, 3 * features])  # same directions
    assert len(select_spread(twice, 100, 0)) == 10
    assert select_spread(np.zeros((4, 3), np.float32), 0, 0).tolist() == []


def test_what_is_given_is_kept_away_from() -> None:
    features, group = _groups([50, 50, 50, 50])
    chosen = select_spread(features, 2, 0, given=[0, 60])
    assert sorted(group[chosen]) == [2, 3]
