"""Two processes train as one does, one of them does what is done once, and a command speaks once."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
import pytest
import torch

pytestmark = [pytest.mark.torch, pytest.mark.distributed, pytest.mark.slow, pytest.mark.timeout(2000)]

SCRIPT = Path(__file__).with_name("work.py")
LONGEST = 600  # seconds: at a load of ten on two cores, two processes take over two minutes to start


def run_work(what: str, devices: int, out: Path) -> str:
    """Run work of ``work.py`` by several processes, and return what it prints."""
    command = [sys.executable, str(SCRIPT), what, str(devices), str(out)]
    strict = os.environ | {"PYTHONWARNINGS": "error:torch.distributed.nn.functional:FutureWarning"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=strict)
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(out: Path) -> list[dict[str, float | str]]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


@pytest.mark.filterwarnings("ignore:stage .* empty:ucds.errors.UcdsWarning")
def test_two_processes_equal_one(tmp_path: Path) -> None:
    run_path(str(SCRIPT))["run_stages"](1, tmp_path / "one")
    assert "processes: 2" in run_work("stages", 2, tmp_path / "two")
    alone, together = (torch.load(tmp_path / name / "weights.pt") for name in ("one", "two"))
    for side in ("source", "target"):
        torch.testing.assert_close(dict(together[side]), dict(alone[side]), rtol=2e-4, atol=2e-5)
    one, two = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert len(one) == len(two) > 6
    for line, same in zip(one, two, strict=True):
        assert same == {
            name: value if isinstance(value, str) else pytest.approx(value, rel=1e-3, abs=2e-4)
            for name, value in line.items()
        }


@pytest.mark.parametrize("how", ["found", "refused"])
def test_only_the_first_of_two_processes_does_what_is_done_once(how: str, tmp_path: Path) -> None:
    run_work(how, 2, tmp_path)
    assert len(list(tmp_path.glob("call-*"))) == 1
    one, two = ((tmp_path / f"end-{rank}").read_text() for rank in (0, 1))
    assert one == two
    assert (one == "nothing today") == (how == "refused")


def test_the_first_of_two_processes_computes_the_features_of_both(tmp_path: Path) -> None:
    for devices in (1, 2):
        (tmp_path / str(devices)).mkdir()
        run_work("features", devices, tmp_path / str(devices))
    alone = np.load(tmp_path / "1" / "features-0.npy")
    for rank in (0, 1):
        np.testing.assert_array_equal(np.load(tmp_path / "2" / f"features-{rank}.npy"), alone)
        assert (tmp_path / "2" / f"seen-{rank}").read_text() == ("0" if rank else "45")
    assert (tmp_path / "1" / "seen-0").read_text() == "45"


@pytest.fixture
def vectors(tmp_path: Path, blobs: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Vectors of two domains, for processes that write a checkpoint at every step."""
    monkeypatch.setenv("UCDS_CHECKPOINT_SECONDS", "0")
    path = tmp_path / "source.npz"
    np.savez(path, **blobs({"one": 60, "two": 50}, n_clusters=3, width=8))
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
    assert errors.count("stopped; what is finished is saved") == 1

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
