"""A killed run, resumed, ends with the same weights to the last bit as one that never stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

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
    return [sys.executable, "-m", "ucds", *arguments, *common]


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def run_whole(side: str, data: Path, out: Path) -> None:
    subprocess.run(command(side, data, out), env=environment(), check=True, capture_output=True)


def logged_steps(run: Path) -> int:
    log = run / "log.jsonl"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def kill_once(side: str, data: Path, out: Path, moment: int) -> bool:
    """Start or resume; SIGKILL after ``moment`` more checkpoints. False when it finished before."""
    resume = ["--resume"] if out.exists() else []
    process = subprocess.Popen(
        [*command(side, data, out), *resume],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    checkpoint, seen, last = out / "checkpoint.pt", 0, 0
    while process.poll() is None and seen < moment:
        now = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        seen, last = seen + (now != last), now
        time.sleep(0.0005)
    running = process.poll() is None
    process.send_signal(signal.SIGKILL)
    _, errors = process.communicate()
    assert running or process.returncode == 0, errors.decode()
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
    run_whole(side, embeddings, tmp_path / "whole")
    for moment in (3, 7):
        assert kill_once(side, embeddings, tmp_path / "killed", moment)
    assert (tmp_path / "killed" / "checkpoint.pt").exists()
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    subprocess.run(
        [*command(side, embeddings, tmp_path / "killed"), "--resume"],
        env=environment(),
        check=True,
        capture_output=True,
    )
    assert not (tmp_path / "killed" / "checkpoint.pt").exists()
    assert_same_run(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.slow
@pytest.mark.parametrize("side", ["source", "target"])
def test_killed_at_many_random_moments(side: str, embeddings: Path, tmp_path: Path) -> None:
    run_whole(side, embeddings, tmp_path / "whole")
    rng = np.random.default_rng(7)
    kills = 0
    while kill_once(side, embeddings, tmp_path / "killed", int(rng.integers(1, 6))):
        kills += 1
        assert kills < 60
    assert kills >= 5
    assert_same_run(tmp_path / "whole", tmp_path / "killed")
