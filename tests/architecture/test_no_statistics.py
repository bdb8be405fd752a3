"""Tests that commands ask for nobody, and write nothing but their outputs and the cache."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

APART = ["unshare", "--map-root-user", "--net", "--mount"]
ENCODER = "--backbone ucds/oriented_edges"
EXAMPLE = Path(__file__).parents[2] / "examples" / "onnx_model.py"
OF_RAY = {socket.gethostname(), "metadata.google.internal"}  # its own machine, and the cloud around it


pytestmark = pytest.mark.timeout(900)  # a loaded machine takes minutes to start so many programs


def _ucds(line: str) -> list[str]:
    return [sys.executable, "-m", "ucds", *line.split()]


# All commands that compute something, in an order in which each one finds what it needs.
COMMANDS = {
    "train-source": _ucds("train-source x.npz --clusters 3 --out provider"),
    "label": _ucds("label provider x.npy --out labels.json"),
    "train-target": _ucds("train-target x.npy --labels labels.json --out own"),
    "train-target of images": _ucds(f"train-target images --clusters 3 --out run {ENCODER}"),
    "predict": _ucds("predict run images --out clusters.csv"),
    "report": _ucds("report run images"),
    "export": _ucds("export run --out model.onnx"),
    "export for a hub": _ucds("export run --format hub"),
    "evaluate": _ucds("evaluate run images"),
    "features": _ucds(f"features images --out features {ENCODER}"),
    "audit": _ucds("audit provider --members x.npy --others y.npy --out a.html --quick"),
    "example": [sys.executable, str(EXAMPLE), "model.onnx", "images"],
    "every public name": [sys.executable, "-c", "import ucds; [getattr(ucds, n) for n in ucds.__all__]"],
}
BY_RAY = {"features by Ray": _ucds(f"features images --out features --engine ray {ENCODER}")}


def _run_apart(commands: list[list[str]], folder: Path, **more: str) -> Any:
    (folder / "home").mkdir()
    env = {
        name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH", "OMP_NUM_THREADS")
    }
    env |= {"HOME": str(folder / "home"), "UCDS_CACHE": str(folder / "cache")} | more
    runner = str(Path(__file__).parent / "run_apart.py")
    line = [*APART, sys.executable, runner, json.dumps(commands)]
    done = subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    if shutil.which("unshare") is None or subprocess.run([*APART, "true"]).returncode:
        pytest.skip("this user may not make namespaces")


def _check(commands: dict[str, list[str]], folder: Path, may_ask: Collection[str] = ()) -> None:
    """Make sure that commands succeed, look up no other name, and leave the home folder empty."""
    found = dict(zip(commands, _run_apart(list(commands.values()), folder), strict=True))
    assert {name: told for name, (status, _, told) in found.items() if status} == {}
    assert {name: others for name, (_, names, _) in found.items() if (others := {*names} - {*may_ask})} == {}
    assert [str(path) for path in (folder / "home").rglob("*")] == []


@pytest.fixture
def images(tmp_path: Path, write_images: Callable[..., list[Path]]) -> None:
    write_images(tmp_path / "images", [f"{c}/{i}.png" for c in "abc" for i in range(12)])


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.usefixtures("images")
def test_no_command_asks_for_anybody_or_writes_elsewhere(
    tmp_path: Path, blobs: Callable[..., dict[str, np.ndarray]]
) -> None:
    domains = blobs({"a": 60, "b": 60, "c": 60})
    np.savez(tmp_path / "x.npz", **domains)
    np.save(tmp_path / "x.npy", domains["a"])
    np.save(tmp_path / "y.npy", domains["c"])
    _check(COMMANDS, tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("images")
def test_ray_asks_for_nobody_but_its_own_machine_and_its_cloud(tmp_path: Path) -> None:
    _check(BY_RAY, tmp_path, OF_RAY)


def test_the_resolver_would_tell(tmp_path: Path) -> None:
    """Of a library that sends statistics, the tests above would know; that which computes asks for nobody."""
    asking = "import socket\ntry: socket.getaddrinfo('statistics.example', 443)\nexcept OSError: pass"
    computing = [sys.executable, "-c", "import ucds, onnxruntime"]
    others, own = _run_apart([[sys.executable, "-c", asking], computing], tmp_path)
    assert (others[0], own[0]) == (0, 0)
    assert "statistics.example" in others[1]
    assert own[1] == []
