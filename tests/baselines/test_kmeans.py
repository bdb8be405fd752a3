"""Tests of the baseline that trains nothing."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.preprocessing import normalize

from ucds.baselines.kmeans import frozen_kmeans
from ucds.data.vectors import VectorSamples


def samples() -> VectorSamples:
    rng = np.random.default_rng(0)
    return VectorSamples(rng.normal(size=(90, 5)) * rng.uniform(0.1, 10, size=(90, 1)))


def inertia(vectors: np.ndarray, labels: np.ndarray) -> float:
    return sum(((vectors[labels == k] - vectors[labels == k].mean(0)) ** 2).sum() for k in set(labels))


def test_length_is_of_no_meaning_and_the_best_start_wins() -> None:
    vectors = normalize(samples().rows.take(np.arange(90)))
    labels = frozen_kmeans(samples(), 6, seed=0)
    longer = VectorSamples(samples().rows.take(np.arange(90)) * np.arange(1, 91)[:, None])
    np.testing.assert_array_equal(frozen_kmeans(longer, 6, seed=0), labels)
    singles = [KMeans(6, n_init=1, random_state=s).fit(vectors).inertia_ for s in range(10)]
    assert inertia(vectors, labels) < np.median(singles)


def test_the_seed_and_the_restarts_decide() -> None:
    one, again, other = (frozen_kmeans(samples(), 6, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    assert one.dtype == np.int64
    vectors = normalize(samples().rows.take(np.arange(90)))
    single, many = (inertia(vectors, frozen_kmeans(samples(), 6, 3, restarts=r)) for r in (1, 20))
    assert many < single or many == pytest.approx(single)
