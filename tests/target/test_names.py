"""Tests of the names of clusters: read from a file, refused for another model, used by `ucds.predict`."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ucds
from ucds.target.names import ClusterNames
from ucds.training.model_file import load_model

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
