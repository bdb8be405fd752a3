"""Tests of the many k-means partitions that vote, and of their starts."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.cluster import kmeans_plusplus
from sklearn.metrics import adjusted_rand_score

from ucds.math.kmeans import run_kmeans, spread_samples, squared_distances

N, K = 120, 4
TRUTH = np.arange(N) // (N // K)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_kmeans_gives_so_many_partitions_a_space_and_size() -> None:
    blob = (10 * np.eye(K)[TRUTH] + 0.1 * rng().normal(size=(N, K))).astype(np.float32)
    other = blob[:, :2]  # in which two of the groups are one
    found = [run.partition for same in run_kmeans([blob, other], [K, 6], 3, rng()) for run in same]
    assert [len(np.unique(partition)) for partition in found] == [4, 4, 4, 6, 6, 6] * 2
    assert {partition.dtype for partition in found} == {np.dtype(np.int64)}
    assert max(adjusted_rand_score(TRUTH, partition) for partition in found[:3]) == 1
    assert max(adjusted_rand_score(TRUTH, partition) for partition in found[6:9]) < 1


def test_copies_make_no_noise() -> None:
    copies = np.repeat(np.eye(3, dtype=np.float32), 10, axis=0)
    with warnings.catch_warnings(action="error"):
        ((found,),) = run_kmeans([copies], [5], 1, rng())
    assert len(np.unique(found.partition)) == 3


def test_the_starts_are_the_generators() -> None:
    noise = rng(5).normal(size=(60, 3)).astype(np.float32)
    one, again, other = (
        [run.partition for run in run_kmeans([noise], [5], 3, rng(seed))[0]] for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    assert not np.array_equal(one[0], one[1])


def test_samples_that_a_run_does_not_see_get_the_nearest_centre() -> None:
    blob = (10 * np.eye(2)[np.arange(3100) % 2] + 0.1 * rng().normal(size=(3100, 2))).astype(np.float32)
    ((found,),) = run_kmeans([blob], [2], 1, rng())
    assert adjusted_rand_score(np.arange(3100) % 2, found.partition) == 1


def test_inertia_is_the_squared_distance_from_the_means() -> None:
    vectors = rng(3).normal(size=(90, 4)).astype(np.float32)
    for run in run_kmeans([vectors], [3], 4, rng())[0]:
        means = np.array([vectors[run.partition == cluster].mean(0) for cluster in range(3)])
        assert run.inertia == pytest.approx(((vectors - means[run.partition]) ** 2).sum(), rel=1e-4)


def test_distances_are_those_between_pairs() -> None:
    vectors = rng(1).normal(size=(40, 3)).astype(np.float32) + 50
    expected = ((vectors[:, None] - vectors[None]).astype(np.float64) ** 2).sum(2)
    np.testing.assert_allclose(squared_distances(vectors), expected, atol=1e-3)


@pytest.mark.parametrize("count", [1, 2, 7, 60])
def test_starts_are_those_of_the_library(count: int) -> None:
    """In whole numbers both compute without rounding, so that not a single draw may differ."""
    vectors = rng(2).integers(-20, 20, size=(200, 6)).astype(np.float32)
    vectors -= vectors.mean(0).round()
    distances = ((vectors[:, None] - vectors[None]) ** 2).sum(2)
    for seed in range(5):
        _, expected = kmeans_plusplus(vectors.astype(np.float64), count, random_state=seed)
        found = spread_samples(distances, count, np.random.RandomState(seed))
        np.testing.assert_array_equal(found, expected)


def test_equal_samples_can_be_starts_too() -> None:
    """More centres than different samples: some are chosen twice, and nothing is divided by zero."""
    vectors = np.repeat(np.eye(2, dtype=np.float32), 5, axis=0)
    found = spread_samples(squared_distances(vectors), 4, np.random.RandomState(0))
    assert {int(i) // 5 for i in found} == {0, 1}
