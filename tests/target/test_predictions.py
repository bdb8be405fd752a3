"""Tests of files of predictions: tables, and what FiftyOne and Label Studio import."""

from __future__ import annotations

import csv
import json
import os
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from ucds.choices import PredictionFormat
from ucds.data.folders import scan_files
from ucds.errors import InputError
from ucds.target.predictions import Predictions, fiftyone_labels, label_studio_tasks

CLUSTERS, CONFIDENCE = np.array([1, 0, 11]), np.array([0.5, 0.25, 1.0], np.float32)
NAMES = {0: "=HYPERLINK()", 1: 'cat & "dog"'}


def found(root: Path | None = None, paths: tuple[str, ...] = ("=a.png", "b/ü c.png", "d.png")) -> Predictions:
    files = None if root is None else scan_files(paths, root)
    return Predictions(paths, CLUSTERS, CONFIDENCE, NAMES, 12, "mine", files)


def test_a_table_has_one_row_a_sample(tmp_path: Path) -> None:
    for suffix in ("csv", "parquet", "json"):
        found().save(tmp_path / f"p.{suffix}")
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["sample"] for row in rows] == ["'=a.png", "b/ü c.png", "d.png"]
    assert [row["name"] for row in rows] == ['cat & "dog"', "'=HYPERLINK()", ""]
    exact = json.loads((tmp_path / "p.json").read_text())
    assert exact[1] == {"sample": "b/ü c.png", "cluster": 0, "confidence": 0.25, "name": "=HYPERLINK()"}
    assert pyarrow.parquet.read_table(tmp_path / "p.parquet").to_pylist() == exact
    Predictions(("a",), np.array([0]), np.array([1.0])).save(tmp_path / "bare.json")
    assert json.loads((tmp_path / "bare.json").read_text()) == [
        {"sample": "a", "cluster": 0, "confidence": 1.0}
    ]


def test_fiftyone_gets_absolute_paths_and_numbers_of_classes(tmp_path: Path) -> None:
    found(tmp_path).save(tmp_path / "labels.json", "fiftyone")
    content = json.loads((tmp_path / "labels.json").read_text())
    assert content["classes"][:3] == ["=HYPERLINK()", 'cat & "dog"', "cluster_02"]
    assert len(content["classes"]) == 12
    assert content["labels"] == {
        str(tmp_path / "=a.png"): {"label": 1, "confidence": 0.5},
        str(tmp_path / "b/ü c.png"): {"label": 0, "confidence": 0.25},
        str(tmp_path / "d.png"): {"label": 11, "confidence": 1.0},
    }


def test_label_studio_gets_tasks_and_the_interface_that_they_need(tmp_path: Path) -> None:
    root = tmp_path / "images"
    found(root).save(tmp_path / "tasks.json", "label-studio")
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert tasks[1]["data"]["image"] == "/data/local-files/?d=images/b/%C3%BC%20c.png"
    (prediction,) = tasks[0]["predictions"]
    assert (prediction["model_version"], prediction["score"]) == ("mine", 0.5)
    (result,) = prediction["result"]
    interface = ET.parse(tmp_path / "tasks.xml").getroot()
    image, choices = interface.find("Image"), interface.find("Choices")
    assert image is not None
    assert choices is not None
    assert (result["to_name"], result["from_name"]) == (image.get("name"), choices.get("name"))
    assert image.get("value") == "$image"
    offered = [choice.get("value") for choice in choices]
    assert result["value"]["choices"] == ['cat & "dog"'] == [offered[1]]
    assert len(set(offered)) == 12
    ids = [result["id"] for task in tasks for result in task["predictions"][0]["result"]]
    assert len(set(ids)) == 3
    absolute = tuple(str(tmp_path / "elsewhere" / name) for name in "abc")
    found(root, absolute).save(tmp_path / "far.json", "label-studio")
    far = json.loads((tmp_path / "far.json").read_text())
    assert far[0]["data"]["image"] == "/data/local-files/?d=elsewhere/a"


def test_label_studio_gets_names_that_are_not_utf_8_as_their_bytes(tmp_path: Path) -> None:
    files = scan_files([os.fsdecode(b"bad\xff.png")], tmp_path)
    found = Predictions(files.ids, np.zeros(1, np.int64), np.ones(1, np.float32), n_clusters=1, files=files)
    (task,) = label_studio_tasks(found)
    assert task["data"]["image"].endswith("/bad%FF.png")
    assert task["data"]["sample"] == "bad\\xff.png"


def test_samples_without_a_cluster_have_no_label(tmp_path: Path) -> None:
    doubtful = replace(found(tmp_path), clusters=np.array([1, -1, 0]))
    doubtful.save(tmp_path / "p.csv")
    assert "b/ü c.png,-1,0.2500,\n" in (tmp_path / "p.csv").read_text()
    assert list(fiftyone_labels(doubtful)["labels"].values())[1] is None
    assert [len(task["predictions"]) for task in label_studio_tasks(doubtful)] == [1, 0, 1]


@pytest.mark.parametrize("form", ["fiftyone", "label-studio"])
def test_annotation_programs_need_image_files_and_json(tmp_path: Path, form: PredictionFormat) -> None:
    with pytest.raises(InputError, match="need image files: write a table of others"):
        found().save(tmp_path / "x.json", form)
    with pytest.raises(InputError, match=r"must end in \.json"):
        found(tmp_path).save(tmp_path / "x.csv", form)
    assert not list(tmp_path.iterdir())
