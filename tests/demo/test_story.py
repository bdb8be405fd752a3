"""Tests of the demo: what it refuses, what it prints, and once the whole of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ucds.data.ground_truth import read_ground_truth
from ucds.demo.digits import STYLES, write_digits
from ucds.demo.story import (
    DEMO_METHODS,
    SETTINGS,
    TARGET,
    check_folder,
    compute_metrics,
    demo_task,
    format_table,
    open_digits,
    run_demo,
)
from ucds.errors import UserError
from ucds.experiments.methods import run_methods
from ucds.experiments.pipeline import TaskOptions
from ucds.math.metrics import clustering_accuracy
from ucds.training.progress import Quiet

ACCURACY = {
    **{"kmeans": 0.5, "po": 0.1, "so": 0.4, "to": 0.3, "ao": 0.6, "pcd": 0.712},
    **{"consensus-alone": 0.55, "consensus": 0.8},
}


def metrics(**accuracy: float) -> dict[str, Any]:
    values = ACCURACY | accuracy
    methods = {m: {"accuracy": values[m], "nmi": 0.25, "ari": 0.2, "seconds": 1.5} for m in DEMO_METHODS}
    return {"dataset": "digits", "target": "neon", "n_clusters": 10, "seed": 0, "methods": methods}


def test_new_empty_and_earlier_folders_are_taken(tmp_path: Path) -> None:
    check_folder(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    check_folder(tmp_path)
    for name in ("digits", "cache", "figures"):
        (tmp_path / name).mkdir()
    (tmp_path / "metrics.json").touch()
    check_folder(tmp_path)


def test_files_and_folders_in_use_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is a file: choose another --out"):
        check_folder(tmp_path / "file")
    with pytest.raises(UserError, match="holds other things than a demo"):
        check_folder(tmp_path)


def test_without_matplotlib_the_demo_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"figures need matplotlib: pip install 'ucds\[figures\]'"):
        run_demo(tmp_path / "out", 0, Quiet())
    assert not (tmp_path / "out").exists()


def test_the_table_names_every_method_with_its_figures() -> None:
    lines = format_table(metrics())
    assert lines[0].startswith("Sorting neon digits into 10 clusters with help from paper, chalk, blueprint")
    body = [line.split() for line in lines if line.endswith("1.5")]
    assert [row[-3:] for row in body] == [[f"{100 * ACCURACY[m]:.1f}", "25.0", "1.5"] for m in DEMO_METHODS]
    assert [row[0] for row in body] == ["frozen", "PO", "SO", "TO", "AO", "PCD", "consensus,", "consensus"]


@pytest.mark.parametrize(
    ("pcd", "words"), [(0.7, "20.0 points above"), (0.4, "10.0 points below"), (0.5, "0.0 points above")]
)
def test_the_distance_to_kmeans_is_printed_whatever_it_is(pcd: float, words: str) -> None:
    last = format_table(metrics(pcd=pcd, consensus=1 - pcd))[-2:]
    assert last[0] == f"PCD is {words} k-means on the same frozen features."
    assert last[1].startswith("consensus is ")
    assert ("above" in last[1]) == (pcd <= 0.5)


def test_metrics_of_a_method_that_did_not_run_are_not_invented() -> None:
    with pytest.raises(KeyError):
        compute_metrics([], None, 0)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_whole_demo(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "ucds", "demo", "--out", str(out), "--seed", "0"]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    found = json.loads((out / "metrics.json").read_text())
    assert list(found) == ["dataset", "target", "n_clusters", "seed", "methods"]
    methods = found.pop("methods")
    assert found == {"dataset": "digits", "target": "neon", "n_clusters": 10, "seed": 0}
    found["methods"] = methods
    assert list(found["methods"]) == ["kmeans", "po", "so", "to", "ao", "pcd", "consensus-alone", "consensus"]
    for figures in found["methods"].values():
        assert list(figures) == ["accuracy", "nmi", "ari", "seconds"]
        assert all(type(value) is float for value in figures.values())
        assert 0 <= figures["accuracy"] <= 1
        assert 0 <= figures["nmi"] <= 1
        assert -0.5 <= figures["ari"] <= 1
        assert figures["seconds"] >= 0
    accuracy = {method: figures["accuracy"] for method, figures in found["methods"].items()}
    assert accuracy["pcd"] >= accuracy["so"] + 0.05
    assert accuracy["pcd"] >= accuracy["po"] + 0.20
    assert accuracy["consensus"] > accuracy["kmeans"]
    printed = done.stdout.splitlines()
    assert printed[: len(format_table(found))] == format_table(found)
    assert printed[-1].endswith(f"are in {out}.")
    # What crossed the wall is what the provider that was left there says: an integer for each picture.
    crossed = json.loads((out / "labels.json").read_text())
    assert crossed.keys() == {"format", "provider", "n_clusters", "ids", "labels"}
    again = tmp_path / "again.json"
    label = [sys.executable, "-m", "ucds", "label", str(out / "provider"), str(out / "digits" / "neon")]
    subprocess.run([*label, "--out", str(again), "--accelerator", "cpu"], capture_output=True, check=True)
    assert json.loads(again.read_text())["labels"] == crossed["labels"]
    assert len(crossed["ids"]) == len(list((out / "digits" / "neon").rglob("*.png")))
    drawn = {path.relative_to(out / "figures").as_posix() for path in (out / "figures").rglob("*.*")}
    assert drawn == {
        f"{name}.{kind}" for name in ("samples", "proportions", "tsne") for kind in ("png", "svg")
    }
    assert all(path.stat().st_size > 5000 for path in (out / "figures").iterdir())
    assert {path.name for path in (out / "digits").iterdir()} == set(STYLES)
    assert len(list((out / "digits").rglob("*.png"))) == 1797
    check_folder(out)  # it may be run again in its own folder


@pytest.mark.slow
def test_over_five_seeds_pcd_is_above_source_only_and_pre_trained_only(tmp_path: Path) -> None:
    write_digits(tmp_path / "digits")
    data = open_digits(tmp_path)
    truth = read_ground_truth(data.samples)
    assert truth is not None
    classes = truth.classes[data.samples.domain == data.samples.domain_names.index(TARGET)]
    found: dict[str, list[float]] = {"po": [], "so": [], "pcd": []}
    for seed in range(5):
        options = TaskOptions(SETTINGS, seed, accelerator="cpu", cache=tmp_path / "cache")
        for outcome in run_methods(demo_task(data), options, tuple(found)):
            found[outcome.method].append(100 * clustering_accuracy(outcome.labels, classes))
    mean = {method: np.mean(values) for method, values in found.items()}
    assert mean["pcd"] >= mean["so"] + 5, mean
    assert mean["pcd"] >= mean["po"] + 20, mean
