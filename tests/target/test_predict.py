"""Tests of `ucds.predict`: the client's model finds clusters, as a function and as a command."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import ucds
from ucds.training.progress import Quiet

pytestmark = pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning")

BRIEF = ucds.ConsensusSettings(starts=2, bottleneck_width=8)
CPU = ucds.RunOptions()
EDGES = ucds.EncoderOptions("ucds/oriented_edges", "none")


@pytest.fixture
def client(tmp_path: Path, blobs: Callable[..., Any]) -> Path:
    """A finished target run on `x.npy`."""
    np.save(tmp_path / "x.npy", blobs({"t": 48})["t"])
    return ucds.train_target(
        tmp_path / "x.npy", tmp_path / "run", n_clusters=4, settings=BRIEF, options=CPU
    ).folder


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Images, of which two would be copied under one name."""
    rng = np.random.default_rng(0)
    for name in ("a/1.png", "a__1.png", "b/deep/2.png", "3.png", "4.png"):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(256, size=(40, 40, 3), dtype=np.uint8)).save(path)
    return tmp_path / "images"


class Listener(Quiet):
    def __init__(self) -> None:
        self.begun: list[tuple[str, int]] = []

    def begin(self, title: str, total: int, done: int = 0) -> None:
        self.begun.append((title, total))


def test_of_several_domains_only_the_one_asked_for_is_decoded(tmp_path: Path, images: Path) -> None:
    out, listener = tmp_path / "run", Listener()
    compute = ucds.Compute("cpu", cache=tmp_path / "cache", reporter=listener)
    ucds.train_target(
        images, out, n_clusters=2, encoder=EDGES, settings=BRIEF, options=CPU, compute=ucds.Compute()
    )
    ucds.predict(out, images / "a", compute=compute)
    assert listener.begun == [("decode images", 1), ("compute features", 1)]
    listener.begun.clear()
    ucds.predict(out, images / "a", compute=compute)
    assert listener.begun == []  # neither is done again


def test_the_function_and_the_command_write_the_same_file(
    client: Path, tmp_path: Path, run: Callable[..., int]
) -> None:
    samples, own, typed = (tmp_path / name for name in ("x.npy", "function.csv", "command.csv"))
    found = ucds.predict(str(client), str(samples), str(own), compute=ucds.Compute("cpu"))
    assert run("predict", client, samples, "--out", typed, "--accelerator", "cpu") == 0
    assert own.read_bytes() == typed.read_bytes()
    rows = list(csv.DictReader(own.open()))
    assert [row["sample"] for row in rows] == list(found.ids) == [str(i) for i in range(48)]
    assert [int(row["cluster"]) for row in rows] == found.clusters.tolist()
    assert [row["confidence"] for row in rows] == [f"{c:.4f}" for c in found.confidence]
    model = ucds.load(client, compute=ucds.Compute("cpu"))
    np.testing.assert_array_equal(found.clusters, model.predict(samples))
    np.testing.assert_array_equal(found.confidence, model.confidence(samples))


def test_nothing_is_written_unless_asked_for(client: Path, tmp_path: Path) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    assert len(ucds.predict(client, tmp_path / "x.npy", compute=ucds.Compute("cpu")).ids) == 48
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_images_are_copied_into_one_folder_a_cluster(images: Path, tmp_path: Path) -> None:
    ucds.train_target(images, tmp_path / "run", n_clusters=2, encoder=EDGES, settings=BRIEF, options=CPU)
    found = ucds.predict(tmp_path / "run", images, sort_into=tmp_path / "sorted", compute=ucds.Compute("cpu"))
    assert sorted(path.name for path in (tmp_path / "sorted").iterdir()) == ["cluster_0", "cluster_1"]
    for name, cluster in zip(found.ids, found.clusters.tolist(), strict=True):
        copies = [path.read_bytes() for path in (tmp_path / "sorted" / f"cluster_{cluster}").iterdir()]
        assert copies.count((images / name).read_bytes()) == 1
    assert sum(path.is_file() for path in (tmp_path / "sorted").rglob("*")) == 5
    with pytest.raises(ucds.InputError, match="is not an empty folder: choose another --sort-into"):
        ucds.predict(tmp_path / "run", images, sort_into=tmp_path / "sorted")


def test_doubtful_samples_are_left_without_a_cluster(
    client: Path, tmp_path: Path, run: Callable[..., int]
) -> None:
    every = ucds.predict(client, tmp_path / "x.npy", compute=ucds.Compute("cpu"))
    limit = float(np.median(every.confidence))
    out = tmp_path / "sure.csv"
    assert run("predict", client, tmp_path / "x.npy", "--out", out, "--min-confidence", limit) == 0
    rows = list(csv.DictReader(out.open()))
    expected = np.where(every.confidence < limit, -1, every.clusters)
    assert [int(row["cluster"]) for row in rows] == expected.tolist()
    assert 0 < (expected == -1).sum() < 48
    assert [row["confidence"] for row in rows] == [f"{c:.4f}" for c in every.confidence]
    found = ucds.predict(client, tmp_path / "x.npy", min_confidence=limit, compute=ucds.Compute("cpu"))
    assert found.unsorted == (expected == -1).sum()
    for impossible in (1.5, -0.1, float("nan")):
        with pytest.raises(ucds.InputError, match="--min-confidence is a probability from 0 to 1, not"):
            ucds.predict(client, tmp_path / "x.npy", min_confidence=impossible)


def test_what_cannot_be_sorted_or_predicted_is_refused(
    client: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ucds.InputError, match="--sort-into needs image files, not embeddings"):
        ucds.predict(client, tmp_path / "x.npy", sort_into=tmp_path / "sorted")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(ucds.InputError, match="the current folder cannot be sorted into"):
        ucds.predict(client, images, sort_into=Path())
    with pytest.raises(ucds.InputError, match="embeddings"):
        ucds.predict(client, images)


def test_a_providers_model_predicts_nothing_for_a_client(tmp_path: Path, blobs: Callable[..., Any]) -> None:
    np.savez(tmp_path / "domains.npz", **blobs({"a": 24, "b": 24}))
    ucds.train_source(tmp_path / "domains.npz", tmp_path / "source", 4, options=CPU)
    np.save(tmp_path / "x.npy", blobs({"t": 8})["t"])
    with pytest.raises(ucds.InputError, match="source models stay with their owner"):
        ucds.predict(tmp_path / "source", tmp_path / "x.npy")
