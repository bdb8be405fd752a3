"""A killed run, resumed, ends with the same weights to the last bit as one that never stopped."""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from safetensors.numpy import load_file

from ucds.cli import main

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["ucds.source.train", "ucds.target.train"])
"""Processes are forked from one that has loaded the libraries, which saves most of the time of a start."""

SETTINGS = {
    "source": ("source_epochs=6", "evaluations_per_stage=4"),
    "target": ("clustering_epochs=8", "refinement_epochs=8", "evaluations_per_stage=4"),
}


@pytest.fixture(scope="module")
def embeddings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("embeddings")
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(5, 12))
    domains = {}
    for name, n in (("east", 150), ("north", 90), ("west", 130)):
        noise = rng.normal(size=(n, 12))
        domains[name] = (centres[rng.integers(5, size=n)] + 0.4 * noise + rng.normal(size=12)).astype(
            np.float32
        )
    np.savez(folder / "source.npz", east=domains["east"], north=domains["north"])
    np.save(folder / "target.npy", domains["west"])
    labels = {
        "format": "ucds-labels/1",
        "provider": "test",
        "n_clusters": 5,
        "ids": [str(i) for i in range(130)],
        "labels": rng.integers(5, size=130).tolist(),
    }
    (folder / "labels.json").write_text(json.dumps(labels))
    return folder


def command(side: str, data: Path, out: Path) -> list[str]:
    common = ["--out", str(out), "--method", "pcd", "--accelerator", "cpu", "--checkpoint-seconds", "0"]
    for setting in SETTINGS[side]:
        common += ["--set", setting]
    if side == "source":
        arguments = ["train-source", str(data / "source.npz"), "--clusters", "5"]
    else:
        arguments = ["train-target", str(data / "target.npy"), "--labels", str(data / "labels.json")]
        arguments.append("--no-report")
    return ["ucds", *arguments, *common, "--quiet"]


def start(side: str, data: Path, out: Path) -> ForkServerProcess:
    """Start a run in a process of its own, or resume it if its folder is there."""
    resume = ["--resume"] if out.exists() else []
    process = PROCESSES.Process(target=main)
    with mock.patch.object(sys, "argv", [*command(side, data, out), *resume]):
        process.start()
    return process


def run_to_the_end(side: str, data: Path, out: Path) -> None:
    process = start(side, data, out)
    process.join()
    assert process.exitcode == 0


def logged_steps(run: Path) -> int:
    log = run / "log.jsonl"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def kill_once(side: str, data: Path, out: Path, moment: int) -> bool:
    """Start or resume; SIGKILL after ``moment`` more checkpoints. False when it finished before."""
    process = start(side, data, out)
    checkpoint, seen, last = out / "checkpoint.pt", 0, 0
    while process.is_alive() and seen < moment:
        now = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        seen, last = seen + (now != last), now
        time.sleep(0.0005)
    running = process.is_alive()
    process.kill()
    process.join()
    assert running or process.exitcode == 0
    return running


def assert_same_run(one: Path, other: Path) -> None:
    expected, found = load_file(one / "model.safetensors"), load_file(other / "model.safetensors")
    assert expected.keys() == found.keys()
    for name in expected:
        np.testing.assert_array_equal(expected[name], found[name], err_msg=name)
    assert (one / "log.jsonl").read_text() == (other / "log.jsonl").read_text()
    kept, again = np.load(one / "evaluations.npz"), np.load(other / "evaluations.npz")
    assert kept.files == again.files
    for name in kept.files:
        np.testing.assert_array_equal(kept[name], again[name])


@pytest.mark.parametrize("side", ["source", "target"])
def test_killed_and_resumed_equals_uninterrupted(side: str, embeddings: Path, tmp_path: Path) -> None:
    run_to_the_end(side, embeddings, tmp_path / "whole")
    for moment in (3, 7):
        assert kill_once(side, embeddings, tmp_path / "killed", moment)
    assert (tmp_path / "killed" / "checkpoint.pt").exists()
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    run_to_the_end(side, embeddings, tmp_path / "killed")
    assert not (tmp_path / "killed" / "checkpoint.pt").exists()
    assert_same_run(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.slow
@pytest.mark.parametrize("side", ["source", "target"])
def test_killed_at_many_random_moments(side: str, embeddings: Path, tmp_path: Path) -> None:
    run_to_the_end(side, embeddings, tmp_path / "whole")
    rng = np.random.default_rng(7)
    kills = 0
    while kill_once(side, embeddings, tmp_path / "killed", int(rng.integers(1, 6))):
        kills += 1
        assert kills < 60
    assert kills >= 5
    assert_same_run(tmp_path / "whole", tmp_path / "killed")
