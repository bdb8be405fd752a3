"""Tests of the embedding in the plane: neighbours, repeatability, and samples without differences."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ucds.math.plane import place_all


def test_prototypes_lie_among_their_class() -> None:
    rng, classes = np.random.default_rng(0), np.arange(30) % 3
    prototypes = rng.normal(size=(8, 3))
    features = prototypes.T[classes] + 0.1 * rng.normal(size=(30, 8))
    points, stars = place_all(features, 40 * prototypes, seed=0)  # far longer than the features
    assert (points.shape, stars.shape) == ((30, 2), (3, 2))
    for klass, star in enumerate(stars):
        order = np.linalg.norm(points - star, axis=1).argsort()
        assert Counter(classes[order[:5]].tolist()) == {klass: 5}


@pytest.mark.parametrize(
    "features",
    [np.zeros((6, 4)), np.ones((6, 4)), np.outer(np.arange(6), np.ones(4)), np.arange(6.0)[:, None]],
    ids=["zeros", "ones", "one direction", "one feature"],
)
def test_a_collapsed_model_is_still_embedded(features: np.ndarray) -> None:
    for found in place_all(features, np.ones((features.shape[1], 2)), seed=0):
        assert np.isfinite(found).all()


def test_every_sample_has_a_place_near_samples_like_it() -> None:
    rng = np.random.default_rng(0)
    centres, of = 3 * np.eye(3, 8), np.arange(90) % 3
    features = centres[of] + 0.1 * rng.normal(size=(90, 8))
    points, stars = place_all(features, centres.T, seed=0, landmarks=30)
    assert points.shape == (90, 2)
    middles = np.stack([points[of == k].mean(0) for k in range(3)])
    for found in (points, stars):
        nearest = np.linalg.norm(found[:, None] - middles, axis=2).argmin(1)
        np.testing.assert_array_equal(nearest, of[: len(found)])
    again, _ = place_all(features, centres.T, seed=0, landmarks=30)
    np.testing.assert_array_equal(points, again)


def test_too_few_samples_to_embed_have_a_place_all_the_same() -> None:
    points, stars = place_all(np.eye(2, 3), np.eye(3, 1), seed=0)
    np.testing.assert_array_equal(points, np.eye(2))
    np.testing.assert_array_equal(stars, [[1, 0]])
    assert place_all(np.ones((3, 1)), np.ones((1, 1)), seed=0)[0].shape == (3, 2)
