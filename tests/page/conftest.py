"""Finished runs on drawn pictures, to be looked at and reviewed."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import ucds
from ucds.labels.cluster_labels import ClusterLabels

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))  # for `cli_kit`

from cli_kit import SHAPES, draw_domain
from quick import quick
from review_kit import BRIEF, EDGES


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shapes in class folders; one file is a copy, and one has a name that tries to be a tag."""
    root = tmp_path_factory.mktemp("report") / "pictures"
    draw_domain(root, ("green", "white"), 3, count=12)
    shutil.copy(root / "disc" / "0.png", root / "disc" / "copy.png")
    shutil.move(root / "bar" / "1.png", root / "bar" / "<img src=x onerror=alert(1)>&.png")
    return root


@pytest.fixture(scope="session")
def labels(pictures: Path) -> ClusterLabels:
    """Labels of a provider for all pictures: their shape, with every sixth one wrong."""
    ids = [str(path.relative_to(pictures)) for path in sorted(pictures.rglob("*.png"))]
    answers = [(SHAPES.index(name.split("/")[0]) + (i % 6 == 0)) % 3 for i, name in enumerate(ids)]
    return ClusterLabels(tuple(ids), np.array(answers), 3, "a provider")


@pytest.fixture(scope="session")
def client(pictures: Path, labels: ClusterLabels, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished target run on the pictures."""
    out = tmp_path_factory.mktemp("client") / "shapes"
    ucds.train_target(pictures, out, labels=labels, encoder=EDGES, settings=BRIEF)
    return out


@pytest.fixture(scope="session")
def page_file(client: Path) -> Path:
    """The report of the run."""
    return ucds.report(client, compute=ucds.Compute("cpu")).path


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on pictures of three shapes, which it sorts into six clusters."""
    root = tmp_path_factory.mktemp("review")
    draw_domain(root / "pictures", ("green", "white"), 3, count=40)
    ucds.train_target(
        root / "pictures", root / "run", n_clusters=6, encoder=EDGES, settings=quick(bottleneck_width=8)
    )
    return root / "run"


@pytest.fixture
def fresh(trained: Path, tmp_path: Path) -> Path:
    """A copy of the run, without answers."""
    shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("answers.jsonl", ".review"))
    return tmp_path / "run"
