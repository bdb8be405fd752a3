"""Tests of IIC: its mathematics, pairs and heads; it finds clusters, and only the seed decides."""

from typing import Any

import numpy as np
import pytest
import torch
from baseline_kit import assert_only_the_seed_decides, read_all, session
from sklearn.metrics import mutual_info_score
from torch import Tensor, nn
from torch.nn.functional import one_hot

from ucds.baselines.acids import RunningJoint, domain_joint, harden
from ucds.baselines.iic import (
    IICSettings,
    PairSettings,
    cluster_by_iic,
    conclude,
    in_pairs,
    make_loop,
    mutual_information,
    pair_probabilities,
    prepare_networks,
    view_joint,
    with_best_rate,
)
from ucds.baselines.loop import Clustering
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.gradients.prediction import predict
from ucds.gradients.views import in_training
from ucds.math.metrics import clustering_accuracy
from ucds.networks.encoder import identity_network

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:iic.* (empty|collapsed):ucds.errors.UcdsWarning"),
]

SETTINGS = IICSettings(
    epochs=2, batch_size=32, repeats=2, sub_heads=3, over_clustering=2, feature_dropout=0.1
)
PAIRS = PairSettings(sub_heads=3, over_clustering=2.5, feature_dropout=0.05)
EASY = {"epochs": 60, "batch_size": 80, "sub_heads": 5, "learning_rate": 0.1}


def run(data: Any, seed: int = 0, **settings: Any) -> Clustering:
    return cluster_by_iic(session(SETTINGS, seed, **settings), identity_network(24), data, 4)


def test_it_descends_on_the_mutual_information_of_pairs_to_clear_clusters(target: Any, losses: Any) -> None:
    found = run(target, **EASY)
    assert clustering_accuracy(found.labels, np.arange(80) % 4) == 1.0
    sums = [sum(terms.values()) for terms in losses]
    assert sums[0] == pytest.approx(0, abs=0.01)
    assert -np.log(8) < min(sums) < -np.log(4)  # the over-clustering head has eight outputs
    assert np.mean(sums[-3:]) == pytest.approx(-np.log(4), abs=0.25)


def test_the_seed_decides(target: Any) -> None:
    assert_only_the_seed_decides(lambda seed: run(target, seed))


def test_domains_are_of_no_meaning(source: Any) -> None:
    alike = Dataset(VectorSamples(read_all(source).numpy()), source.view)
    np.testing.assert_array_equal(run(source).labels, run(alike).labels)


def networks(data: Any, **options: Any) -> Any:
    opened = session(PAIRS, **options)
    return prepare_networks(opened, identity_network(24), data, 4, name="test")


def test_pairs_keep_their_samples() -> None:
    views = torch.randn(2, 4, 3)  # two samples, a plain and three changed views
    seen: list[torch.Tensor] = []

    def forward(inputs: torch.Tensor, over: bool) -> torch.Tensor:
        assert over
        seen.append(inputs)
        return torch.stack([inputs, 2 * inputs])

    first, second = pair_probabilities(forward, views, True)
    assert [len(inputs) for inputs in seen] == [2, 6]  # the plain views pass once
    assert first.shape == second.shape == (2, 6, 3)
    for r in range(3):
        for i in range(2):
            torch.testing.assert_close(first[0, 2 * r + i], views[i, 0].softmax(-1))
            torch.testing.assert_close(second[1, 2 * r + i], (2 * views[i, 1 + r]).softmax(-1))


def test_heads_are_linear_layers_on_the_encoder(target: Any) -> None:
    made, data = networks(target)
    heads, inputs = made.heads.eval(), read_all(data)
    assert heads.over.shape == (3, 16, 10)
    assert heads.clusters.shape == (3, 16, 4)
    for name in ("over", "clusters"):
        assert getattr(heads, name).std().item() == pytest.approx(0.01, rel=0.15)
    features = heads.encoder(inputs)
    torch.testing.assert_close(heads(inputs, True)[1], features @ heads.over[1])
    torch.testing.assert_close(heads(inputs, False)[2], features @ heads.clusters[2])


@pytest.mark.parametrize(
    ("tune", "bottleneck", "width"), [("full", False, 24), ("full", True, 16), ("head", False, 16)]
)
def test_the_bottleneck_is_there_where_it_must(target: Any, tune: str, bottleneck: bool, width: int) -> None:
    made, _ = networks(target, tune=tune, bottleneck=bottleneck)
    assert made.heads.clusters.shape[1] == made.trained.prototypes.shape[0] == width
    assert made.trained.encoder is made.heads.encoder
    assert len(made.trained.encoder.bottleneck) == (0 if width == 24 else 2)
    assert made.trained(torch.randn(3, 24)).logits.shape == (3, 4)


@pytest.mark.filterwarnings("ignore:test. .* empty:ucds.errors.UcdsWarning")
def test_the_sub_head_of_lowest_loss_is_taken(target: Any) -> None:
    opened = session(PAIRS)
    made, usual = networks(target)
    pairs = in_pairs(identity_network(24), usual, PAIRS)
    with torch.no_grad():
        made.heads.clusters[1] *= 100  # the surer of equals
    loop = make_loop(opened, "test", made.heads, pairs, 1)
    found = conclude(opened, loop, made, pairs, name="test")
    assert torch.equal(made.trained.prototypes, made.heads.clusters[1])
    probabilities = predict(found.model, target, opened.runtime, 64)  # type: ignore[arg-type]
    assert found.labels.tolist() == probabilities.argmax(1).tolist()
    views = in_training(pairs.view).train(read_all(target), torch.ones(80, 24))  # nothing is dropped
    losses = -mutual_information(view_joint(*pair_probabilities(made.heads, views, False)))
    assert losses.argmin() == 1
    assert found.information == pytest.approx(-losses.min().item(), abs=0.2)  # features are dropped there
    assert not found.model.training


def test_the_rate_of_lowest_loss_is_taken_at_the_cost_of_all() -> None:
    information, trained = {1e-4: 0.1, 1e-3: 0.7, 1e-2: 0.3, 5.0: 9.0}, []

    def train(settings: PairSettings) -> Clustering:
        trained.append(settings)
        labels = np.full(3, len(trained))
        return Clustering(labels, 2.0, 100, nn.Identity(), information[settings.learning_rate])

    found = with_best_rate(PAIRS.model_copy(update={"rates": (1e-4, 1e-3, 1e-2)}), train)
    assert (found.labels[0], found.information) == (2, 0.7)
    assert (found.seconds, found.images_seen) == (6.0, 300)
    assert [settings.learning_rate for settings in trained] == [1e-4, 1e-3, 1e-2]
    assert with_best_rate(PAIRS.model_copy(update={"learning_rate": 5.0}), train).information == 9.0


def probabilities(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).softmax(-1)


def test_mutual_information_of_labels_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    one, two = rng.integers(40, size=2000), rng.integers(30, size=2000)  # many pairs are rare, some missing
    pairs = one_hot(torch.from_numpy(one)).double().T @ one_hot(torch.from_numpy(two)).double() / 2000
    assert mutual_information(pairs).item() == pytest.approx(mutual_info_score(one, two), abs=1e-10)


def test_the_joint_of_views_by_hand() -> None:
    first = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    second = torch.tensor([[0.6, 0.4], [0.0, 1.0]])
    one_way = (torch.outer(first[0], second[0]) + torch.outer(first[1], second[1])) / 2
    torch.testing.assert_close(view_joint(first, second), (one_way + one_way.T) / 2)
    torch.testing.assert_close(view_joint(second, first), view_joint(first, second))


def test_the_joint_with_domains_by_hand() -> None:
    p = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
    expected = torch.tensor([[0.9, 0.1], [0.7, 1.3]]) / 3
    torch.testing.assert_close(domain_joint(p, (1, 2)), expected)


def test_sub_heads_are_a_batch() -> None:
    first, second = probabilities(3, 20, 4), probabilities(3, 20, 4, seed=1)
    for h in range(3):
        torch.testing.assert_close(view_joint(first, second)[h], view_joint(first[h], second[h]))
        torch.testing.assert_close(domain_joint(first, (8, 12))[h], domain_joint(first[h], (8, 12)))
    together = mutual_information(view_joint(first, second))
    assert together.shape == (3,)
    torch.testing.assert_close(together[2], mutual_information(view_joint(first[2], second[2])))


def test_certain_predictions_give_finite_gradients() -> None:
    logits = torch.tensor([[400.0, 0.0, 0.0], [0.0, 400.0, 0.0]], requires_grad=True)
    p = logits.softmax(-1)
    (-mutual_information(view_joint(p, p)) + mutual_information(domain_joint(p, (1, 1)))).backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_the_running_joint_is_an_average_whose_past_is_constant() -> None:
    running = RunningJoint(0.25)
    one = torch.tensor([[0.5, 0.1], [0.1, 0.3]], requires_grad=True)
    two = torch.tensor([[0.2, 0.3], [0.3, 0.2]], requires_grad=True)
    torch.testing.assert_close(running(one), 0.25 * one + 0.75 * torch.full((2, 2), 0.25))
    average = running(two)
    torch.testing.assert_close(average, 0.25 * two + 0.75 * (0.25 * one + 0.75 * 0.25))
    mutual_information(average).backward()
    assert one.grad is None
    assert two.grad is not None
    torch.testing.assert_close(RunningJoint(1.0)(two), two)


def test_only_sure_predictions_become_certain() -> None:
    logits = torch.tensor([[3.0, 0.0], [1.0, 0.0]], requires_grad=True)
    p = logits.softmax(-1)
    hard = harden(p, 0.9)
    assert hard[0].tolist() == [1.0, 0.0]
    assert torch.equal(hard[1], p[1])
    hard[:, 0].sum().backward()
    assert logits.grad is not None
    assert logits.grad[0].tolist() == [0.0, 0.0]
    assert logits.grad[1, 0] > 0
    assert torch.equal(harden(p, 1.1), p)
