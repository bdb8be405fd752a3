"""Tests of k-means from many starts: known groups, the library's own starts, and any number of threads."""

import numpy as np
import pytest
from sklearn.cluster import kmeans_plusplus
from sklearn.metrics import adjusted_rand_score

from ucds.math.kmeans import run_kmeans, spread_samples, squared_distances

TRUTH = np.arange(200) % 4


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_kmeans_gives_so_many_partitions_a_space_and_size() -> None:
    blob = (10 * np.eye(4)[TRUTH] + 0.1 * rng().normal(size=(len(TRUTH), 4))).astype(np.float32)
    other = blob[:, :2]  # in which two of the groups are one
    found = [run.partition for same in run_kmeans([blob, other], [4, 6], 3, rng()) for run in same]
    assert [len(np.unique(partition)) for partition in found] == [4, 4, 4, 6, 6, 6] * 2
    assert {partition.dtype for partition in found} == {np.dtype(np.int64)}
    assert max(adjusted_rand_score(TRUTH, partition) for partition in found[:3]) == 1
    assert max(adjusted_rand_score(TRUTH, partition) for partition in found[6:9]) < 1


def test_inertia_is_the_squared_distance_from_the_means() -> None:
    vectors = rng(3).normal(size=(90, 4)).astype(np.float32)
    for run in run_kmeans([vectors], [3], 4, rng())[0]:
        means = np.array([vectors[run.partition == cluster].mean(0) for cluster in range(3)])
        assert run.inertia == pytest.approx(((vectors - means[run.partition]) ** 2).sum(), rel=1e-4)


def test_distances_are_those_between_pairs() -> None:
    vectors = rng(1).normal(size=(40, 3)).astype(np.float32) + 50
    expected = ((vectors[:, None] - vectors[None]).astype(np.float64) ** 2).sum(2)
    np.testing.assert_allclose(squared_distances(vectors), expected, atol=1e-3)
    copies = squared_distances(np.repeat(vectors, 2, axis=0))  # whose distances are nothing but rounding
    assert copies.min() == 0 == copies.diagonal().max()


@pytest.mark.parametrize("count", [1, 2, 7, 60])
def test_starts_are_those_of_the_library(count: int) -> None:
    """In whole numbers both compute without rounding, so that not a single draw may differ."""
    vectors = rng(2).integers(-20, 20, size=(200, 6)).astype(np.float32)
    vectors -= vectors.mean(0).round()
    distances = ((vectors[:, None] - vectors[None]) ** 2).sum(2)
    for seed in range(5):
        _, expected = kmeans_plusplus(vectors.astype(np.float64), count, random_state=seed)
        found = spread_samples(distances, count, [9, seed])
        np.testing.assert_array_equal(found[1], expected)


def test_equal_samples_can_be_starts_too() -> None:
    """More centres than different samples: some are chosen twice, and nothing is divided by zero."""
    vectors = np.repeat(np.eye(2, dtype=np.float32), 5, axis=0)
    found = spread_samples(squared_distances(vectors), 4, [0])
    assert {int(i) // 5 for i in found[0]} == {0, 1}
