"""Tests of `ucds.math.private_space`: bounded rows, matrices as vectors, directions and axes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ucds.math.privacy import noise_scale
from ucds.math.private_space import (
    AXES,
    MEANS,
    bounded,
    find_private_space,
    from_triangle,
    random_directions,
    releases,
    to_triangle,
)


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


def test_a_release_adds_the_noise_that_its_part_of_the_budget_pays_for() -> None:
    scales = []
    release = releases(0.4, lambda values, scale: scales.append(scale) or values + 1)  # type: ignore[func-returns-value]
    np.testing.assert_array_equal(release(np.zeros((2, 3)), 0.25), np.ones((2, 3)))
    assert scales == [noise_scale(0.1)]


def test_samples_are_seen_along_public_directions_only() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((60, 8)).astype(np.float32)
    directions = np.eye(8)[:, [1, 4, 6]]
    release = releases(math.inf, lambda values, scale: values)
    found = find_private_space(
        vectors, np.arange(60) % 2, np.ones(60), release, rng, directions=directions, width=2
    )
    assert found.axes.shape == (8, 2)
    np.testing.assert_array_equal(np.flatnonzero(np.abs(found.axes).sum(1)), [1, 4, 6])
    np.testing.assert_array_equal(np.flatnonzero(found.mean), [1, 4, 6])
    assert np.linalg.norm(found.samples, axis=1).max() <= 1


def test_random_directions_are_orthonormal() -> None:
    for dimension in (5, 300):
        found = random_directions(dimension, np.random.default_rng(0))
        assert found.shape == (dimension, min(128, dimension))
        np.testing.assert_allclose(found.T @ found, np.eye(found.shape[1]), atol=1e-12)


def test_the_space_costs_its_parts_of_the_budget() -> None:
    spent = []
    release = releases(0.3, lambda values, scale: spent.append(1 / (2 * scale**2)) or values)  # type: ignore[func-returns-value]
    rng = np.random.default_rng(2)
    find_private_space(
        rng.standard_normal((20, 6)).astype(np.float32), np.arange(20) % 2, np.ones(20), release, rng
    )
    assert spent == pytest.approx([0.3 * MEANS, 0.3 * AXES])
