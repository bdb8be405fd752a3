"""A run that was killed, or whose disk was full, ends with the weights of one that never stopped."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from killing import run_and_kill
from PIL import Image
from safetensors.numpy import load_file

from ucds.labels.cluster_labels import ClusterLabels

pytestmark = [pytest.mark.torch, pytest.mark.slow]

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["ucds.source.train", "ucds.target.train"])
"""Processes are forked from one that has loaded the libraries, which saves most of the time of a start."""

SETTINGS = {
    "source": ("source_epochs=6", "evaluations_per_stage=4"),
    "target": ("clustering_epochs=8", "refinement_epochs=8", "evaluations_per_stage=4"),
}


def write_labels(folder: Path, ids: Iterable[str], labels: np.ndarray) -> None:
    ClusterLabels(tuple(ids), labels, 5, "test").save(folder / "labels.json")


@pytest.fixture(scope="module")
def embeddings(tmp_path_factory: pytest.TempPathFactory, blobs: Callable[..., Any]) -> Path:
    folder = tmp_path_factory.mktemp("embeddings")
    domains = blobs({"east": 150, "north": 90, "west": 130}, n_clusters=5, width=12)
    np.savez(folder / "source.npz", east=domains["east"], north=domains["north"])
    np.save(folder / "target.npy", domains["west"])
    write_labels(folder, map(str, range(130)), np.random.default_rng(0).integers(5, size=130))
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures for both sides, of five forms in other colours; the cache is filled by the first run."""
    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    for domain in ("source/east", "source/north", "target"):
        (folder / domain).mkdir(parents=True)
        for i in range(24):
            pixels = rng.integers(160, size=(40, 40, 3), dtype=np.uint8)
            pixels[4 * (i % 5) : 4 * (i % 5) + 20, 10:30] += 80
            Image.fromarray(pixels).save(folder / domain / f"{i:02d}.png")
    write_labels(folder, [f"{i:02d}.png" for i in range(24)], np.arange(24) % 5)
    return folder


def command(side: str, data: Path, out: Path) -> list[str]:
    common = ["--out", str(out), "--method", "pcd", "--accelerator", "cpu"]
    for setting in SETTINGS[side]:
        common += ["--set", setting]
    place = data / side
    if place.is_dir():
        common += ["--tune", "full", "--backbone", "test_resnet", "--weights", "none", "--image-size", "32"]
        common += ["--set", "batch_size=8"]
    else:
        place = place.with_suffix(".npz" if side == "source" else ".npy")
    if side == "source":
        arguments = ["train-source", str(place), "--clusters", "5"]
    else:
        arguments = ["train-target", str(place), "--labels", str(data / "labels.json"), "--no-report"]
    return ["ucds", *arguments, *common, "--quiet", *(["--resume"] if out.exists() else [])]


def is_killed(side: str, data: Path, out: Path, changes: int = 0, pause: float = 0.0) -> bool:
    """Run or resume in a process of its own. False when it came to its end before it was killed."""
    arguments = (command(side, data, out), f"{out}{os.sep}", changes, pause)
    process = PROCESSES.Process(target=run_and_kill, args=arguments)
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def assert_same_run(one: Path, other: Path) -> None:
    np.testing.assert_equal(load_file(other / "model.safetensors"), load_file(one / "model.safetensors"))
    assert (one / "log.jsonl").read_text() == (other / "log.jsonl").read_text()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("data", ["embeddings", "images"])
@pytest.mark.parametrize("side", ["source", "target"])
def test_killed_at_thirty_random_moments(
    side: str, data: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folder = request.getfixturevalue(data)
    rng, kills, runs = np.random.default_rng(7), 0, 0
    assert not is_killed(side, folder, tmp_path / "whole")
    while kills < 30:  # a run that ends before it is killed often enough is followed by another
        out = tmp_path / f"killed{runs}"
        while is_killed(side, folder, out, int(rng.integers(1, 40)), rng.choice([0, rng.uniform(0, 0.05)])):
            kills += 1
        assert_same_run(tmp_path / "whole", out)
        runs += 1
        assert runs < 30


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_run_on_a_full_disk_goes_on_when_there_is_room(
    side: str, embeddings: Path, disk: Path, tmp_path: Path
) -> None:
    assert not is_killed(side, embeddings, tmp_path / "whole")
    often = os.environ | {"UCDS_CHECKPOINT_SECONDS": "0"}
    out, filler = disk / "run", disk / "filler"
    for leave in (8_192, 40_960, 90_112, 122_880):
        filler.write_bytes(bytes(4 * 2**20 - leave))
        typed = [sys.executable, "-m", *command(side, embeddings, out)]
        full = subprocess.run(typed, capture_output=True, text=True, timeout=300, env=often)
        assert full.returncode == 2, (leave, full.stderr)
        *_, last = full.stderr.splitlines()
        assert last.startswith("error: ")
        assert str(out) in last
        assert "Traceback" not in full.stderr
        filler.unlink()
        assert not is_killed(side, embeddings, out)
        assert_same_run(tmp_path / "whole", out)
        shutil.rmtree(out)
