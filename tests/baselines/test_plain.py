"""Tests of the plain clusterings of frozen features."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from ucds.baselines.plain import gaussian_mixture, kmeans, spectral, spherical_kmeans, umap_kmeans, ward
from ucds.math.arrays import FloatArray
from ucds.math.spaces import unit_rows

pytestmark = pytest.mark.torch

K = 4
PLAIN = {f.__name__: f for f in (kmeans, spherical_kmeans, gaussian_mixture, ward, spectral, umap_kmeans)}
# UMAP is compiled at its first use, which takes a quarter of a minute.
NAMES = [pytest.param(name, marks=pytest.mark.slow) if "umap" in name else name for name in PLAIN]


def groups(n: int = 60, noise: float = 0.15, seed: int = 0) -> tuple[FloatArray, np.ndarray]:
    """Unit vectors around K orthogonal directions, and the direction of each."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % K
    return unit_rows((np.eye(8)[truth] + noise * rng.normal(size=(n, 8))).astype(np.float32)), truth


@pytest.mark.parametrize("name", NAMES)
def test_clear_groups_are_found(name: str) -> None:
    vectors, truth = groups()
    labels = PLAIN[name](vectors, K, 0)
    assert labels.dtype == np.int64
    assert adjusted_rand_score(truth, labels) == 1


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_decides(name: str) -> None:
    vectors, _ = groups(noise=0.8)
    np.testing.assert_array_equal(PLAIN[name](vectors, K, 3), PLAIN[name](vectors, K, 3))


def test_spherical_kmeans_ends_at_a_fixed_point_with_no_cluster_empty() -> None:
    vectors, _ = groups(noise=0.8)
    labels = spherical_kmeans(vectors, 12, 0)
    assert len(np.unique(labels)) == 12
    centres = unit_rows(np.stack([vectors[labels == k].sum(0) for k in range(12)]))
    np.testing.assert_array_equal((vectors @ centres.T).argmax(1), labels)


@pytest.mark.parametrize("name", NAMES)
def test_the_length_of_a_vector_does_not_matter(name: str) -> None:
    vectors, _ = groups(noise=0.6)
    stretched = vectors * 2.0 ** (np.arange(len(vectors)) % 7)[:, None].astype(np.float32)
    np.testing.assert_array_equal(PLAIN[name](stretched, K, 0), PLAIN[name](vectors, K, 0))


def test_kmeans_keeps_the_best_of_its_starts() -> None:
    vectors, _ = groups(n=200, noise=0.6)
    one, many = (
        sum(((vectors[labels == k] - vectors[labels == k].mean(0)) ** 2).sum() for k in range(12))
        for labels in (kmeans(vectors, 12, 0, starts=starts) for starts in (1, 30))
    )
    assert many < one


@pytest.mark.slow
@pytest.mark.parametrize("n", [5, 12])
def test_umap_takes_fewer_samples_than_its_neighbours_and_dimensions(n: int) -> None:
    vectors, _ = groups(n)
    assert len(np.unique(umap_kmeans(vectors, 3, 0))) == 3
