"""A finished run on drawn pictures, to be reviewed."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import ucds

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))  # for `cli_kit`

from cli_kit import draw_domain


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on pictures of three shapes, which it sorts into six clusters."""
    root = tmp_path_factory.mktemp("review")
    draw_domain(root / "pictures", ("green", "white"), 3, count=40)
    ucds.train_target(
        root / "pictures",
        root / "run",
        n_clusters=6,
        encoder=ucds.EncoderOptions("ucds/oriented_edges", "none"),
        settings=ucds.ConsensusSettings(starts=2, bottleneck_width=8),
    )
    return root / "run"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the run, without answers."""
    shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("answers.jsonl", ".review"))
    return tmp_path / "run"
