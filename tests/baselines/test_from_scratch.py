"""Tests that every baseline trains a whole network on images, from random weights."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from baseline_kit import pictures, session, weights_of

from ucds.baselines.acids import ACIDSSettings, cluster_by_acids
from ucds.baselines.deepcluster import DeepClusterSettings, cluster_by_deepcluster
from ucds.baselines.iic import IICSettings, cluster_by_iic
from ucds.baselines.loop import Clustering
from ucds.baselines.views import sobel_network
from ucds.choices import Precision
from ucds.config import ModelSettings

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::ucds.errors.UcdsWarning")]

Method = Callable[..., Clustering]
SHORT = {"epochs": 1, "batch_size": 6}


def acids(opened: Any, network: Any, data: Any, n_clusters: int) -> Clustering:
    return cluster_by_acids(opened, network, pictures(8, 2), data, n_clusters)


@pytest.mark.parametrize("precision", ["32-true", pytest.param("bf16-mixed", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("cluster", "settings"),
    [
        (cluster_by_deepcluster, DeepClusterSettings(**SHORT)),
        (cluster_by_iic, IICSettings(**SHORT, repeats=1)),
        (acids, ACIDSSettings(source_epochs=1, target_epochs=1, batch_size=8)),
    ],
    ids=["deepcluster", "iic", "acids"],
)
def test_every_weight_learns(cluster: Method, settings: ModelSettings, precision: Precision) -> None:
    start = weights_of(sobel_network(size=16).module)
    opened = session(settings, tune="full", precision=precision)
    found = cluster(opened, sobel_network(size=16), pictures(6), 3)
    assert found.labels.shape == (6,)
    weights = weights_of(found.model.encoder.backbone)  # type: ignore[union-attr]
    assert weights.keys() == start.keys()
    for name, weight in weights.items():
        assert not torch.equal(weight, start[name]), name
