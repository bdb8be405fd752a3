"""Tests of `ucds.predict`: the client's model finds clusters, as a function and as a command, with names."""

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quick import Listener, quick

import ucds
from ucds.target.predictions import NAMES_FILE, Predictions, read_names
from ucds.training.model_file import StoredModel, load_model

pytestmark = pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning")

BRIEF, CPU = quick(bottleneck_width=8), ucds.Compute("cpu")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, blobs: Callable[..., Any]) -> Path:
    """A finished target run, beside the samples in `x.npy`."""
    place = tmp_path_factory.mktemp("client")
    np.save(place / "x.npy", blobs({"t": 48})["t"])
    return ucds.train_target(place / "x.npy", place / "run", n_clusters=4, settings=BRIEF).folder


def test_of_several_domains_only_the_one_asked_for_is_decoded(
    run_on_images: Path, images: Path, tmp_path: Path
) -> None:
    listener = Listener()
    compute = ucds.Compute("cpu", cache=tmp_path / "cache", reporter=listener)
    for _ in range(2):
        ucds.predict(run_on_images, images / "a", compute=compute)
        assert listener.begun == [("decode images", 1), ("compute features", 1)]  # neither is done again


def test_a_table_has_one_row_a_sample_and_no_formula(tmp_path: Path) -> None:
    clusters, confidence = np.array([1, 0, 11]), np.array([0.5, 0.25, 1.0], np.float32)
    names = {0: "=HYPERLINK()", 1: 'cat & "dog"'}
    Predictions(("=a.png", "b/ü c.png", "d.png"), clusters, confidence, names, 12).save(tmp_path / "p.csv")
    with (tmp_path / "p.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["sample", "cluster", "confidence", "name"],
        ["'=a.png", "1", "0.5000", 'cat & "dog"'],
        ["b/ü c.png", "0", "0.2500", "'=HYPERLINK()"],
        ["d.png", "11", "1.0000", ""],
    ]


def test_the_function_and_the_command_write_the_same_file(
    client: Path, tmp_path: Path, run: Callable[..., int]
) -> None:
    samples, own, typed = client.with_name("x.npy"), tmp_path / "function.csv", tmp_path / "command.csv"
    found = ucds.predict(str(client), str(samples), str(own), compute=CPU)
    assert run("predict", client, samples, "--out", typed, "--accelerator", "cpu") == 0
    assert own.read_bytes() == typed.read_bytes()
    rows = list(csv.DictReader(own.open()))
    assert [row["sample"] for row in rows] == list(found.ids) == [str(i) for i in range(48)]
    assert [int(row["cluster"]) for row in rows] == found.clusters.tolist()
    assert [row["confidence"] for row in rows] == [f"{c:.4f}" for c in found.confidence]
    model = ucds.load(client, compute=CPU)
    np.testing.assert_array_equal(found.clusters, model.predict(samples))
    np.testing.assert_array_equal(found.confidence, model.confidence(samples))


def test_doubtful_samples_are_left_without_a_cluster(
    client: Path, tmp_path: Path, run: Callable[..., int]
) -> None:
    samples, out = client.with_name("x.npy"), tmp_path / "sure.csv"
    every = ucds.predict(client, samples, compute=CPU)
    limit = float(np.median(every.confidence))
    assert run("predict", client, samples, "--out", out, "--min-confidence", limit) == 0
    rows = list(csv.DictReader(out.open()))
    expected = np.where(every.confidence < limit, -1, every.clusters)
    assert [int(row["cluster"]) for row in rows] == expected.tolist()
    assert 0 < (expected == -1).sum() < 48
    assert [row["confidence"] for row in rows] == [f"{c:.4f}" for c in every.confidence]
    found = ucds.predict(client, samples, min_confidence=limit, compute=CPU)
    assert found.unsorted == (expected == -1).sum()
    for impossible in (1.5, -0.1, float("nan")):
        with pytest.raises(ucds.InputError, match="`min_confidence` is a probability from 0 to 1, not"):
            ucds.predict(client, samples, min_confidence=impossible)


def test_a_prediction_loads_nothing_that_clusters_or_reads_tables(client: Path) -> None:
    program = (
        "import sys, ucds; ucds.predict(*sys.argv[1:]); "
        "print(*sorted({'sklearn', 'pandas', 'pyarrow', 'scipy', 'torch'} & sys.modules.keys()))"
    )
    command = [sys.executable, "-c", program, str(client), str(client.with_name("x.npy"))]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == ""


def name(run: Path, of: StoredModel, names: dict[str, str], **more: Any) -> None:
    """Write names of the clusters of a model into a folder."""
    content = {"format": "ucds-names/1", "model": of.fingerprint, "names": names} | more
    (run / NAMES_FILE).write_text(json.dumps(content))


def test_names_are_a_column_of_the_predictions(
    run_on_images: Path, images: Path, tmp_path: Path, run: Callable[..., int]
) -> None:
    client = shutil.copytree(run_on_images, tmp_path / "client")
    name(client, load_model(client), {"0": "blue, dotted", "2": "grün"})
    assert run("predict", client, images, "--out", tmp_path / "c.csv", "--accelerator", "cpu") == 0
    rows = list(csv.DictReader((tmp_path / "c.csv").open()))
    called = {"0": "blue, dotted", "1": "", "2": "grün"}
    assert [row["name"] for row in rows] == [called[row["cluster"]] for row in rows]
    assert run("report", client, images, "--out", tmp_path / "c.html", "--accelerator", "cpu") == 0
    assert '"2":"gr\\u00fcn"' in (tmp_path / "c.html").read_text()


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"model": "0123456789ab"}, "belong to another model"),
        ({"names": {"3": "of no cluster"}}, "belong to another model"),
        ({"format": "ucds-labels/1"}, "is not a usable file of names: format"),
        ({"names": {"0": ""}}, "is not a usable file of names: names.0"),
    ],
)
def test_what_is_no_name_of_this_model_is_refused(
    run_on_images: Path, tmp_path: Path, more: dict[str, Any], problem: str
) -> None:
    model = load_model(run_on_images)
    name(tmp_path, model, **{"names": {"0": "a"}, **more})
    with pytest.raises(ucds.UserError, match=problem):
        read_names(tmp_path, model)


def test_an_argument_that_a_prediction_does_not_read_is_refused(run_on_images: Path, images: Path) -> None:
    with pytest.raises(ucds.InputError, match=r"^`sort_how` is for `sort_into`.*: leave it out$"):
        ucds.predict(run_on_images, images, sort_how="link")
    with pytest.raises(ucds.InputError, match=r"^`about` is for a run that was.*: leave it out$"):
        ucds.predict(run_on_images, images, about="t.csv")
