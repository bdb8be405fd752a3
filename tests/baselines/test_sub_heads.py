"""Tests of what IIC and ACIDS share: pairs, heads, and the choice among sub-heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ucds.backbones import identity_backbone, module_backbone
from ucds.baselines.joint_information import mutual_information, view_joint
from ucds.baselines.loop import Clustering, Loop
from ucds.baselines.settings import PairSettings
from ucds.baselines.sub_heads import (
    conclude,
    in_pairs,
    make_optimiser,
    pair_probabilities,
    prepare_networks,
    with_best_rate,
)
from ucds.training.prediction import predict

SETTINGS = PairSettings(sub_heads=3, over_clustering=2.5, feature_dropout=0.05)


def networks(session: Any, data: Any, **options: Any) -> Any:
    opened = session(SETTINGS, **options)
    return prepare_networks(opened, identity_backbone(24), data, 4, name="test")


def test_pairs_keep_their_samples() -> None:
    views = torch.arange(2 * 4 * 3.0).view(2, 4, 3)  # two samples, a plain and three changed views
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


def test_heads_are_linear_layers_on_the_encoder(session: Any, target: Any) -> None:
    made, data = networks(session, target)
    heads, inputs = made.heads.eval(), data.samples.read(torch.arange(5).numpy())
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
def test_the_bottleneck_is_there_where_it_must(
    session: Any, target: Any, tune: str, bottleneck: bool, width: int
) -> None:
    made, _ = networks(session, target, tune=tune, bottleneck=bottleneck)
    assert made.heads.clusters.shape[1] == made.whole.prototypes.shape[0] == width
    assert made.trained.encoder is made.heads.encoder
    assert len(made.whole.encoder.bottleneck) == (0 if width == 24 else 2)
    assert made.whole(torch.randn(3, 24)).logits.shape == (3, 4)


def test_a_frozen_backbone_is_not_trained(session: Any, target: Any) -> None:
    backbone = module_backbone(nn.Linear(24, 9), 9)
    made, data = prepare_networks(session(SETTINGS), backbone, target, 4, name="test")
    assert data.samples.read(torch.arange(2).numpy()).shape == (2, 9)
    trained = {id(weight) for weight in made.heads.parameters()}
    assert not trained & {id(weight) for weight in backbone.module.parameters()}
    assert {id(weight) for weight in made.whole.encoder.bottleneck.parameters()} <= trained


@pytest.mark.filterwarnings("ignore:test. .* empty:ucds.errors.UcdsWarning")
def test_the_sub_head_of_lowest_loss_is_taken(session: Any, target: Any) -> None:
    opened = session(SETTINGS)
    made, usual = networks(session, target)
    pairs = in_pairs(identity_backbone(24), usual, SETTINGS)
    with torch.no_grad():
        made.heads.clusters[1] *= 100  # the surer of equals
    loop = Loop(opened, "test", made.heads, make_optimiser(made.heads, SETTINGS), pairs, 1)
    found = conclude(opened, loop, made, pairs, name="test")
    assert torch.equal(made.whole.prototypes, made.heads.clusters[1])
    probabilities = predict(found.model, target.samples, target.view, opened.runtime, 64)  # type: ignore[arg-type]
    assert found.labels.tolist() == probabilities.argmax(1).tolist()
    views = pairs.view.train(
        target.samples.read(torch.arange(80).numpy()), torch.ones(80, 24)
    )  # nothing is dropped
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

    found = with_best_rate(SETTINGS.model_copy(update={"rates": (1e-4, 1e-3, 1e-2)}), train)
    assert (found.labels[0], found.information) == (2, 0.7)
    assert (found.seconds, found.images_seen) == (6.0, 300)
    assert [settings.learning_rate for settings in trained] == [1e-4, 1e-3, 1e-2]
    assert with_best_rate(SETTINGS.model_copy(update={"learning_rate": 5.0}), train).information == 9.0
