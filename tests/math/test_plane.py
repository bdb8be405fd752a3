"""Tests of the embedding in the plane: neighbours, repeatability, and samples without differences."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.manifold import trustworthiness

from ucds.math.plane import place_all
from ucds.math.spaces import unit_rows


@pytest.mark.parametrize(
    "features",
    [
        *(np.zeros((6, 4)), np.ones((6, 4)), np.outer(np.arange(6), np.ones(4)), np.arange(6.0)[:, None]),
        *(np.eye(n, 3) for n in (1, 2, 3)),
    ],
    ids=["zeros", "ones", "one direction", "one feature", "one sample", "two samples", "three samples"],
)
def test_features_without_differences_and_few_samples_have_a_place_all_the_same(features: np.ndarray) -> None:
    points = place_all(features)
    assert points.shape == (len(features), 2)
    assert np.isfinite(points).all()


@pytest.mark.parametrize("largest", [30, 90])
def test_samples_have_a_place_near_samples_like_them(largest: int) -> None:
    rng = np.random.default_rng(0)
    centres, of = 3 * np.eye(3, 8), np.arange(90) % 3
    features = centres[of] + 0.1 * rng.normal(size=(90, 8))
    points = place_all(features, largest=largest)
    middles = np.stack([points[of == k].mean(0) for k in range(3)])
    nearest = np.linalg.norm(points[:, None] - middles, axis=2).argmin(1)
    np.testing.assert_array_equal(nearest, of)
    np.testing.assert_array_equal(points, place_all(features, largest=largest))


def test_neighbours_on_the_map_are_neighbours() -> None:
    features = load_digits().data[:500]
    assert trustworthiness(unit_rows(features), place_all(features)) > 0.95
