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
from ucds.demo.clinics import LARGE, SMALL, STYLE_OF, TURNED, Place, Visit, draw, visit_all
from ucds.demo.digits import STYLES
from ucds.demo.story import SETTINGS, check_folder, demo_task, open_digits, run_demo
from ucds.demo.text import METHODS, RECORDED_ALONE, RECORDED_ASKED, describe_clinics, describe_methods
from ucds.errors import UserError
from ucds.experiments.methods import PAPER_METHODS, run_methods
from ucds.experiments.pipeline import TaskOptions
from ucds.math.metrics import ClusteringScores, clustering_accuracy
from ucds.training.progress import Quiet

RECORDS = Path(__file__).parents[2] / "results" / "digits-small" / "runs.jsonl"


def visit(alone: float, provider: float, asked: float, use: str) -> Visit:
    scores = (ClusteringScores(accuracy, 0.25, 0.2) for accuracy in (alone, provider, asked))
    return Visit(100, *scores, use=use, sentence=f"the guard chose {use}")


VISITS = {
    SMALL: visit(0.7, 0.75, 0.8, "opinion"),
    LARGE: visit(0.85, 0.7, 0.85, "own"),
    TURNED: visit(0.8, 0.3, 0.8, "own"),
}


def test_new_empty_and_earlier_folders_are_taken(tmp_path: Path) -> None:
    check_folder(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    check_folder(tmp_path)
    for name in ("digits", "small-clinic-images", "turned-clinic-images", "cache", "figures", "runs"):
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


@pytest.mark.slow
def test_the_small_clinic_gets_other_pictures_with_another_seed(tmp_path: Path) -> None:
    def pictures(seed: int) -> set[str]:
        place = Place(tmp_path, seed, Quiet())
        draw(place)
        theirs = place.images(SMALL)
        return {path.relative_to(theirs).as_posix() for path in theirs.rglob("*.png")}

    first, other = pictures(0), pictures(1)
    assert len(first) == len(other) == 100 != len(first & other)
    every = {path.relative_to(tmp_path / "digits" / STYLE_OF[SMALL]).as_posix() for path in _drawn(tmp_path)}
    assert first | other < every


def _drawn(out: Path) -> list[Path]:
    return list((out / "digits" / STYLE_OF[SMALL]).rglob("*.png"))


def test_all_clinics_are_told_of_with_the_figures_of_this_run_and_of_recorded_ones() -> None:
    lines = describe_clinics(VISITS)
    assert "  small clinic, 100 pictures      70.0    75.0             80.0" in lines
    assert "  large clinic, 100 pictures      85.0    70.0             85.0" in lines
    assert "  turned clinic, 100 pictures     80.0    30.0             80.0" in lines
    assert "Small clinic: the guard chose opinion." in lines
    assert "Turned clinic: the guard chose own." in lines
    assert "In this run asking changed the small clinic's accuracy by +10.0 points." in lines
    gain = np.mean(RECORDED_ASKED) - np.mean(RECORDED_ALONE)
    (recorded,) = (line for line in lines if "in recorded runs" in line)
    assert f"{gain:+.1f} points" in recorded


def test_the_recorded_runs_are_those_of_the_results() -> None:
    """To renew them: run configs/digits-small.toml, and copy the figures that this test asks for."""
    records = [json.loads(line) for line in RECORDS.read_text().splitlines()]

    def accuracies(method: str) -> tuple[float, ...]:
        own = {
            each["seed"]: each
            for each in records
            if each["method"] == method
            and each["target"] == STYLE_OF[SMALL]
            and each["variant"] == "100 images"
        }
        return tuple(round(100 * own[seed]["accuracy"], 1) for seed in sorted(own))

    assert accuracies("consensus-alone") == RECORDED_ALONE
    assert accuracies("consensus") == RECORDED_ASKED


def test_the_table_names_every_method_with_its_figures() -> None:
    figures: dict[str, Any] = {"accuracy": 0.5, "nmi": 0.25, "ari": 0.2, "seconds": 1.5}
    body = [line.split() for line in describe_methods(dict.fromkeys(METHODS, figures)) if "50.0" in line]
    assert [row[-3:] for row in body] == [["50.0", "25.0", "1.5"]] * len(PAPER_METHODS)
    assert [row[0] for row in body] == ["k-means", "PO", "SO", "TO", "AO", "PCD"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_whole_demo(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "ucds", "demo", "--out", str(out), "--seed", "0"]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    found = json.loads((out / "metrics.json").read_text())
    assert list(found) == ["dataset", "target", "n_clusters", "seed", "clinics", "methods"]
    clinics, methods = found["clinics"], found["methods"]
    assert list(clinics) == [SMALL, LARGE, TURNED]
    assert list(methods) == list(PAPER_METHODS)
    for figures in methods.values():
        assert list(figures) == ["accuracy", "nmi", "ari", "seconds"]
    # The situations that the demo is about: labels that help, that have little weight, that are set aside.
    assert clinics[SMALL]["use"] != "own"
    assert clinics[SMALL]["asked"]["accuracy"] > clinics[SMALL]["alone"]["accuracy"]
    assert clinics[LARGE]["asked"]["accuracy"] > clinics[LARGE]["alone"]["accuracy"] - 0.01
    assert clinics[TURNED]["use"] == "own"
    assert clinics[TURNED]["asked"] == clinics[TURNED]["alone"]
    assert clinics[SMALL]["images"] == 100
    printed = done.stdout.splitlines()
    page = out / "runs" / SMALL / "report.html"
    assert printed[-1] == f"Open {page} in a browser: it shows what the small clinic found."
    assert page.stat().st_size > 100_000
    drawn = {path.name for path in (out / "figures").iterdir()}
    assert drawn == {
        f"{name}.{kind}" for name in ("samples", "proportions", "tsne") for kind in ("png", "svg")
    }
    assert all(path.stat().st_size > 5000 for path in (out / "figures").iterdir())
    assert {path.name for path in (out / "digits").iterdir()} == set(STYLES)
    assert len(list((out / "digits").rglob("*.png"))) == 1797
    check_folder(out)  # it may be run again in its own folder


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_over_five_seeds_pcd_is_above_source_only_and_pre_trained_only(tmp_path: Path) -> None:
    draw(Place(tmp_path, 0, Quiet()))
    data = open_digits(tmp_path)
    truth = read_ground_truth(data.samples)
    assert truth is not None
    classes = truth.classes[data.samples.domain == data.samples.domain_names.index(STYLE_OF[LARGE])]
    found: dict[str, list[float]] = {"po": [], "so": [], "pcd": []}
    for seed in range(5):
        options = TaskOptions(SETTINGS, seed, accelerator="cpu", cache=tmp_path / "cache")
        for outcome in run_methods(demo_task(data), options, tuple(found)):
            found[outcome.method].append(100 * clustering_accuracy(outcome.labels, classes))
    mean = {method: np.mean(values) for method, values in found.items()}
    assert mean["pcd"] >= mean["so"] + 5, mean
    assert mean["pcd"] >= mean["po"] + 20, mean


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_over_five_seeds_asking_helps_the_small_clinic_and_harms_no_other(tmp_path: Path) -> None:
    gains: dict[str, list[float]] = {SMALL: [], LARGE: [], TURNED: []}
    uses = []
    for seed in range(5):
        place = Place(tmp_path / str(seed), seed, Quiet())
        draw(place)
        visits = visit_all(place)
        uses.append(visits[TURNED].use)
        for name, visit in visits.items():
            gains[name].append(visit.gain)
    assert np.mean(gains[SMALL]) > 2.5, gains
    assert np.mean(gains[LARGE]) > -0.5, gains
    assert min(gains[SMALL] + gains[LARGE]) > -2, gains
    assert uses == 5 * ["own"]
    assert gains[TURNED] == 5 * [0], gains
