"""Small models with random weights, as if they had been trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ucds.backbones import Backbone
from ucds.models import ClusteringModel
from ucds.training.loaded import Model
from ucds.training.model_file import ModelCard, StoredModel
from ucds.training.options import Compute

MakeModel = Callable[..., Model]


@pytest.fixture
def make_model() -> MakeModel:
    """Return a function that makes a model of a backbone, whose statistics are not the first ones."""

    def make(backbone: Backbone, n_clusters: int = 5, **card: Any) -> Model:
        unit = card.setdefault("unit_features", True)
        generator = torch.Generator().manual_seed(0)
        model = ClusteringModel(
            backbone, n_clusters, bottleneck_width=16, unit_features=unit, generator=generator
        ).eval()
        norm: Any = model.encoder.bottleneck.norm
        norm.running_mean.copy_(torch.randn(16, generator=generator) / 10)
        norm.running_var.copy_(torch.rand(16, generator=generator) / 100 + 0.001)
        norm.weight.data.copy_(torch.rand(16, generator=generator) + 0.5)
        norm.bias.data.copy_(torch.randn(16, generator=generator) / 10)
        described = ModelCard(
            name="clinic",
            n_clusters=n_clusters,
            bottleneck_width=16,
            backbone=backbone.spec,
            weights=backbone.weights,
            domains=("north", "south"),
            stages=("learn",),
            **({"role": "target", "tune": "head"} | card),
        )
        shares = torch.full((2, n_clusters), 1 / n_clusters)
        return Model(StoredModel.of(described, model, shares), Compute("cpu"))

    return make
