"""Short runs of methods on vectors, and how their outcomes are compared."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from quick import quick

from ucds.choices import Tune
from ucds.config import PCDSettings
from ucds.encoders.encoder import Encoder, IdentityEncoder
from ucds.experiments.pipeline import Outcome, TaskOptions
from ucds.gradients.prepare import Learning
from ucds.math.arrays import FloatArray

PCD = PCDSettings(
    source_epochs=3, clustering_epochs=3, refinement_epochs=3, bottleneck_width=16, evaluations_per_stage=3
)
CONSENSUS = quick(bottleneck_width=16)
OPTIONS = TaskOptions((PCD, CONSENSUS), seed=0)


def changed(**settings: Any) -> TaskOptions:
    """The options with these settings, each given to the methods that have it."""
    own = [
        given.model_copy(update={n: v for n, v in settings.items() if n in type(given).model_fields})
        for given in OPTIONS.settings
    ]
    return replace(OPTIONS, settings=tuple(own))


def vectors_of(width: int) -> Callable[[Tune], Encoder]:
    """The encoder of vectors of a width, whatever is to be trained."""
    return lambda tune: IdentityEncoder(width)


def state_of(outcome: Outcome) -> dict[str, FloatArray]:
    """The arrays of a model, by name."""
    model = outcome.model
    if isinstance(model, Learning):
        return {name: tensor.numpy() for name, tensor in model.trained.state_dict().items()}
    assert model is not None
    return {name: array for name, array in vars(model.head).items() if isinstance(array, np.ndarray)}


def prototypes_of(outcome: Outcome) -> FloatArray:
    return state_of(outcome)["prototypes"]


def assert_same(one: Outcome, other: Outcome) -> None:
    np.testing.assert_array_equal(one.labels, other.labels)
    assert [stage.name for stage in one.stages] == [stage.name for stage in other.stages]
    for a, b in zip(one.stages, other.stages, strict=True):
        assert np.array_equal(a.proportions, b.proportions)
    if one.model is not None and other.model is not None:
        states = state_of(one), state_of(other)
        assert all(np.array_equal(states[0][name], states[1][name]) for name in states[0])
