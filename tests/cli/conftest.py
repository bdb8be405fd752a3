"""Pictures, embeddings and finished runs for the tests of the command line; the tests only read them."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent))  # pytest's import mode leaves helpers beside tests unfound

from cli_kit import EDGES, draw_domain, run_successfully

from ucds.labels.cluster_labels import ClusterLabels


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``source/{day,night}/<shape>/*.png`` and ``target/<shape>/*.png``."""
    root = tmp_path_factory.mktemp("pictures")
    draw_domain(root / "source" / "day", ("white", "black"), 1)
    draw_domain(root / "source" / "night", ("navy", "yellow"), 2)
    draw_domain(root / "target", ("green", "white"), 3)
    return root


@pytest.fixture(scope="session")
def vectors(tmp_path_factory: pytest.TempPathFactory, blobs: Callable[..., dict[str, Any]]) -> Path:
    """``source.npz`` of two domains, ``target.npy``, and a label file for the target."""
    root = tmp_path_factory.mktemp("vectors")
    made = blobs({"a": 40, "b": 30, "t": 36})
    np.save(root / "target.npy", made.pop("t"))
    np.savez(root / "source.npz", **made)
    ClusterLabels(tuple(map(str, range(36))), np.arange(36) % 4, 4, "p").save(root / "labels.json")
    return root


@pytest.fixture(scope="session")
def runs(vectors: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished source run and a finished target run, side by side."""
    root = tmp_path_factory.mktemp("runs")
    source = ("train-source", vectors / "source.npz", "--clusters", 4, "--out", root / "source")
    run_successfully(*source, "--set", "starts=1")
    target = ("train-target", vectors / "target.npy", "--labels", vectors / "labels.json")
    run_successfully(*target, "--out", root / "target", "--set", "starts=1", "--no-report")
    return root


@pytest.fixture(scope="session")
def story(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The results of the six commands of both sides, each asked to be quiet and to print JSON."""
    folder = tmp_path_factory.mktemp("story")
    source, target, labels = folder / "source", folder / "target", folder / "labels.json"
    brief = (*EDGES, "--set", "starts=1")
    commands = {
        "train-source": (pictures / "source", "--clusters", 3, "--out", source, *brief),
        "label": (source, pictures / "target", "--out", labels),
        "train-target": (pictures / "target", "--labels", labels, "--out", target, *brief),
        "predict": (target, pictures / "target", "--out", folder / "p.csv"),
        "evaluate": (target, pictures / "target"),
        "update": (target, pictures / "target", "--out", folder / "next"),
    }
    printed = {name: run_successfully(name, *rest, "--quiet", "--json") for name, rest in commands.items()}
    assert {name: found.err for name, found in printed.items()} == dict.fromkeys(commands, "")
    return folder, {name: json.loads(found.out) for name, found in printed.items()}
