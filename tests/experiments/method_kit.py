"""Short runs of methods on vectors, and how their outcomes are compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ucds.config import ConsensusSettings, PCDSettings
from ucds.experiments.pipeline import Outcome, TaskOptions

PCD = PCDSettings(
    source_epochs=3, clustering_epochs=3, refinement_epochs=3, bottleneck_width=16, evaluations_per_stage=3
)
CONSENSUS = ConsensusSettings(starts=1, bottleneck_width=16)
OPTIONS = TaskOptions((PCD, CONSENSUS), seed=0)


def changed(**settings: Any) -> TaskOptions:
    """The options with these settings, each given to the methods that have it."""
    own = [
        given.model_copy(update={n: v for n, v in settings.items() if n in type(given).model_fields})
        for given in OPTIONS.settings
    ]
    return replace(OPTIONS, settings=tuple(own))


def prototypes_of(outcome: Outcome) -> torch.Tensor:
    assert outcome.training is not None
    return outcome.training.trained.prototypes


def assert_same(one: Outcome, other: Outcome) -> None:
    np.testing.assert_array_equal(one.labels, other.labels)
    assert [stage.name for stage in one.stages] == [stage.name for stage in other.stages]
    for a, b in zip(one.stages, other.stages, strict=True):
        assert torch.equal(a.proportions, b.proportions)
    if one.training is not None and other.training is not None:
        states = one.training.trained.state_dict(), other.training.trained.state_dict()
        assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
