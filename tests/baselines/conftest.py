"""Small tasks for the baselines: vectors around shared centres, and the losses of their updates."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ucds.baselines.loop import Loop
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples

sys.path.append(str(Path(__file__).parent))  # for `baseline_kit`


@pytest.fixture(scope="session")
def source(blobs: Any) -> Dataset:
    """Two domains, 60 and 44 vectors; row ``i`` of each belongs to centre ``i % 4``."""
    made = blobs({"a": 60, "b": 44, "t": 80}, 4, 24)
    del made["t"]
    return Dataset(VectorSamples.from_arrays(made))


@pytest.fixture(scope="session")
def target(blobs: Any) -> Dataset:
    """A third domain of 80 vectors around the same centres."""
    return Dataset(VectorSamples(blobs({"a": 60, "b": 44, "t": 80}, 4, 24)["t"]))


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, float]]:
    """The terms of the loss at each update of a baseline, as they come."""
    seen: list[dict[str, float]] = []
    update = Loop.update

    def spied(loop: Loop, **terms: torch.Tensor) -> None:
        seen.append({name: term.item() for name, term in terms.items()})
        update(loop, **terms)

    monkeypatch.setattr(Loop, "update", spied)
    return seen
