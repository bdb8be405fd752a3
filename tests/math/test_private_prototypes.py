"""Tests of `ucds.math.private_prototypes`: sums, axes, clusters, mergers, sensitivities, budget."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from ucds.math.arrays import DoubleArray
from ucds.math.domain_transport import SharedPrototypes
from ucds.math.privacy import noise_scale
from ucds.math.private_prototypes import (
    bounded,
    choose_groups,
    find_private_space,
    from_triangle,
    learn_private_prototypes,
    merge,
    random_directions,
    releases,
    to_triangle,
)
from ucds.math.spaces import unit_rows

K, WIDTH = 3, 6


class Replay:
    """Returns given outputs whatever it is asked to add noise to, and keeps the sums and scales."""

    def __init__(self, outputs: list[DoubleArray]) -> None:
        self._outputs: Iterator[DoubleArray] = iter(outputs)
        self.sums: list[DoubleArray] = []
        self.scales: list[float] = []

    def __call__(self, values: DoubleArray, scale: float) -> DoubleArray:
        self.sums.append(values)
        self.scales.append(scale)
        return next(self._outputs)


class Noise:
    """Adds normal noise, and keeps what it returned."""

    def __init__(self, seed: int = 0) -> None:
        self._rng, self.outputs = np.random.default_rng(seed), list[DoubleArray]()

    def __call__(self, values: DoubleArray, scale: float) -> DoubleArray:
        self.outputs.append(values + scale * self._rng.standard_normal(values.shape))
        return self.outputs[-1]


def learn(
    vectors: DoubleArray, add_noise: Noise | Replay, rho: float, weights: DoubleArray | None = None
) -> SharedPrototypes:
    weights = np.ones(len(vectors)) if weights is None else weights
    domain = np.arange(len(vectors)) % 2
    given = (vectors.astype(np.float32), domain, weights, K, rho, add_noise, np.random.default_rng(0))
    return learn_private_prototypes(*given, width=4, steps=2)


def groups(count: int, seed: int = 0) -> tuple[DoubleArray, DoubleArray]:
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(K), count)
    vectors = np.eye(WIDTH)[truth] + 0.1 * rng.standard_normal((len(truth), WIDTH))
    return vectors, truth


def test_groups_are_found_without_noise_and_with_little() -> None:
    vectors, truth = groups(200)
    for rho in (math.inf, 1.0):
        found = learn(vectors, Noise(1), rho)
        seen = (unit_rows(vectors.astype(np.float32)) - found.mean) @ found.axes @ found.prototypes
        assert adjusted_rand_score(truth, seen.argmax(1)) > 0.98
        np.testing.assert_allclose(found.proportions, np.full((2, K), 1 / K), atol=0.05)


def test_the_releases_use_up_the_budget_and_no_more() -> None:
    vectors, _ = groups(10)
    first = Noise()
    learn(vectors, first, 0.3)
    replay = Replay(first.outputs)
    learn(vectors, replay, 0.3)
    assert sum(1 / (2 * scale**2) for scale in replay.scales) == pytest.approx(0.3)
    assert (noise_scale(math.inf), noise_scale(0.5)) == (0, 1)


TOGETHER, APART = 0.5, 1e4
"""Budgets at which the two domains of a few samples are clustered as one, and each by itself."""


def sensitivities(
    vectors: DoubleArray, left_out: list[int], rho: float, weights: DoubleArray | None = None
) -> list[float]:
    """Return how far each released sum moves when samples are taken out, all earlier outputs being equal.

    Nothing else tells of the samples: with equal outputs, equal prototypes are learned.
    """
    first, without = Noise(2), vectors.copy()
    without[left_out] = 0
    learn(vectors, first, rho, weights)
    assert len(first.outputs[2]) == (1 if rho == TOGETHER else 2) * 2 * K * 4
    both = [Replay(first.outputs), Replay(first.outputs)]
    learned = [
        vars(learn(seen, replay, rho, weights)) for replay, seen in zip(both, (vectors, without), strict=True)
    ]
    for name, found in learned[0].items():
        np.testing.assert_array_equal(found, learned[1][name])
    return [float(np.linalg.norm(a - b)) for a, b in zip(both[0].sums, both[1].sums, strict=True)]


@pytest.mark.parametrize("rho", [TOGETHER, APART])
def test_no_sum_moves_by_more_than_one_when_a_sample_is_left_out(rho: float) -> None:
    rng = np.random.default_rng(3)
    largest = 0.0
    for length in (1e-3, 1.0, 1e6):  # lengths must not matter
        vectors, _ = groups(8)
        vectors[0] = length * rng.standard_normal(WIDTH)
        moved = sensitivities(vectors, [0], rho)
        assert len(moved) == 5
        assert max(moved) <= 1
        largest = max(largest, *moved)
    assert largest > 0.99  # the bound is not loose: less noise would be too little


@pytest.mark.parametrize("rho", [TOGETHER, APART])
def test_all_samples_of_a_person_together_count_as_one(rho: float) -> None:
    vectors, _ = groups(8)
    vectors[:5] = vectors[0]  # of both domains
    weights = np.where(np.arange(len(vectors)) < 5, 1 / 5, 1.0)
    assert max(sensitivities(vectors, [0, 1, 2, 3, 4], rho, weights)) <= 1
    assert max(sensitivities(vectors, [0, 1, 2, 3, 4], rho)) > 2  # without the weights they would not


def test_a_merger_loses_the_least_length() -> None:
    sums = np.random.default_rng(6).standard_normal((7, 3))
    kept = np.linalg.norm(merge(sums, 6), axis=1).sum()
    pairs = [(i, j) for i in range(7) for j in range(i)]
    without = [np.linalg.norm(np.delete(sums, pair, axis=0), axis=1).sum() for pair in pairs]
    joined = [np.linalg.norm(sums[i] + sums[j]) for i, j in pairs]
    assert kept == pytest.approx(max(a + b for a, b in zip(without, joined, strict=True)))
    np.testing.assert_allclose(merge(sums, 3).sum(0), sums.sum(0))
    assert merge(sums, 7) is sums


def test_domains_are_clustered_by_themselves_if_the_smallest_is_large_enough_for_the_noise() -> None:
    domain = np.repeat([0, 1], [600, 300])
    counts = np.bincount(domain).astype(float)
    # 300 samples for 10 prototypes: sums of expected length 15.
    np.testing.assert_array_equal(choose_groups(domain, counts, 10, 14.9), domain)
    np.testing.assert_array_equal(choose_groups(domain, counts, 10, 15.1), np.zeros(900))


def test_a_symmetric_matrix_is_written_as_a_vector_of_the_same_length() -> None:
    matrix = np.random.default_rng(0).standard_normal((5, 5))
    matrix += matrix.T
    assert np.linalg.norm(to_triangle(matrix)) == pytest.approx(np.linalg.norm(matrix))
    np.testing.assert_allclose(from_triangle(to_triangle(matrix)), matrix)


def test_rows_are_bounded_even_after_rounding() -> None:
    rows = np.random.default_rng(0).standard_normal((1000, 1280)).astype(np.float32) * 1e5
    rows[0] = 0
    lengths = np.linalg.norm(bounded(rows), axis=1)
    assert lengths.max() <= 1
    assert lengths[0] == 0
    assert lengths[1:].min() > 1 - 1e-8


def test_samples_are_seen_along_public_directions_only() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((60, 8)).astype(np.float32)
    directions = np.eye(8)[:, [1, 4, 6]]
    release = releases(math.inf, lambda values, scale: values)
    found = find_private_space(vectors, np.arange(60) % 2, np.ones(60), release, directions, width=2)
    assert found.axes.shape == (8, 2)
    np.testing.assert_array_equal(np.flatnonzero(np.abs(found.axes).sum(1)), [1, 4, 6])
    np.testing.assert_array_equal(np.flatnonzero(found.mean), [1, 4, 6])
    assert np.linalg.norm(found.samples, axis=1).max() <= 1


def test_random_directions_are_orthonormal() -> None:
    for dimension in (5, 300):
        found = random_directions(dimension, np.random.default_rng(0))
        assert found.shape == (dimension, min(128, dimension))
        np.testing.assert_allclose(found.T @ found, np.eye(found.shape[1]), atol=1e-12)
