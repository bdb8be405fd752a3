"""All but learning by gradients runs where neither PyTorch nor anything that comes with it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ucds

HIDDEN = ("torch", "torchvision", "timm", "lightning_fabric", "onnx", "onnxscript", "pandas", "numba")
"""Packages that the plain installation does without."""

_HIDING = f"""
from importlib.machinery import PathFinder
find = PathFinder.find_spec
def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in {HIDDEN} else find(name, path, target)
PathFinder.find_spec = find_spec
"""


@pytest.mark.parametrize("what", ["both sides", pytest.param("demo", marks=pytest.mark.slow)])
def test_it_runs_without_tensors(what: str, tmp_path: Path) -> None:
    hiding, work = tmp_path / "hiding", tmp_path / "work"
    hiding.mkdir()
    work.mkdir()
    (hiding / "sitecustomize.py").write_text(_HIDING)
    path = os.pathsep.join((str(hiding), str(Path(ucds.__file__).parents[1])))
    cache = str(tmp_path / "cache")
    environment = os.environ | {"PYTHONPATH": path, "UCDS_CACHE": cache, "OMP_NUM_THREADS": "1"}
    program = [sys.executable, str(Path(__file__).parent / "run_without.py"), str(work), what]
    done = subprocess.run(program, capture_output=True, text=True, env=environment)
    assert done.stdout.endswith("all of it\n"), done.stderr[-3000:]
