"""Tests of the demo: what it refuses, what it prints, and once the whole of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ucds.demo.clinics import LARGE, SMALL, TURNED, Place, draw, visit_all
from ucds.demo.digits import STYLES
from ucds.demo.story import check_folder, compare_methods, describe_clinics, describe_methods
from ucds.errors import UserError
from ucds.experiments.methods import PAPER_METHODS
from ucds.training.progress import Quiet


def visit(alone: float, provider: float, asked: float, use: str) -> dict[str, object]:
    found = {"images": 100, "alone": alone, "provider": provider, "asked": asked}
    return found | {"use": use, "sentence": f"the guard chose {use}"}


VISITS = {
    SMALL: visit(0.7, 0.75, 0.8, "opinion"),
    LARGE: visit(0.85, 0.7, 0.85, "equal"),
    TURNED: visit(0.8, 0.3, 0.8, "own"),
}


def test_new_empty_and_earlier_folders_are_taken(tmp_path: Path) -> None:
    check_folder(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    check_folder(tmp_path)
    for name in ("digits", "small-clinic-images", "turned-clinic-images", "cache", "runs"):
        (tmp_path / name).mkdir()
    (tmp_path / "metrics.json").touch()
    check_folder(tmp_path)


def test_files_and_folders_in_use_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is a file: choose another --out"):
        check_folder(tmp_path / "file")
    with pytest.raises(UserError, match="holds other things than a demo"):
        check_folder(tmp_path)


def test_the_small_clinic_gets_other_pictures_with_another_seed(tmp_path: Path) -> None:
    def pictures(seed: int) -> set[str]:
        place = Place(tmp_path, seed, Quiet())
        draw(place)
        theirs = place.images(SMALL)
        return {path.relative_to(theirs).as_posix() for path in theirs.rglob("*.png")}

    first, other = pictures(0), pictures(1)
    assert len(first) == len(other) == 100 != len(first & other)
    drawn = tmp_path / "digits" / "chalk"
    assert first | other < {path.relative_to(drawn).as_posix() for path in drawn.rglob("*.png")}


def test_all_clinics_and_methods_are_told_of() -> None:
    lines = describe_clinics(VISITS)
    assert "  small clinic, 100 pictures      70.0    75.0             80.0" in lines
    assert "  large clinic, 100 pictures      85.0    70.0             85.0" in lines
    assert "  turned clinic, 100 pictures     80.0    30.0             80.0" in lines
    assert "Small clinic: the guard chose opinion." in lines
    assert "Turned clinic: the guard chose own." in lines
    figures = {"accuracy": 0.5, "nmi": 0.25, "seconds": 1.5}
    body = [
        line.split() for line in describe_methods(dict.fromkeys(PAPER_METHODS, figures)) if "50.0" in line
    ]
    assert [row[-3:] for row in body] == [["50.0", "25.0", "1.5"]] * len(PAPER_METHODS)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_whole_demo(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "ucds", "demo", "--out", str(out), "--seed", "0"]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    found = json.loads((out / "metrics.json").read_text())
    clinics, methods = found["clinics"], found["methods"]
    assert list(clinics) == [SMALL, LARGE, TURNED]
    assert list(methods) == list(PAPER_METHODS)
    # The situations that the demo is about: labels that help, that have little weight, that are set aside.
    assert clinics[SMALL]["use"] != "own"
    assert clinics[SMALL]["asked"] > clinics[SMALL]["alone"]
    assert clinics[LARGE]["asked"] > clinics[LARGE]["alone"] - 0.01
    assert clinics[TURNED]["use"] == "own"
    assert clinics[TURNED]["asked"] == clinics[TURNED]["alone"]
    assert [clinics[name]["images"] for name in clinics] == [100, 449, 449]
    printed = done.stdout.splitlines()
    assert any("entries, all as they were written" in line for line in printed)
    page = out / "runs" / SMALL / "report.html"
    assert printed[-1] == f"Open {page} in a browser: it shows what the small clinic found."
    assert page.stat().st_size > 100_000
    assert {path.name for path in (out / "digits").iterdir()} == set(STYLES)
    check_folder(out)  # it may be run again in its own folder


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_over_five_seeds_pcd_is_above_source_only_and_pre_trained_only(tmp_path: Path) -> None:
    found: dict[str, list[float]] = {"po": [], "so": [], "pcd": []}
    for seed in range(5):
        place = Place(tmp_path, seed, Quiet())
        draw(place)
        for name, figures in compare_methods(place, tuple(found)).items():
            found[name].append(100 * figures["accuracy"])
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
        uses.append(visits[TURNED]["use"])
        for name, found in visits.items():
            gains[name].append(100 * (found["asked"] - found["alone"]))
    assert np.mean(gains[SMALL]) > 2.5, gains
    assert np.mean(gains[LARGE]) > -0.5, gains
    assert min(gains[SMALL] + gains[LARGE]) > -2, gains
    assert uses == 5 * ["own"]
    assert gains[TURNED] == 5 * [0], gains
