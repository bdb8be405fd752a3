"""Tests of IIC: it finds clusters, both heads take part, and only the seed decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ucds.backbones import identity_backbone
from ucds.baselines.iic import cluster_by_iic
from ucds.baselines.loop import Clustering, Loop
from ucds.baselines.settings import IICSettings
from ucds.baselines.sobel import sobel_backbone
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.errors import UserError
from ucds.math.metrics import clustering_accuracy

pytestmark = pytest.mark.filterwarnings("ignore:iic.* (empty|collapsed):ucds.errors.UcdsWarning")

SETTINGS = IICSettings(
    epochs=2, batch_size=32, repeats=2, sub_heads=3, over_clustering=2, feature_dropout=0.1
)

EASY = {"epochs": 100, "batch_size": 80, "sub_heads": 5, "learning_rate": 0.1}


def run(session: Any, data: Any, seed: int = 0, **settings: Any) -> Clustering:
    return cluster_by_iic(session(SETTINGS, seed, **settings), identity_backbone(24), data, 4)


def test_defaults_are_the_authors() -> None:
    settings = IICSettings()
    assert (settings.batch_size * settings.repeats, settings.sub_heads) == (700, 5)
    assert (settings.over_clustering, settings.learning_rate) == (7, 1e-4)
    assert settings.crop == pytest.approx(64 / 96)
    with pytest.raises(
        UserError, match=r"^bad settings: unknown setting 'heads', did you mean 'sub_heads'\?$"
    ):
        IICSettings.from_mapping({"heads": 3})


def test_it_finds_clear_clusters(session: Any, target: Any) -> None:
    found = run(session, target, **EASY)
    assert clustering_accuracy(found.labels, np.arange(80) % 4) == 1.0


def test_the_seed_decides(session: Any, target: Any) -> None:
    one, again, other = (run(session, target, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.labels, again.labels)
    states = [found.model.state_dict() for found in (one, again, other)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not torch.equal(states[0]["prototypes"], states[2]["prototypes"])


def test_every_view_counts_as_seen(session: Any, target: Any) -> None:
    found = run(session, target)
    assert found.images_seen == 2 * 2 * 3 * 32 * (1 + 2)  # epochs, heads, steps, samples, views
    assert found.labels.shape == (80,)
    assert found.labels.dtype == np.int64


def test_the_heads_take_turns(session: Any, target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[bool] = []
    forward = Loop.forward

    def spied(loop: Loop, inputs: torch.Tensor, over: bool) -> Any:
        turns.append(over)
        return forward(loop, inputs, over)

    monkeypatch.setattr(Loop, "forward", spied)
    run(session, target)
    assert turns == ([True] * 6 + [False] * 6) * 2  # three steps of two passes each


def test_domains_are_of_no_meaning(session: Any, source: Any) -> None:
    alike = Dataset(VectorSamples(source.samples.read(np.arange(len(source.samples))).numpy()), source.view)
    np.testing.assert_array_equal(run(session, source).labels, run(session, alike).labels)


@pytest.mark.parametrize("precision", ["32-true", pytest.param("bf16-mixed", marks=pytest.mark.slow)])
@pytest.mark.parametrize("bottleneck", [False, True])
def test_images_from_random_weights(session: Any, pictures: Any, bottleneck: bool, precision: str) -> None:
    backbone = sobel_backbone(size=32)
    start = {name: weight.detach().clone() for name, weight in backbone.module.named_parameters()}
    settings = IICSettings(epochs=1, batch_size=6, repeats=1, bottleneck=bottleneck)
    found = cluster_by_iic(session(settings, tune="full", precision=precision), backbone, pictures(6), 3)
    assert found.labels.shape == (6,)
    for name, weight in backbone.module.named_parameters():
        assert not torch.equal(weight, start[name]), name


def test_a_step_descends_on_the_mutual_information_of_pairs(
    session: Any, target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses: list[float] = []
    update = Loop.update

    def spied(loop: Loop, **terms: torch.Tensor) -> None:
        losses.append(sum(term.item() for term in terms.values()))
        update(loop, **terms)

    monkeypatch.setattr(Loop, "update", spied)
    run(session, target, **EASY)
    assert losses[0] == pytest.approx(0, abs=0.01)
    assert min(losses) > -np.log(8)  # the over-clustering head has eight outputs
    assert np.mean(losses[-3:]) == pytest.approx(-np.log(4), abs=0.25)
