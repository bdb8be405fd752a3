"""Tests of `benchmarks/private_rivals.py`: what each rival costs, and that it finds groups without noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from private_rivals import (
    RIVALS,
    Array,
    Task,
    exponential_mechanism,
    noisy_answers,
    seen_from_domains,
    spread_directions,
)
from sklearn.metrics import adjusted_rand_score

K, WIDTH, RHO = 3, 8, 0.4


class Spy:
    """Adds no noise, and keeps the scales that it was asked for."""

    def __init__(self) -> None:
        self.scales: list[float] = []

    def __call__(self, values: Array, scale: float) -> Array:
        self.scales.append(scale)
        return values


def groups(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = np.tile(np.arange(K), count)
    return (np.eye(WIDTH)[truth] + 0.1 * rng.standard_normal((K * count, WIDTH))).astype(np.float32), truth


def task(rho: float, add_noise: Spy) -> tuple[Task, np.ndarray]:
    source, _ = groups(200, 0)
    client, truth = groups(50, 1)
    public, _ = groups(200, 2)
    domain = np.arange(len(source)) % 2
    alone, together = np.zeros(len(client), np.int64), np.zeros(len(public), np.int64)
    seen, known = seen_from_domains(client, alone), seen_from_domains(public, together)
    return Task(source, domain, seen, known, np.eye(WIDTH), K, rho, add_noise, 0), truth


@pytest.mark.parametrize("name", [name for name in RIVALS if name != "PATE"])
def test_groups_are_found_without_noise(name: str) -> None:
    # A single run of k-means, or Lloyd's algorithm from poor directions, may join two groups of three.
    given, truth = task(math.inf, Spy())
    assert adjusted_rand_score(truth, RIVALS[name](given)) > 0.5


def test_pate_answers_as_its_shards_do() -> None:
    given, truth = task(math.inf, Spy())
    assert adjusted_rand_score(truth, RIVALS["PATE"](given)) > 0.9


@pytest.mark.parametrize("name", [name for name in RIVALS if name.startswith(("Lloyd", "histogram"))])
def test_releases_cost_the_whole_budget(name: str) -> None:
    spy = Spy()
    RIVALS[name](task(RHO, spy)[0])
    assert sum(1 / (2 * scale**2) for scale in spy.scales) == pytest.approx(RHO)


def test_answers_of_shards_cost_the_budget_where_one_shard_changes_its_mind_every_time() -> None:
    rng = np.random.default_rng(0)
    votes = rng.integers(0, K, (500, 40))
    changed = votes.copy()
    changed[:, 0] = (votes[:, 0] + 1) % K
    before, after = (np.stack([(v == k).sum(1) for k in range(K)], axis=1) for v in (votes, changed))
    spy = Spy()
    np.testing.assert_array_equal(noisy_answers(before.astype(float), RHO, spy), before.argmax(1))
    assert np.square(before - after).sum() / (2 * spy.scales[0] ** 2) == pytest.approx(RHO)


def test_the_exponential_mechanism_draws_with_its_weights_and_keeps_its_budget() -> None:
    rng = np.random.default_rng(1)
    merits = np.array([3.0, 4.0, 4.5])

    def chances(values: Array) -> Array:
        powers = np.exp(math.sqrt(8 * RHO) * (values - values.max()))
        return np.asarray(powers / powers.sum())

    drawn = np.bincount([exponential_mechanism(merits, RHO, rng) for _ in range(4000)], minlength=3)
    np.testing.assert_allclose(drawn / 4000, chances(merits), atol=0.03)
    assert exponential_mechanism(merits, math.inf, rng) == 2
    for _ in range(200):  # a sample adds between 0 and 1 to every merit
        one, other = chances(merits), chances(merits + rng.integers(0, 2, 3))
        for order in (1.01, 2.0, 8.0, 64.0):
            for p, q in ((one, other), (other, one)):
                assert math.log((p**order * q ** (1 - order)).sum()) / (order - 1) <= order * RHO + 1e-9


def test_spread_directions_are_farther_from_each_other_than_random_ones() -> None:
    rng = np.random.default_rng(2)
    spread, drawn = spread_directions(10, 6, rng), rng.standard_normal((10, 6))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    closest = [np.max(one @ one.T - 2 * np.eye(10)) for one in (spread, drawn)]
    assert closest[0] < closest[1]
    np.testing.assert_allclose(np.linalg.norm(spread, axis=1), 1)
