"""Tests of the embedding of neighbours: its graph, its descent, and UMAP beside it."""

import warnings

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.manifold import trustworthiness
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from ucds.math.arrays import FloatArray, IntArray
from ucds.math.embedding import embed, link_neighbours, place_all
from ucds.math.metrics import clustering_accuracy
from ucds.math.spaces import reduce_features, unit_rows

TRUTH = np.arange(150) % 5


def blobs(noise: float, width: int = 12) -> FloatArray:
    draw = np.random.default_rng(0).normal(size=(len(TRUTH), width))
    return unit_rows((np.eye(width)[TRUTH] + noise * draw).astype(np.float32))


def unequal() -> tuple[FloatArray, IntArray]:
    """Groups of unequal sizes and of no common width."""
    truth = np.repeat(np.arange(5), [100, 60, 40, 30, 20])
    draw = np.random.default_rng(0).normal(size=(len(truth), 12)) * (0.1 + 0.05 * truth[:, None])
    return unit_rows((np.eye(12)[truth] + draw).astype(np.float32)), truth


def digits() -> tuple[FloatArray, IntArray]:
    found = load_digits()
    return reduce_features(found.data[:450].astype(np.float32)), found.target[:450]


def place(vectors: FloatArray, seed: int = 0, width: int = 20, steps: int = 300) -> FloatArray:
    return embed(vectors, width, np.random.default_rng(seed), neighbours=10, steps=steps)


def accuracy(placed: FloatArray, truth: IntArray) -> float:
    found = KMeans(truth.max() + 1, n_init=10, random_state=0).fit_predict(placed)
    return 100 * clustering_accuracy(found.astype(np.int64), truth)


def test_surenesses_sum_to_the_logarithm_and_the_nearest_neighbour_is_sure() -> None:
    vectors, count = blobs(0.3), 8
    graph = link_neighbours(vectors, count).toarray()
    np.testing.assert_array_equal(graph, graph.T)
    assert (np.diag(graph) == 0).all()
    distances = 1 - vectors.astype(np.float64) @ vectors.T
    np.fill_diagonal(distances, np.inf)
    one_way = np.zeros_like(distances)
    for row, (far, own) in enumerate(zip(distances, one_way, strict=True)):
        nearest = np.argsort(far)[: count - 1]
        assert graph[row, nearest[0]] == pytest.approx(1)
        low, high = 1e-9, 1e3
        for _ in range(200):
            scale = np.sqrt(low * high)
            own[nearest] = np.exp(-(far[nearest] - far[nearest[0]]) / scale)
            low, high = (low, scale) if own.sum() > np.log2(count) else (scale, high)
    np.testing.assert_allclose(graph, one_way + one_way.T - one_way * one_way.T, atol=1e-4)


def descend(vectors: FloatArray, width: int, steps: int, seed: int) -> np.ndarray:
    """UMAP's descent, sample by sample: all pull along their links, and 64 samples that change repel all."""
    a, b, rng = 1.929, 0.7915, np.random.default_rng(seed)
    links = link_neighbours(vectors, 10).toarray()
    places, order = rng.uniform(-10, 10, (len(vectors), width)), rng.permutation(len(vectors))
    links[links < links.max() / steps] = 0
    for step in range(steps):
        repelling = [order[i % len(order)] for i in range(64 * step, 64 * (step + 1))]
        moved = places.copy()
        for i, place in enumerate(places):
            force = np.zeros(width)
            for j in np.flatnonzero(links[i]):
                square = ((places[j] - place) ** 2).sum()
                pull = 4 * a * b * square ** (b - 1) / (1 + a * square**b)
                force += links[i, j] * pull * (places[j] - place)
            for j in set(repelling) - {i}:
                square = ((places[j] - place) ** 2).sum()
                push = 2 * b / ((0.001 + square) * (1 + a * square**b))
                force += 5 / 64 * links[i].sum() * push * (place - places[j])
            force *= 1 - step / steps
            moved[i] += force * min(1, 4 / np.linalg.norm(force))
        places = moved
    return places


@pytest.mark.parametrize(("width", "steps"), [(2, 6), (20, 3)])
def test_the_descent_is_that_of_single_samples(width: int, steps: int) -> None:
    found = place(blobs(0.3), 1, width, steps)
    np.testing.assert_allclose(found, descend(blobs(0.3), width, steps, 1), atol=0.01)


@pytest.mark.slow  # umap-learn compiles itself anew
@pytest.mark.parametrize(
    ("vectors", "truth"),
    [(blobs(0.3), TRUTH), unequal(), digits()],
    ids=["blobs", "unequal", "digits"],
)
def test_kmeans_finds_the_groups_as_it_does_beside_umap(vectors: FloatArray, truth: IntArray) -> None:
    umap = pytest.importorskip("umap")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reducer = umap.UMAP(10, 20, min_dist=0.0, metric="cosine", random_state=0, n_jobs=1)
        theirs = accuracy(reducer.fit_transform(vectors), truth)
    assert theirs <= np.mean([accuracy(place(vectors, seed), truth) for seed in range(3)]) + 1


@pytest.mark.parametrize("width", [2, 20])
def test_equal_seeds_give_equal_positions_for_any_number_of_threads(width: int) -> None:
    vectors = blobs(0.3)
    found = []
    for threads in (1, 3):
        with threadpool_limits(threads):
            found.append(place(vectors, width=width, steps=20))
    assert np.array_equal(*found)
    assert not np.array_equal(found[0], place(vectors, seed=1, width=width, steps=20))


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
