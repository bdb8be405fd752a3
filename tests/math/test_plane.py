"""Tests of the embedding in the plane: neighbours, repeatability, and what it refuses."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ucds.math import plane
from ucds.math.plane import MAX_POINTS, place_all, to_plane


def blobs(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features ``(30, 8)`` around three prototypes ``(8, 3)``, and their classes."""
    rng = np.random.default_rng(seed)
    prototypes = rng.normal(size=(8, 3))
    classes = np.arange(30) % 3
    return prototypes.T[classes] + 0.1 * rng.normal(size=(30, 8)), prototypes, classes


def nearest_classes(points: np.ndarray, star: np.ndarray, classes: np.ndarray) -> Counter[int]:
    order = np.linalg.norm(points - star, axis=1).argsort()
    return Counter(classes[order[:5]].tolist())


def test_prototypes_lie_among_their_class() -> None:
    features, prototypes, classes = blobs()
    found = to_plane(features, 40 * prototypes, classes, seed=0)  # far longer than the features
    assert (found.samples.shape, found.prototypes.shape, found.total) == ((30, 2), (3, 2), 30)
    np.testing.assert_array_equal(found.classes, classes)
    for klass, star in enumerate(found.prototypes):
        assert nearest_classes(found.samples, star, classes) == {klass: 5}


def test_samples_lie_among_their_class_without_prototypes() -> None:
    features, _, classes = blobs()
    lengths = np.random.default_rng(1).uniform(1, 50, size=(30, 1))
    found = to_plane(lengths * features, None, classes, seed=0)
    assert found.prototypes.shape == (0, 2)
    for point, klass in zip(found.samples, classes, strict=True):
        assert nearest_classes(found.samples, point, classes) == {klass: 5}


def test_equal_seeds_give_equal_points() -> None:
    features, prototypes, classes = blobs()
    one, again = (to_plane(features, prototypes, classes, seed=3) for _ in range(2))
    np.testing.assert_array_equal(one.samples, again.samples)
    np.testing.assert_array_equal(one.prototypes, again.prototypes)


def test_many_samples_are_thinned_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_POINTS == 2000
    monkeypatch.setattr(plane, "MAX_POINTS", 12)
    features, prototypes, _ = blobs()
    found, again, other = (to_plane(features, prototypes, np.arange(30), seed) for seed in (0, 0, 1))
    assert (len(found.samples), len(found.prototypes), found.total) == (12, 3, 30)
    assert len(set(found.classes.tolist())) == 12
    assert (np.diff(found.classes) > 0).all(), "in the order of the samples"
    np.testing.assert_array_equal(found.classes, again.classes)
    assert found.classes.tolist() != other.classes.tolist()


@pytest.mark.parametrize(
    "features",
    [np.zeros((6, 4)), np.ones((6, 4)), np.outer(np.arange(6), np.ones(4)), np.arange(6.0)[:, None]],
    ids=["zeros", "ones", "one direction", "one feature"],
)
def test_a_collapsed_model_is_still_embedded(features: np.ndarray) -> None:
    found = to_plane(features, np.ones((features.shape[1], 2)), np.arange(6) % 2, seed=0)
    assert np.isfinite(found.samples).all()
    assert np.isfinite(found.prototypes).all()


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="4 samples are too few"):
        to_plane(np.ones((4, 8)), np.ones((8, 3)), np.zeros(4, dtype=int), seed=0)


@pytest.mark.parametrize("broken", ["features", "prototypes"])
def test_numbers_that_are_not_finite_are_refused(broken: str) -> None:
    features, prototypes, classes = blobs()
    (features if broken == "features" else prototypes)[2, 1] = np.nan
    with pytest.raises(ValueError, match="must be finite"):
        to_plane(features, prototypes, classes, seed=0)


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
