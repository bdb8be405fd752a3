"""A disk that fills up ends a run in one line; with room again, it goes on as if nothing had happened."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from ucds.labels.cluster_labels import ClusterLabels


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Embeddings of two providers and a client, and labels."""
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=(60, 12)).astype(np.float32) for name in ("east", "north")}
    np.savez(tmp_path / "source.npz", **arrays)
    np.save(tmp_path / "target.npy", arrays["east"] + 1)
    ids = tuple(str(i) for i in range(60))
    ClusterLabels(ids, rng.integers(5, size=60), 5, "test").save(tmp_path / "labels.json")
    return tmp_path


def train(side: str, data: Path, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    what = {
        "source": ["train-source", str(data / "source.npz"), "--clusters", "5"],
        "target": ["train-target", str(data / "target.npy"), "--labels", str(data / "labels.json")],
    }[side]
    epochs = ["source_epochs=20"] if side == "source" else ["clustering_epochs=10", "refinement_epochs=10"]
    options = ["--out", str(out), "--method", "pcd", "--accelerator", "cpu"]
    options += [word for setting in epochs for word in ("--set", setting)]
    options += ["--no-report"] if side == "target" else []
    command = [sys.executable, "-m", "ucds", *what, *options, *more]
    often = os.environ | {"UCDS_CHECKPOINT_SECONDS": "0"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=often)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_run_on_a_full_disk_goes_on_when_there_is_room(side: str, data: Path, disk: Path) -> None:
    assert train(side, data, data / "whole").returncode == 0
    expected = load_file(data / "whole" / "model.safetensors")
    for leave in (8_192, 40_960, 90_112, 163_840):
        out = disk / "run"
        filler = disk / "filler"
        filler.write_bytes(bytes(4 * 2**20 - leave))
        full = train(side, data, out)
        assert full.returncode == 2, (leave, full.stderr)
        *_, last = full.stderr.splitlines()
        assert last.startswith("error: ")
        assert str(out) in last
        assert "Traceback" not in full.stderr
        filler.unlink()
        resumed = train(side, data, out, *(["--resume"] if out.exists() else []))
        assert resumed.returncode == 0, (leave, resumed.stderr)
        found = load_file(out / "model.safetensors")
        assert all((found[name] == expected[name]).all() for name in expected)
        assert (out / "log.jsonl").read_text() == (data / "whole" / "log.jsonl").read_text()
        subprocess.run(["rm", "-r", str(out)], check=True)
