"""Small models with random weights, as if they had been trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ucds.networks.spec import Backbone
from ucds.training.loaded import Model
from ucds.training.options import Compute

MakeModel = Callable[..., Model]


@pytest.fixture
def make_model(stored_model: Callable[..., Any]) -> MakeModel:
    """Return a function that makes a model of a backbone, whose statistics are not the first ones."""

    def make(backbone: Backbone, n_clusters: int = 5, **card: Any) -> Model:
        stored = stored_model(backbone, n_clusters, 16, spread=True, **{"unit_features": True} | card)
        return Model(stored, Compute("cpu"))

    return make
