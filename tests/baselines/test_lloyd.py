"""Tests of k-means and whitening against scikit-learn's, and of what happens to empty clusters."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.preprocessing import normalize

from ucds.baselines.lloyd import kmeans, lloyd, whiten


def features(n: int, d: int, seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + rng.normal(size=d))


@pytest.mark.parametrize(("n", "d", "components"), [(80, 12, 5), (80, 12, 256), (9, 12, 256)])
def test_whitening_is_scikit_learns(n: int, d: int, components: int) -> None:
    points = features(n, d)
    found = whiten(points, components).numpy()
    kept = min(components, d, n - 1)  # nine points span eight directions
    expected = PCA(kept, whiten=True, svd_solver="full").fit_transform(points.numpy())
    signs = np.sign((found * expected).sum(0))
    np.testing.assert_allclose(found * signs, expected, rtol=1e-6, atol=1e-8)


def test_features_without_variance_do_not_divide_by_it() -> None:
    assert torch.equal(whiten(torch.ones(5, 3), 256), torch.zeros(5, 1, dtype=torch.float64))


@pytest.mark.parametrize("k", [2, 5, 17])
def test_assignments_are_scikit_learns_on_fixed_features(k: int) -> None:
    points = torch.from_numpy(normalize(features(300, 8).numpy()))
    start = points[:k]
    reference = KMeans(k, init=start.numpy(), n_init=1, max_iter=500, tol=0, algorithm="lloyd").fit(points)
    found = lloyd(points, start, np.random.default_rng(0), 500)
    np.testing.assert_array_equal(found.numpy(), reference.labels_)


def test_it_stops_after_the_iterations_it_is_given() -> None:
    points = features(300, 8)
    labels = torch.cdist(points, points[:9]).argmin(1)
    means = torch.stack([points[labels == k].mean(0) for k in range(9)])
    once = lloyd(points, points[:9], np.random.default_rng(0), 1)
    assert torch.equal(once, torch.cdist(points, means).argmin(1))
    assert not torch.equal(once, lloyd(points, points[:9], np.random.default_rng(0), 100))


def test_an_empty_cluster_gets_a_share_of_another_one() -> None:
    points = features(60, 4) + 100
    far = torch.full((1, 4), 1e6, dtype=torch.float64)
    labels = lloyd(points, torch.cat([points[:3], far]), np.random.default_rng(0), 100)
    assert labels.bincount(minlength=4).min() > 0


def test_points_that_coincide_are_not_torn_apart() -> None:
    points = features(2, 4).repeat_interleave(20, dim=0)
    labels = lloyd(points, points[:5], np.random.default_rng(0), 50)
    assert len(set(labels[:20].tolist())) == len(set(labels[20:].tolist())) == 1
    assert labels[0] != labels[20]


def test_the_generator_decides_the_start() -> None:
    points = features(200, 6)
    one, again, other = (kmeans(points, 12, np.random.default_rng(seed), 30) for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
