"""Tests of the start of commands: wrong inputs are refused before anything heavy is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WRONG = (
    ("train-target", "missing", "--clusters", "3", "--out", "run"),
    ("train-target", "empty", "--clusters", "3", "--out", "run"),
    ("train-target", "empty", "--clusters", "3", "--out", "used"),
    ("train-target", "empty", "--labels", "missing.json", "--out", "run"),
    ("train-source", "missing", "--clusters", "3", "--out", "run"),
    ("train-source", "empty", "--clusters", "3", "--domains", "a", "--out", "run"),
    ("label", "missing", "empty", "--out", "labels.json"),
    ("predict", "missing", "empty", "--out", "clusters.csv"),
    ("evaluate", "missing", "empty"),
    ("report", "missing"),
    ("export", "missing"),
)
CODE = """
import sys


class Absent:
    def find_spec(name, path=None, target=None):
        if name == "torch":
            raise SystemError("torch is loaded")


sys.meta_path.insert(0, Absent)
from ucds.cli import main

for line in sys.stdin:
    sys.argv = ["ucds", *line.split()]
    try:
        main()
    except SystemExit as end:
        print(end.code, flush=True)
"""


def test_wrong_inputs_are_refused_without_torch(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "thesis.txt").touch()
    lines = "\n".join(map(" ".join, WRONG))
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, input=lines)
    assert done.stdout.split() == ["2"] * len(WRONG)
    errors = done.stderr.splitlines()
    assert len(errors) == len(WRONG)
    for line in errors:
        assert line.startswith("error: ")
        assert "missing" in line or "empty" in line or "used" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "used"]
