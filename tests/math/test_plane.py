"""Tests of the embedding in the plane: neighbours, repeatability, and samples without differences."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.manifold import trustworthiness

from ucds.math.plane import place_all
from ucds.math.spaces import unit_rows


@pytest.mark.parametrize(
    "features",
    [np.zeros((6, 4)), np.ones((6, 4)), np.outer(np.arange(6), np.ones(4)), np.arange(6.0)[:, None]],
    ids=["zeros", "ones", "one direction", "one feature"],
)
def test_a_collapsed_model_is_still_embedded(features: np.ndarray) -> None:
    for found in place_all(features, np.ones((features.shape[1], 2)), seed=0):
        assert np.isfinite(found).all()


@pytest.mark.parametrize("largest", [30, 90])
def test_samples_and_prototypes_have_a_place_near_samples_like_them(largest: int) -> None:
    rng = np.random.default_rng(0)
    centres, of = 3 * np.eye(3, 8), np.arange(90) % 3
    features = centres[of] + 0.1 * rng.normal(size=(90, 8))
    prototypes = 40 * centres.T  # far longer than the features
    points, stars = place_all(features, prototypes, seed=0, largest=largest)
    assert (points.shape, stars.shape) == ((90, 2), (3, 2))
    middles = np.stack([points[of == k].mean(0) for k in range(3)])
    for found in (points, stars):
        nearest = np.linalg.norm(found[:, None] - middles, axis=2).argmin(1)
        np.testing.assert_array_equal(nearest, of[: len(found)])
    again, _ = place_all(features, prototypes, seed=0, largest=largest)
    np.testing.assert_array_equal(points, again)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_samples_have_a_place_all_the_same(n: int) -> None:
    points, stars = place_all(np.eye(n, 3), np.eye(3, 1), seed=0)
    assert (points.shape, stars.shape) == ((n, 2), (1, 2))
    assert np.isfinite(points).all()


def test_neighbours_on_the_map_are_neighbours() -> None:
    features = load_digits().data[:500]
    points, _ = place_all(features, features[:10].T, seed=0)
    assert trustworthiness(unit_rows(features), points) > 0.95
