"""Lets the tests of experiments import what they share, and makes their tasks."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # for `grid_kit`, whichever way pytest imports

import pytest
from grid_kit import make_machine, picture_task, run_inline, write_pictures
from method_kit import vectors_of

from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.experiments import runner
from ucds.experiments.pipeline import Task
from ucds.experiments.preflight import Machine


@pytest.fixture(name="picture_task")
def noise_task(tmp_path: Path) -> Task:
    """Noise in two domains, the second of which is the target."""
    write_pictures(tmp_path / "pictures")
    return picture_task(tmp_path / "pictures", tmp_path / "cache", "b")


@pytest.fixture(scope="module")
def task(blobs: Callable[..., dict[str, Any]]) -> Task:
    """Vectors of two source domains and of a target around four centres."""
    made = blobs({"a": 60, "b": 44, "t": 50})
    target = Dataset(VectorSamples(made.pop("t")))
    source = Dataset(VectorSamples.from_arrays(made))
    return Task(source, target, target, vectors_of(6), vectors_of(6), 4, 4)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with small pictures, whose grids run in this process."""
    monkeypatch.setattr(runner, "run_jobs", run_inline)
    return make_machine(tmp_path)


OWN = """
import numpy as np
from ucds.config import ConsensusSettings
from ucds.experiments.methods import METHODS, Method
from ucds.experiments.pipeline import Outcome

def alternate(pipeline):
    target = pipeline.task.target
    labels = np.arange(len(target.samples)) % pipeline.task.n_clusters
    return Outcome(labels, 0.5)

titled = Method("Alternating", alternate, settings=None)
widths = Method("Widths", METHODS["consensus-alone"].run, ConsensusSettings, "target")
number = 3
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of methods that no code of ours knows."""
    name = f"own_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name
