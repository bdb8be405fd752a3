"""Tests of the consensus method on the command line, where it is the default."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_kit import read_rows, run_successfully
from PIL import Image

from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.metrics import score
from ucds.training.model_file import load_model

K = 4
TRUTH = np.arange(36) % K
SHORT = ("--set", "starts=1", "--accelerator", "cpu")


def described(run: Path) -> dict[str, Any]:
    description: dict[str, Any] = json.loads((run / "run.json").read_text())
    return description


def found_by(run: Path, data: Path) -> np.ndarray:
    run_successfully("predict", run, data, "--out", run / "clusters.csv")
    return np.array([int(row["cluster"]) for row in read_rows(run / "clusters.csv")])


def test_consensus_is_the_method_by_default(vectors: Path, tmp_path: Path) -> None:
    source, target, labels = tmp_path / "source", tmp_path / "target", tmp_path / "labels.json"
    data = ("train-source", vectors / "source.npz", "--clusters", K)
    run_successfully(*data, "--out", source, *SHORT)
    card = load_model(source).card
    assert (card.stages, card.tune, card.unit_features) == (("cluster-domains",), "head", True)
    assert card.domains == ("a", "b")
    assert described(source)["method"] == "consensus"
    run_successfully("label", source, vectors / "target.npy", "--out", labels)
    assert score(ClusterLabels.load(labels).labels, TRUTH).accuracy == 1
    data = ("train-target", vectors / "target.npy", "--labels", labels)
    done = run_successfully(*data, "--out", target, *SHORT)
    card = load_model(target, role="target").card
    assert (card.stages, card.tune) == (("agree", "fit-target"), "head")
    told = json.loads((target / "transfer.json").read_text())
    # The target's own clusterings are equal to the labels, which therefore are not needed.
    assert (told["use"], told["own_agreement"], told["provider_agreement"]) == (
        "own",
        pytest.approx(1),
        pytest.approx(1),
    )
    assert told["sentence"] in done.err.splitlines()
    assert told["sentence"].endswith("not needed: your own clusterings have the same groups")
    assert score(found_by(target, vectors / "target.npy"), TRUTH).accuracy == 1


PCD = ("--method", "pcd", "--set", "clustering_epochs=1", "--set", "refinement_epochs=1")


@pytest.mark.parametrize(
    ("options", "method", "tune"),
    [
        (SHORT, "consensus", "head"),
        (("--method", "consensus", *SHORT), "consensus", "head"),
        (("--tune", "head", *SHORT), "consensus", "head"),
        (PCD, "pcd", "full"),
        (("--tune", "head", *PCD), "pcd", "head"),
    ],
)
def test_method_and_tune_are_what_is_said(
    options: Sequence[str], method: str, tune: str, vectors: Path, tmp_path: Path
) -> None:
    labels = ("--labels", vectors / "labels.json", "--out", tmp_path / "run")
    run_successfully("train-target", vectors / "target.npy", *labels, *options)
    description = described(tmp_path / "run")
    assert (description["method"], load_model(tmp_path / "run").card.tune) == (method, tune)
    stages = {"consensus": ("agree", "fit-target"), "pcd": ("cluster-target", "refine-target")}
    assert load_model(tmp_path / "run").card.stages == stages[method]


def test_a_file_of_settings_serves_both_sides_and_single_settings_win(vectors: Path, tmp_path: Path) -> None:
    (tmp_path / "both.toml").write_text("transfer = 'own'\nwhitening = 0.4\nstarts = 2\n")
    more = ("--clusters", K, "--config", tmp_path / "both.toml", "--set", "starts=1")
    run_successfully("train-source", vectors / "source.npz", "--out", tmp_path / "source", *more)
    run_successfully("train-target", vectors / "target.npy", "--out", tmp_path / "target", *more)
    source, target = (described(tmp_path / side)["settings"] for side in ("source", "target"))
    assert target["transfer"] == "own"
    assert source["whitening"] == target["whitening"] == 0.4
    assert source["starts"] == target["starts"] == 1
    assert "transfer" not in source


def test_the_setting_that_lays_down_the_transfer_is_told(vectors: Path, tmp_path: Path) -> None:
    labels = ("--labels", vectors / "labels.json", "--out", tmp_path / "run")
    done = run_successfully("train-target", vectors / "target.npy", *labels, *SHORT, "--set", "transfer=own")
    assert "labels were not used, because the setting 'transfer' says so" in done.err


def test_a_model_of_images_sorts_its_training_images(tmp_path: Path) -> None:
    rng, colours = np.random.default_rng(0), np.array([[250, 20, 20], [20, 250, 20], [20, 20, 250]])
    images = tmp_path / "images"
    images.mkdir()
    for i in range(18):
        pixels = np.zeros((40, 40, 3), np.uint8)
        slope = (0, 1, 3)[i % 3]  # lines of three directions
        rows, columns = np.indices((40, 40))
        pixels[(rows + slope * columns + int(rng.integers(8))) % 8 < 4] = colours[int(rng.integers(3))]
        Image.fromarray(pixels).save(images / f"{i:02}.png")
    edges = ("--backbone", "ucds/oriented_edges", "--weights", "none")
    run_successfully("train-target", images, "--clusters", 3, "--out", tmp_path / "run", *edges, *SHORT)
    assert score(found_by(tmp_path / "run", images), np.arange(18) % 3).accuracy == 1
