"""The command line on two devices: one message each, one stop, one refusal, a resumed run, both methods."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

pytestmark = [pytest.mark.distributed, pytest.mark.slow, pytest.mark.timeout(2000)]
LONGEST = 600  # seconds: at a load of ten on two cores, two processes take over two minutes to start


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes write a checkpoint at every step."""
    monkeypatch.setenv("UCDS_CHECKPOINT_SECONDS", "0")


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path / "source.npz"
    np.savez(path, one=rng.normal(size=(60, 8)).astype("f4"), two=rng.normal(size=(50, 8)).astype("f4"))
    return path


def command(data: Path, out: Path, *more: str) -> list[str]:
    settings = ["--method", "pcd", "--set", "source_epochs=400", "--set", "batch_size=32"]
    devices = ["--accelerator", "cpu", "--devices", "2"]
    arguments = ["train-source", str(data), "--clusters", "3", "--out", str(out), *devices, *settings, *more]
    return [sys.executable, "-m", "ucds", *arguments]


def test_stop_refuse_and_resume(vectors: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = subprocess.Popen(command(vectors, out), stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + LONGEST
    while not (out / "checkpoint.pt").exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGTERM)  # to the first process alone, as a service manager would
    _, errors = process.communicate(timeout=LONGEST)
    assert process.returncode == 130, errors
    assert errors.count("stopped, with all work saved") == 1

    other = command(vectors, out, "--resume", "--seed", "1")
    refused = subprocess.run(other, capture_output=True, text=True, timeout=LONGEST)
    assert refused.returncode == 2, refused.stderr
    assert refused.stderr.count("error: ") == 1
    assert "its seed is 0, not 1" in refused.stderr

    done = subprocess.run(command(vectors, out, "--resume"), capture_output=True, text=True, timeout=LONGEST)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("source model written") == 1
    assert (out / "model.safetensors").exists()
    assert not (out / "checkpoint.pt").exists()


def test_the_consensus_on_two_devices_is_that_on_one(vectors: Path, tmp_path: Path) -> None:
    one = np.load(vectors)["one"] + 5 * (np.arange(60) % 3)[:, None]
    np.save(tmp_path / "target.npy", np.concatenate([one, one + 0.01]))
    models = []
    for devices in ("1", "2"):
        out = tmp_path / f"run-{devices}"
        arguments = ["train-target", str(tmp_path / "target.npy"), "--clusters", "3", "--out", str(out)]
        arguments += ["--accelerator", "cpu", "--devices", devices, "--set", "most_samples=100"]
        asked = [sys.executable, "-m", "ucds", *arguments]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=LONGEST)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("target model written") == 1
        assert (out / "report.html").exists()
        models.append(load_file(out / "model.safetensors"))
    for name, tensor in models[0].items():
        torch.testing.assert_close(models[1][name], tensor)
