"""Tests of DeepCluster: its k-means against scikit-learn's, its batches, the layer that is forgotten."""

from typing import Any

import numpy as np
import pytest
import torch
from baseline_kit import assert_only_the_seed_decides, session
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.preprocessing import normalize

from ucds.baselines import deepcluster
from ucds.baselines.deepcluster import DeepClusterSettings, cluster_by_deepcluster, make_optimiser, whiten
from ucds.baselines.loop import Clustering, Loop
from ucds.errors import UserError
from ucds.gradients.prediction import encode
from ucds.gradients.prepare import torch_generator
from ucds.math.metrics import clustering_accuracy
from ucds.networks.encoder import identity_network
from ucds.networks.model import ModelOutput
from ucds.training.seeds import derive, numpy_generator

pytestmark = pytest.mark.torch

SETTINGS = DeepClusterSettings(epochs=3, batch_size=32)


def run(data: Any, seed: int = 0, **settings: Any) -> Clustering:
    return cluster_by_deepcluster(session(SETTINGS, seed, **settings), identity_network(24), data, 4)


def test_assignments_are_scikit_learns_on_the_final_features(target: Any) -> None:
    found = run(target)
    features = encode(found.model, target, session().runtime)  # type: ignore[arg-type]
    points = normalize(PCA(16, whiten=True).fit_transform(features.numpy().astype(np.float64)))
    rng = numpy_generator(0, "deepcluster", "k-means", 3)
    start = points[rng.choice(80, 4, replace=False)]
    expected = KMeans(4, init=start, n_init=1, max_iter=20, tol=0, algorithm="lloyd").fit_predict(points)
    np.testing.assert_array_equal(found.labels, expected)


def test_it_finds_clear_clusters(target: Any) -> None:
    found = run(target, epochs=10, principal_components=4)
    assert clustering_accuracy(found.labels, np.arange(80) % 4) == 1.0


def test_the_seed_decides(target: Any) -> None:
    assert_only_the_seed_decides(lambda seed: run(target, seed))


@pytest.mark.filterwarnings("ignore:deepcluster. .* empty:ucds.errors.UcdsWarning")
def test_batches_are_uniform_over_clusters_and_teach_them(
    target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One cluster holds 70 of 80 samples, one none: the others still get a third of every batch each."""
    clusters = torch.zeros(80, dtype=torch.int64)
    clusters[70:75], clusters[75:] = 1, 3

    class Fixed(KMeans):
        def fit_predict(self, *_: Any) -> np.ndarray:
            return clusters.numpy()

    monkeypatch.setattr(deepcluster, "KMeans", Fixed)
    seen, epoch = [], Loop.epoch

    def spied(loop: Loop, sampler: Any) -> Any:
        for batch in epoch(loop, sampler):
            seen.append(clusters[batch.index].bincount(minlength=4).tolist())
            yield batch

    monkeypatch.setattr(Loop, "epoch", spied)
    found = run(target, epochs=40, batch_size=30, learning_rate=0.1)
    assert seen == [[10, 10, 0, 10]] * 40 * 3
    np.testing.assert_array_equal(found.labels, clusters)


@pytest.mark.parametrize("epochs", [1, 2])
def test_the_last_layer_starts_anew_every_epoch(target: Any, epochs: int) -> None:
    found = run(target, epochs=epochs, learning_rate=1e-30)
    generator = torch_generator(derive(0, "deepcluster", "prototypes", epochs - 1))
    expected = torch.empty(16, 4).normal_(0, 0.01, generator=generator)
    assert torch.equal(found.model.state_dict()["prototypes"], expected)


def test_momentum_is_for_the_layers_that_stay(target: Any) -> None:
    model = run(target).model
    groups = make_optimiser(model, SETTINGS).param_groups  # type: ignore[arg-type]
    (without,) = [group for group in groups if group["momentum"] == 0]
    assert [weight is model.prototypes for weight in without["params"]] == [True]
    (others,) = [group for group in groups if group["momentum"] == 0.9]
    assert len(others["params"]) == len(list(model.parameters())) - 1


@pytest.mark.parametrize("rectified", [False, True])
def test_the_last_layer_sees_the_features_after_a_relu(
    target: Any, losses: Any, monkeypatch: pytest.MonkeyPatch, rectified: bool
) -> None:
    def negative(loop: Loop, inputs: torch.Tensor) -> Any:
        return ModelOutput(-torch.ones(len(inputs), 16, requires_grad=True), torch.zeros(0))

    monkeypatch.setattr(Loop, "forward", negative)
    run(target, rectified=rectified, epochs=1)
    of_chance = [terms["pseudo_labels"] == pytest.approx(np.log(4), abs=1e-6) for terms in losses]
    assert of_chance == [rectified] * 3


@pytest.mark.parametrize(("n_clusters", "batch_size"), [(81, 100), (4, 3)])
def test_too_many_clusters_are_refused(target: Any, n_clusters: int, batch_size: int) -> None:
    settings = DeepClusterSettings(batch_size=batch_size)
    with pytest.raises(UserError, match="samples in total and in each batch"):
        cluster_by_deepcluster(session(settings), identity_network(24), target, n_clusters)


def features(n: int, d: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + rng.normal(size=d)


@pytest.mark.parametrize(("n", "d", "components"), [(80, 12, 5), (80, 12, 256), (9, 12, 256)])
def test_kept_components_have_variance_one_and_are_uncorrelated(n: int, d: int, components: int) -> None:
    found = whiten(features(n, d), components)
    assert found.shape == (n, min(components, d, n - 1))  # nine points span eight directions
    np.testing.assert_allclose(np.cov(found.T), np.eye(found.shape[1]), atol=1e-8)


def test_features_without_variance_do_not_divide_by_it() -> None:
    np.testing.assert_array_equal(whiten(np.ones((5, 3)), 256), np.zeros((5, 1)))
