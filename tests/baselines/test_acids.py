"""Tests of ACIDS: source weights, aligned statistics, clusters that do not depend on the domain."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from baseline_kit import assert_only_the_seed_decides, pictures, read_all, session
from torch import nn

from ucds.baselines import acids
from ucds.baselines.acids import (
    AcidsModel,
    ACIDSSettings,
    DomainNorm,
    adapt_acids,
    domain_joint,
    estimate_statistics,
    learn_acids,
    merge_norms,
    split_norms,
)
from ucds.baselines.iic import mutual_information, view_joint
from ucds.baselines.loop import Clustering
from ucds.baselines.views import sobel_network
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.errors import UserError
from ucds.math.metrics import clustering_accuracy
from ucds.networks.encoder import identity_network

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:acids.* (empty|collapsed):ucds.errors.UcdsWarning"),
]

SETTINGS = ACIDSSettings(
    source_epochs=2,
    target_epochs=2,
    batch_size=32,
    sub_heads=3,
    over_clustering=2,
    feature_dropout=0.1,
    domain_warm_up=1,
)

EASY = {
    "source_epochs": 100,
    "target_epochs": 10,
    "batch_size": 104,
    "learning_rate": 0.1,
    "sub_heads": 5,
    "joint_weight": 1.0,
}
"""For the few large batches of these tests."""


def learn(data: Any, seed: int = 0, **settings: Any) -> AcidsModel:
    return learn_acids(session(SETTINGS, seed, **settings), identity_network(24), data, 4)


def adapt(model: AcidsModel, data: Any, seed: int = 0, **settings: Any) -> Clustering:
    return adapt_acids(session(SETTINGS, seed, **settings), model, data)


def test_it_finds_clear_clusters_on_the_target(source: Any, target: Any) -> None:
    easy = EASY | {"source_epochs": 15, "target_epochs": 5}
    model = learn(source, **easy)
    found = adapt(model, target, **easy)
    assert model.networks.heads.over.std() > 0.1  # both heads learn, from 0.01
    assert clustering_accuracy(found.labels, np.arange(80) % 4) == 1.0


def test_the_seed_decides(source: Any, target: Any) -> None:
    assert_only_the_seed_decides(lambda seed: adapt(learn(source, seed), target, seed))


def test_the_target_starts_from_the_source_weights_and_leaves_them(source: Any, target: Any) -> None:
    model = learn(source)
    before = copy.deepcopy(model.networks.heads.state_dict())
    found = adapt(model, target, learning_rate=1e-30, target_epochs=1)
    prototypes = found.model.state_dict()["prototypes"]
    assert any(torch.equal(prototypes, head) for head in before["clusters"])
    linear = "encoder.bottleneck.linear.weight"
    assert torch.equal(found.model.state_dict()[linear], before[linear])
    moved = adapt(model, target)
    assert not torch.equal(moved.model.state_dict()[linear], before[linear])
    after = model.networks.heads.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_the_targets_statistics_are_its_own(source: Any, target: Any) -> None:
    model = learn(source)
    found = adapt(model, target)
    bottleneck: Any = found.model.encoder.bottleneck  # type: ignore[union-attr]
    assert isinstance(bottleneck.norm, nn.BatchNorm1d)
    features = bottleneck.linear(read_all(target))
    torch.testing.assert_close(bottleneck.norm.running_mean, features.mean(0), atol=1e-4, rtol=1e-4)
    split: Any = model.networks.trained.encoder.bottleneck[1]
    means = [norm.running_mean for norm in split.norms]
    assert len(means) == 2
    assert not torch.allclose(means[0], means[1], atol=0.05)


@pytest.mark.parametrize(
    ("name", "value"),
    [("confidence", 0.1), ("joint_weight", 1.0), ("feature_dropout", 0.4), ("batch_size", 40)],
)
def test_the_settings_reach_the_target(source: Any, target: Any, name: str, value: float) -> None:
    model = learn(source)
    ends = [adapt(model, target, **change).model.state_dict() for change in ({}, {name: value})]
    assert not torch.equal(ends[0]["prototypes"], ends[1]["prototypes"])


def test_what_it_cost_includes_the_source(source: Any, target: Any) -> None:
    model = learn(source)
    assert model.images_seen == 2 * 2 * 4 * 32 * 2  # epochs, heads, steps, samples, views
    found = adapt(model, target)
    assert found.images_seen == model.images_seen + 2 * 2 * 3 * 32 * 2
    assert found.seconds > model.seconds > 0


@pytest.mark.parametrize(
    ("warm_up", "alike", "weights"),
    [(0, True, [10, 10, 10, 10]), (2, True, [0, 5, 10, 10]), (0, False, [0, 0, 0, 0])],
)
def test_the_domain_is_to_be_told_from_neither_view_by_a_weight_that_warms_up(
    source: Any,
    losses: Any,
    monkeypatch: pytest.MonkeyPatch,
    warm_up: int,
    alike: bool,
    weights: list[float],
) -> None:
    """The first view tells the domain. The second one does so too, or tells the opposite of it."""
    first = (torch.eye(2).repeat_interleave(16, 0).repeat(1, 2) / 2).expand(3, 32, 4)
    second = first if alike else first.flip(-1)
    monkeypatch.setattr(acids, "pair_probabilities", lambda *_: (first.clone().requires_grad_(), second))
    learn(source, source_epochs=4, domain_warm_up=warm_up, joint_weight=1.0)
    expected = np.log(2) * np.repeat(weights, 2 * 4)  # heads, steps
    np.testing.assert_allclose([terms["domain"] for terms in losses], expected, atol=1e-5)
    np.testing.assert_allclose([terms["information"] for terms in losses], -np.log(2), atol=1e-5)


def test_the_domain_term_makes_clusters_independent_of_the_domain() -> None:
    """Two groups, one of which is frequent in one domain and the other in the other."""
    rng = np.random.default_rng(0)
    sizes = {"a": [52, 12], "b": [12, 52]}
    domains = {d: rng.normal(size=(64, 6)) + 6 * np.eye(6)[np.repeat([0, 1], n)] for d, n in sizes.items()}
    data = Dataset(VectorSamples.from_arrays(domains))
    about_domain, about_view = {}, {}
    for weight in (0.0, 10.0):
        values = EASY | {"batch_size": 128, "domain_weight": weight, "source_epochs": 80}
        settings = SETTINGS.model_copy(update=values)
        model = learn_acids(session(settings), identity_network(6), data, 2)
        with torch.no_grad():
            p = model.networks.heads(read_all(data), False).softmax(-1)
        about_domain[weight] = mutual_information(domain_joint(p, (64, 64))).mean().item()
        about_view[weight] = mutual_information(view_joint(p, p)).mean().item()
    assert about_domain[0.0] > 0.05
    assert about_domain[10.0] < 0.005  # dropout and the processor's rounding make 0.0006 to 0.0017 of it
    assert min(about_view.values()) > 0.9 * np.log(2)


def test_images_through_a_frozen_backbone() -> None:
    network = sobel_network(size=32)
    start = copy.deepcopy(network.module.state_dict())
    settings = ACIDSSettings(source_epochs=1, target_epochs=1, batch_size=8)
    model = learn_acids(session(settings), network, pictures(12, 2), 3)
    found = adapt_acids(session(settings), model, pictures(6))
    state = found.model.state_dict()
    assert all(torch.equal(weight, start[name]) for name, weight in network.state().items())
    assert state["encoder.bottleneck.norm.running_mean"].shape == (16,)
    assert found.model(torch.rand(2, network.spec.width)).logits.shape == (2, 3)
    frozen = sum(weight.numel() for weight in network.module.parameters())
    assert found.parameters > frozen


def test_what_has_no_batch_normalisation_is_refused(source: Any) -> None:
    with pytest.raises(UserError, match="aligns domains by batch normalisation"):
        learn(source, tune="full")


def test_a_domain_with_one_sample_a_batch_is_refused(source: Any) -> None:
    with pytest.raises(UserError, match="2 samples of each domain in a batch; enlarge the batch"):
        learn(source, batch_size=3)


COUNTS = (6, 10)


def batch(*shape: int) -> torch.Tensor:
    values = torch.randn(16, *shape, generator=torch.Generator().manual_seed(0))
    values[:6] = 5 * values[:6] + 3
    return values


def network() -> nn.Sequential:
    torch.manual_seed(0)
    made = nn.Sequential(
        nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))
    )
    nn.init.normal_(made[1].weight)
    nn.init.normal_(made[1].bias)
    return made


def test_each_domain_has_statistics_of_its_own_and_no_other_parameters() -> None:
    together, alone = network(), [network(), network()]
    split_norms(together, COUNTS)
    inputs = batch(4)
    expected = torch.cat([own(part) for own, part in zip(alone, torch.split(inputs, COUNTS), strict=True)])
    torch.testing.assert_close(together(inputs), expected)
    assert isinstance(together[1], DomainNorm)
    first, second = together[1].norms
    for norm, own in zip((first, second), alone, strict=True):
        torch.testing.assert_close(norm.running_mean, own[1].running_mean)
    assert first.weight is second.weight  # scale and shift are shared
    assert first.bias is second.bias


def test_layers_that_do_more_than_normalise_keep_doing_it() -> None:
    from timm.layers import BatchNormAct2d

    layer = BatchNormAct2d(3)
    expected = torch.cat([copy.deepcopy(layer)(part) for part in torch.split(batch(3, 4, 4), COUNTS)])
    split = nn.Sequential(layer)
    split_norms(split, COUNTS)
    torch.testing.assert_close(split(batch(3, 4, 4)), expected)
    assert expected.min() == 0  # its rectifier


def test_merging_undoes_splitting() -> None:
    original, changed = network(), network()
    split_norms(changed, COUNTS)
    merge_norms(changed)
    assert changed.state_dict().keys() == original.state_dict().keys()
    torch.testing.assert_close(changed(batch(4)), original(batch(4)))


def test_statistics_of_several_batches_are_their_mean() -> None:
    rows = np.array([[0.0], [2.0], [4.0], [6.0], [10.0]], dtype=np.float32)
    data, norm = Dataset(VectorSamples(rows)), nn.BatchNorm1d(1)
    norm(torch.randn(30, 1))  # leaves statistics behind
    order = np.random.default_rng(3).permutation(5)
    estimate_statistics(nn.Sequential(norm), data, session().runtime, 2, np.random.default_rng(3))
    parts = [rows[order[:3]], rows[order[3:]]]  # no batch of one
    assert norm.running_mean.item() == pytest.approx(np.mean([p.mean() for p in parts]), rel=1e-6)
    assert norm.running_var.item() == pytest.approx(np.mean([p.var(ddof=1) for p in parts]), rel=1e-6)
    assert norm.momentum == 0.1
