"""Lets the tests of experiments import what they share."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for `grid_kit`, whichever way pytest imports

import pytest
from grid_kit import picture_task, write_pictures

from ucds.experiments.pipeline import Task


@pytest.fixture(name="picture_task")
def noise_task(tmp_path: Path) -> Task:
    """Noise in two domains, the second of which is the target."""
    write_pictures(tmp_path / "pictures")
    return picture_task(tmp_path / "pictures", tmp_path / "cache", "b")
