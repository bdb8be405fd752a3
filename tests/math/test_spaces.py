"""Tests of the spaces in which a target is clustered."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from ucds.choices import SPACES
from ucds.math.arrays import FloatArray
from ucds.math.kmeans import squared_distances
from ucds.math.spaces import (
    centre,
    diffuse,
    make_spaces,
    mutual_neighbours,
    principal_axes,
    principal_space,
    project,
    reduce_features,
    unit_rows,
)


def normal(n: int, width: int, seed: int = 0) -> FloatArray:
    scales = np.linspace(2, 0.5, width)  # no two directions are alike
    return (scales * np.random.default_rng(seed).normal(size=(n, width))).astype(np.float32)


def test_the_centre_is_that_of_directions_unless_another_is_given() -> None:
    vectors = np.array([[3, 4], [0, 0], [-2, 0]], dtype=np.float32)
    np.testing.assert_allclose(unit_rows(vectors), [[0.6, 0.8], [0, 0], [-1, 0]], atol=1e-7)
    root = np.sqrt(0.5)
    by_hand = [[root, -root], [-root, root]]
    np.testing.assert_allclose(centre(np.array([[5, 0], [0, 1]], dtype=np.float32)), by_hand, atol=1e-6)
    vectors, mean = normal(20, 4), np.array([0.1, 0.2, -0.3, 0.4], dtype=np.float32)
    np.testing.assert_allclose(centre(vectors, mean), unit_rows(unit_rows(vectors) - mean), atol=1e-6)


@pytest.mark.parametrize(("n", "width"), [(60, 8), (5, 8)])
def test_axes_and_scales_are_those_of_the_singular_value_decomposition(n: int, width: int) -> None:
    vectors, count = normal(n, width), min(n, width)
    axes, scales = principal_axes(vectors, 100)
    _, singular, right = np.linalg.svd(vectors.astype(np.float64), full_matrices=False)
    np.testing.assert_allclose(scales, singular, rtol=1e-5)
    np.testing.assert_allclose(np.abs(axes.T @ right.T), np.eye(count), atol=1e-4)
    np.testing.assert_allclose(axes.T @ axes, np.eye(count), atol=1e-5)
    assert (axes[np.abs(axes).argmax(0), np.arange(count)] > 0).all()  # so that signs are no chance


def test_axes_are_as_many_as_asked_for_and_as_the_data_has() -> None:
    assert principal_axes(normal(50, 6), 4)[0].shape == (6, 4)
    flat = normal(50, 2) @ normal(2, 6, seed=1)
    axes, scales = principal_axes(flat, 6)
    assert (axes.shape, scales.shape) == ((6, 2), (2,))
    np.testing.assert_allclose(flat @ axes @ axes.T, flat, atol=1e-4)


def whitened(vectors: FloatArray, width: int, whitening: float) -> FloatArray:
    shifted = vectors - vectors.mean(0)
    return project(shifted, *principal_axes(shifted, width), whitening)


@pytest.mark.parametrize("whitening", [0.0, 0.5, 1.0])
def test_whitening_is_a_power_of_the_scales(whitening: float) -> None:
    vectors = normal(40, 7)
    left, singular, _ = np.linalg.svd(vectors - vectors.mean(0), full_matrices=False)
    expected = unit_rows((left * singular ** (1 - whitening))[:, :5])
    found = whitened(vectors, 5, whitening)
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-4)  # whatever the signs


def test_neighbours_that_only_one_side_acknowledges_do_not_count() -> None:
    line = np.array([[0], [1], [3]], dtype=np.float32)  # 3's nearest is 1, but 1's nearest is 0
    expected = [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]]
    np.testing.assert_allclose(mutual_neighbours(line, 1).toarray(), expected)


@pytest.mark.parametrize("n", [1, 2, 30])
def test_equal_samples_and_few_samples_have_their_own_place(n: int) -> None:
    graph = mutual_neighbours(np.ones((n, 2), np.float32), 5).toarray()
    np.testing.assert_allclose(graph.sum(1), 1, atol=1e-6)
    assert (graph.diagonal() > 0).all()


def test_far_groups_never_mix() -> None:
    one, other = (normal(20, 3, seed) * 0.05 + 4 * np.eye(3)[seed] for seed in (0, 1))
    one, other = (unit_rows(group.astype(np.float32)) for group in (one, other))
    both = np.concatenate([one, other])
    together = diffuse(both, mutual_neighbours(both, 8), 4)
    np.testing.assert_allclose(together[:20], diffuse(one, mutual_neighbours(one, 8), 4), atol=1e-5)
    np.testing.assert_allclose(together[20:], diffuse(other, mutual_neighbours(other, 8), 4), atol=1e-5)
    assert together[:20].var(0).sum() < 0.7 * one.var(0).sum()


@pytest.mark.parametrize(("samples", "clusters", "expected"), [(90, 9, 5), (90, 80, 1), (90, 2, 10)])
def test_a_neighbourhood_is_half_a_cluster_within_bounds(samples: int, clusters: int, expected: int) -> None:
    found = make_spaces(normal(samples, 6), clusters)
    graph = mutual_neighbours(found.principal, expected)
    np.testing.assert_array_equal(found.graph.toarray(), graph.toarray())


def test_spaces_are_what_their_names_say() -> None:
    vectors = normal(90, 6) + 2
    found = make_spaces(vectors, 9, width=4)
    assert tuple(found.vectors) == SPACES
    principal, features = whitened(centre(vectors), 4, 0.5), whitened(centre(vectors), 256, 0.0)
    graph = mutual_neighbours(principal, 5)
    for name, plain in (("principal", principal), ("features", features)):
        np.testing.assert_array_equal(found.vectors[name], plain)  # type: ignore[index]
        np.testing.assert_array_equal(found.vectors[f"diffused-{name}"], diffuse(plain, graph, 3))  # type: ignore[index]
    np.testing.assert_array_equal(found.vectors["features"], reduce_features(vectors))
    chosen = make_spaces(vectors, 9, names=("diffused-features", "principal"))
    assert list(chosen.vectors) == ["diffused-features", "principal"]


@pytest.mark.parametrize("lengths", [False, True])
def test_others_are_seen_in_the_principal_space_as_its_own_samples_are(lengths: bool) -> None:
    vectors = normal(40, 6) + 1
    space, see = principal_space(vectors, lengths)
    np.testing.assert_array_equal(space, make_spaces(vectors, 4, lengths=lengths).principal)
    np.testing.assert_allclose(see(vectors[:7]), space[:7], atol=1e-5)


def test_where_lengths_count_the_space_of_features_keeps_all_distances() -> None:
    vectors, middle = normal(40, 3), np.full((1, 3), 7, np.float32)
    spaces = make_spaces(np.concatenate([vectors, 2 * vectors]) + middle, 5, lengths=True).vectors
    apart = squared_distances(np.concatenate([vectors, 2 * vectors]))
    np.testing.assert_allclose(squared_distances(spaces["features"]), apart, rtol=1e-3, atol=1e-3)
    for name in ("principal", "diffused-features", "diffused-principal"):
        assert np.ptp(np.linalg.norm(spaces[name], axis=1)) > 0.5, name  # type: ignore[index]


@pytest.mark.parametrize(("n", "width"), [(498, 640), (1300, 300)])
def test_the_number_of_threads_changes_no_bit(n: int, width: int) -> None:
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            found.append(make_spaces(normal(n, width), 20).vectors)
    for name, vectors in found[0].items():
        np.testing.assert_array_equal(vectors, found[1][name], err_msg=name)


def test_the_order_and_length_of_samples_do_not_matter() -> None:
    vectors, rng = normal(60, 5) + 1, np.random.default_rng(1)
    order, lengths = rng.permutation(60), rng.uniform(1, 9, size=(60, 1)).astype(np.float32)
    spaces, again = (make_spaces(x, 4).vectors for x in (vectors, (lengths * vectors)[order]))
    for name in spaces:
        np.testing.assert_allclose(again[name], spaces[name][order], atol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    "vectors",
    [np.ones((12, 1)), np.ones((12, 5)), np.zeros((12, 5)), np.arange(12.0)[:, None], np.eye(2, 5)],
    ids=["one constant", "constants", "zeros", "one feature", "two samples"],
)
def test_degenerate_features_give_finite_spaces(vectors: FloatArray) -> None:
    for name, space in make_spaces(vectors.astype(np.float32), 2).vectors.items():
        assert len(space) == len(vectors), name
        assert space.shape[1] >= 1, name
        assert np.isfinite(space).all(), name
