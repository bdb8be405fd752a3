"""Tests of what TURTLE, TEMI and SCP share, and of what all three must do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ucds.baselines.frozen_heads import Neighbours, read_vectors
from ucds.baselines.scp import cluster_by_scp
from ucds.baselines.settings import HeadSettings, SCPSettings, TEMISettings, TURTLESettings
from ucds.baselines.temi import cluster_by_temi
from ucds.baselines.turtle import cluster_by_turtle
from ucds.data.batches import DomainBalancedSampler
from ucds.math.metrics import clustering_accuracy
from ucds.training.runtime import Runtime
from ucds.training.session import Session
from ucds.training.steps import Steps

SMALL: dict[Any, HeadSettings] = {
    cluster_by_turtle: TURTLESettings(steps=40, learning_rate=0.1, inner_learning_rate=0.03, inner_steps=5),
    cluster_by_temi: TEMISettings(
        steps=60,
        batch_size=64,
        learning_rate=0.04,
        heads=3,
        hidden_width=32,
        output_width=16,
        teacher_momentum=0.9,
    ),
    cluster_by_scp: SCPSettings(steps=40, batch_size=64, learning_rate=0.01, hidden_width=32),
}
"""Settings of each method with which a few steps are enough for clear clusters."""

methods = pytest.mark.parametrize("cluster", SMALL, ids=lambda one: one.__name__.removeprefix("cluster_by_"))


def run(cluster: Any, data: Any, seed: int = 0, **settings: Any) -> Any:
    own = SMALL[cluster].model_copy(update=settings)
    return cluster(Session(Runtime(accelerator="cpu", seed=seed), own), data.samples, 4)


@methods
def test_clear_clusters_are_found(cluster: Any, target: Any) -> None:
    found = run(cluster, target)
    assert clustering_accuracy(found.labels, np.arange(80) % 4) == 1.0
    assert found.labels.dtype == np.int64
    assert not found.model.training


@methods
@pytest.mark.filterwarnings("ignore:.* (empty|collapsed):ucds.errors.UcdsWarning")
def test_only_the_seed_decides(cluster: Any, target: Any) -> None:
    torch.manual_seed(1)
    one = run(cluster, target, steps=3)
    torch.manual_seed(2)
    again, other = run(cluster, target, steps=3), run(cluster, target, 1, steps=3)
    states = [list(found.model.state_dict().values()) for found in (one, again, other)]
    assert all(map(torch.equal, states[0], states[1]))
    assert not all(map(torch.equal, states[0], states[2]))
    np.testing.assert_array_equal(one.labels, again.labels)


def test_neighbours_are_the_nearest_by_angle_and_not_the_sample_itself() -> None:
    angles = np.deg2rad([0, 1, 3, 90, 92, 93])
    lengths = np.array([1, 50, 2, 1, 9, 3])[:, None]
    vectors = (lengths * np.stack([np.cos(angles), np.sin(angles)], 1)).astype(np.float32)
    found = Neighbours(vectors, 2, most=50).table  # half a cluster of three, rounded down
    assert found.tolist() == [[1], [0], [1], [4], [5], [4]]
    assert Neighbours(np.repeat(vectors, 4, axis=0), 2, most=5).table.shape == (24, 5)


def test_a_neighbour_of_each_sample_is_drawn(target: Any) -> None:
    settings = HeadSettings(steps=1, batch_size=16)
    session, module = Session(Runtime(accelerator="cpu", seed=0), settings), torch.nn.Linear(24, 2)
    steps = Steps(session, "test", module, torch.optim.SGD(module.parameters(), 0.1), target, 1)
    sampler = DomainBalancedSampler(target.samples.domain, 16, 0)
    vectors = read_vectors(target.samples)
    neighbours = Neighbours(vectors, 4, most=50)
    with steps.open(sampler, 1) as draw:
        batch = draw(0)
    drawn = neighbours.draw(batch).numpy()
    for index, row in zip(batch.index.tolist(), drawn, strict=True):
        assert (vectors[neighbours.table[index]] == row).all(1).any()
        assert not (vectors[index] == row).all()
