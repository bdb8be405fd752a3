"""Small models with random weights, as if they had been trained."""

from collections.abc import Callable
from typing import Any

import pytest

from ucds.encoders.encoder import Encoder
from ucds.training.loaded import Model
from ucds.training.options import Compute

MakeModel = Callable[..., Model]


@pytest.fixture
def make_model(stored_model: Callable[..., Any]) -> MakeModel:
    """Return a function that makes a model of an encoder."""

    def make(encoder: Encoder, n_clusters: int = 5, **card: Any) -> Model:
        stored = stored_model(encoder, n_clusters, 16, **{"unit_features": True} | card)
        return Model(stored, Compute("cpu"))

    return make
