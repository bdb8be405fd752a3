"""Tests of the names of clusters: read from a file, refused for another model, used by `ucds.predict`."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import ucds
from ucds.target.names import ClusterNames
from ucds.training.model_file import load_model

pytestmark = pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning")

BRIEF = ucds.ConsensusSettings(starts=2, bottleneck_width=8)
CPU = ucds.RunOptions()
EDGES = ucds.EncoderOptions("ucds/oriented_edges", "none")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("names") / "images"
    root.mkdir()
    rng = np.random.default_rng(0)
    for i in range(9):
        Image.fromarray(rng.integers(256, size=(40, 40, 3), dtype=np.uint8)).save(root / f"{i}.png")
    return root


@pytest.fixture(scope="module")
def client(images: Path) -> Path:
    out = images.with_name("run")
    ucds.train_target(images, out, n_clusters=3, encoder=EDGES, settings=BRIEF, options=CPU)
    return out


def write_names(path: Path, client: Path, names: dict[str, str], **more: Any) -> Path:
    model = load_model(client).fingerprint
    path.write_text(json.dumps({"format": "ucds-names/1", "model": model, "names": names} | more))
    return path


def test_names_are_a_column_of_the_predictions(
    client: Path, images: Path, tmp_path: Path, run: Callable[..., int]
) -> None:
    names = write_names(tmp_path / "names.json", client, {"0": "blue, dotted", "2": "grün"})
    options = ("--out", tmp_path / "c.csv", "--names", names, "--accelerator", "cpu")
    assert run("predict", client, images, *options) == 0
    rows = list(csv.DictReader((tmp_path / "c.csv").open()))
    called = {"0": "blue, dotted", "1": "", "2": "grün"}
    assert [row["name"] for row in rows] == [called[row["cluster"]] for row in rows]
    shown = ("--out", tmp_path / "c.html", "--names", names, "--accelerator", "cpu")
    assert run("report", client, images, *shown) == 0
    assert '"2":"gr\\u00fcn"' in (tmp_path / "c.html").read_text()


def test_folders_have_the_names_of_their_clusters(client: Path, images: Path, tmp_path: Path) -> None:
    names = write_names(tmp_path / "n.json", client, {"0": "../up", "1": "both", "2": "both"})
    found = ucds.predict(
        client, images, sort_into=tmp_path / "sorted", names=names, compute=ucds.Compute("cpu")
    )
    assert sorted(path.name for path in (tmp_path / "sorted").iterdir()) == ["_up", "both"]
    assert len(list((tmp_path / "sorted" / "both").iterdir())) == int((found.clusters > 0).sum())
    names = write_names(tmp_path / "n.json", client, {"0": " . "})
    ucds.predict(client, images, sort_into=tmp_path / "more", names=names, compute=ucds.Compute("cpu"))
    assert (tmp_path / "more" / "cluster_0").is_dir()


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
    client: Path, images: Path, tmp_path: Path, more: dict[str, Any], problem: str
) -> None:
    names = write_names(tmp_path / "names.json", client, **{"names": {"0": "a"}, **more})
    with pytest.raises(ucds.UserError, match=problem):
        ucds.predict(client, images, tmp_path / "never.csv", names=names, compute=ucds.Compute("cpu"))
    assert not (tmp_path / "never.csv").exists()


def test_a_missing_file_of_names_is_named(tmp_path: Path) -> None:
    with pytest.raises(ucds.InputError, match=r"cannot read the file of names .*gone.json: No such file"):
        ClusterNames.load(tmp_path / "gone.json")
