"""Stages 2 and 3 run to the end in a package that the provider's half was cut out of."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ucds
from ucds.labels.cluster_labels import ClusterLabels
from ucds.training.model_file import load_model

CUT_OUT = ("source", "serving", "baselines", "experiments")


@pytest.fixture
def pruned(tmp_path: Path) -> Path:
    """A copy of the package without all that a client has no use for."""
    root = tmp_path / "pruned"
    package = Path(ucds.__file__).parent
    shutil.copytree(package, root / "ucds", ignore=shutil.ignore_patterns("__pycache__"))
    for name in CUT_OUT:
        shutil.rmtree(root / "ucds" / name, ignore_errors=True)
    return root


@pytest.mark.parametrize(
    ("method", "stages"),
    [
        pytest.param("pcd", ("cluster-target", "refine-target"), marks=pytest.mark.slow),
        ("consensus", ("agree", "fit-target")),
    ],
)
def test_a_client_needs_a_label_file_and_nothing_else(
    pruned: Path,
    run_commands: Any,
    quick: dict[str, list[str]],
    write_embeddings: Callable[[Path], None],
    tmp_path: Path,
    method: str,
    stages: tuple[str, ...],
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    write_embeddings(folder)
    (folder / "source.npz").unlink()
    answers = ClusterLabels(tuple(map(str, range(60))), np.arange(60) % 4, 4, "a provider far away")
    answers.save(folder / "labels.json")

    labels = ["--labels", "labels.json", *quick[method]]
    training, prediction, help_page = run_commands(
        [
            ["train-target", "target.npy", *labels, "--out", "own"],
            ["predict", "own", "target.npy", "--out", "clusters.csv", "--accelerator", "cpu"],
            ["--help"],
        ],
        folder,
        pruned,
    )
    for outcome in (training, prediction, help_page):
        assert outcome.status == 0, outcome.told
        assert Path(outcome.home).is_relative_to(pruned)
    assert load_model(folder / "own").card.stages == stages
    assert len((folder / "clusters.csv").read_text().splitlines()) == 61
