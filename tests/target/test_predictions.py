"""Tests of the table of predictions, and of the names of clusters."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ucds
from ucds.errors import InputError
from ucds.target.predictions import ClusterNames, Predictions
from ucds.training.model_file import load_model

CLUSTERS, CONFIDENCE = np.array([1, 0, 11]), np.array([0.5, 0.25, 1.0], np.float32)
NAMES = {0: "=HYPERLINK()", 1: 'cat & "dog"'}
FOUND = Predictions(("=a.png", "b/ü c.png", "d.png"), CLUSTERS, CONFIDENCE, NAMES, 12)


def test_a_table_has_one_row_a_sample_and_no_formula(tmp_path: Path) -> None:
    FOUND.save(tmp_path / "p.csv")
    with (tmp_path / "p.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["sample", "cluster", "confidence", "name"],
        ["'=a.png", "1", "0.5000", 'cat & "dog"'],
        ["b/ü c.png", "0", "0.2500", "'=HYPERLINK()"],
        ["d.png", "11", "1.0000", ""],
    ]
    replace(FOUND, names={}).save(tmp_path / "bare.csv")
    assert (tmp_path / "bare.csv").read_text("utf-8-sig").splitlines()[0] == '"sample","cluster","confidence"'


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in \.csv"):
        FOUND.save(tmp_path / "p.parquet")
    assert not list(tmp_path.iterdir())


CPU = ucds.Compute("cpu")


def write_names(path: Path, client: Path, names: dict[str, str], **more: Any) -> Path:
    model = load_model(client).fingerprint
    path.write_text(json.dumps({"format": "ucds-names/1", "model": model, "names": names} | more))
    return path


def test_names_are_a_column_of_the_predictions(
    run_on_images: Path, images: Path, tmp_path: Path, run: Callable[..., int]
) -> None:
    names = write_names(tmp_path / "names.json", run_on_images, {"0": "blue, dotted", "2": "grün"})
    options = ("--out", tmp_path / "c.csv", "--names", names, "--accelerator", "cpu")
    assert run("predict", run_on_images, images, *options) == 0
    rows = list(csv.DictReader((tmp_path / "c.csv").open()))
    called = {"0": "blue, dotted", "1": "", "2": "grün"}
    assert [row["name"] for row in rows] == [called[row["cluster"]] for row in rows]
    shown = ("--out", tmp_path / "c.html", "--names", names, "--accelerator", "cpu")
    assert run("report", run_on_images, images, *shown) == 0
    assert '"2":"gr\\u00fcn"' in (tmp_path / "c.html").read_text()


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"model": "0123456789ab"}, "the names belong to another model"),
        ({"names": {"3": "of no cluster"}}, "the names belong to another model"),
        ({"format": "ucds-labels/1"}, "is not a usable file of names: format"),
        ({"names": {"0": ""}}, "is not a usable file of names: names.0"),
        ({"names": {"zero": "x"}}, "is not a usable file of names: names.zero"),
        ({"weights": [0.5]}, "is not a usable file of names: weights"),
    ],
)
def test_what_is_no_name_of_this_model_is_refused(
    run_on_images: Path, images: Path, tmp_path: Path, more: dict[str, Any], problem: str
) -> None:
    names = write_names(tmp_path / "names.json", run_on_images, **{"names": {"0": "a"}, **more})
    with pytest.raises(ucds.UserError, match=problem):
        ucds.predict(run_on_images, images, tmp_path / "never.csv", names=names, compute=CPU)
    assert not (tmp_path / "never.csv").exists()


def test_a_missing_file_of_names_is_named(tmp_path: Path) -> None:
    with pytest.raises(ucds.InputError, match=r"cannot read the file of names .*gone.json: No such file"):
        ClusterNames.load(tmp_path / "gone.json")
