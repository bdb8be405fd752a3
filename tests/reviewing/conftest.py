"""A finished run on drawn pictures, and a browser to review it in."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import ucds

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))  # for `cli_kit`

from cli_kit import draw_domain


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on pictures of three shapes, which it sorts into four clusters; its cache lies beside it."""
    root = tmp_path_factory.mktemp("review")
    draw_domain(root / "pictures", ("green", "white"), 3, count=20)
    ucds.train_target(
        root / "pictures",
        root / "run",
        n_clusters=4,
        encoder=ucds.EncoderOptions("ucds/oriented_edges", "none"),
        compute=ucds.Compute(cache=root / "cache"),
    )
    return root / "run"


@pytest.fixture
def run(trained: Path) -> Path:
    """The run, without answers."""
    (trained / "answers.jsonl").unlink(missing_ok=True)
    return trained
