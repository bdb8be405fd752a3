"""Lets the tests of experiments import what they share."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for `grid_kit`, whichever way pytest imports

import numpy as np
import pytest
from grid_kit import write_pictures

from ucds.backbones import build_backbone
from ucds.data.dataset import Dataset
from ucds.data.folders import scan_domains
from ucds.data.images import ImageSamples
from ucds.data.samples import subset
from ucds.experiments.pipeline import Task
from ucds.training.inputs import stored_size, view_for


@pytest.fixture
def picture_task(tmp_path: Path) -> Task:
    """Noise in two domains, the second of which is the target."""
    write_pictures(tmp_path / "pictures")
    backbone = build_backbone("ucds/oriented_edges", weights="none")
    scan = scan_domains(tmp_path / "pictures")
    samples = ImageSamples(scan, tmp_path / "cache", size=stored_size(backbone.spec))
    source, target = (subset(samples, np.flatnonzero(samples.domain == d)) for d in (0, 1))
    view = view_for(backbone.spec)
    return Task(Dataset(source, view), Dataset(target, view), lambda: backbone, 3)
