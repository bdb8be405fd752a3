"""Tests of the start of commands: wrong inputs are refused before anything heavy is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WRONG = {
    "train-target": ("train-target", "missing", "--clusters", "3", "--out", "run"),
    "train-target, no image": ("train-target", "empty", "--clusters", "3", "--out", "run"),
    "train-target, used folder": ("train-target", "empty", "--clusters", "3", "--out", "used"),
    "train-target, labels": ("train-target", "empty", "--labels", "missing.json", "--out", "run"),
    "train-source": ("train-source", "missing", "--clusters", "3", "--out", "run"),
    "train-source, domains": ("train-source", "empty", "--clusters", "3", "--domains", "a", "--out", "run"),
    "label": ("label", "missing", "empty", "--out", "labels.json"),
    "predict": ("predict", "missing", "empty", "--out", "clusters.csv"),
    "evaluate": ("evaluate", "missing", "empty"),
    "report": ("report", "missing"),
    "export": ("export", "missing"),
}
CODE = """
import sys


class Absent:
    def find_spec(name, path=None, target=None):
        if name == "torch":
            raise SystemError("torch is loaded")


sys.meta_path.insert(0, Absent)
from ucds.cli import main

sys.argv = ["ucds", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("name", [pytest.param(name, id=name) for name in WRONG])
def test_wrong_inputs_are_refused_without_torch(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "thesis.txt").touch()
    command = [sys.executable, "-c", CODE, *WRONG[name]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert "missing" in line or "empty" in line or "used" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "used"]
