"""What the tests of the command line share: running a command, and the data to run it on."""

import csv
import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
from PIL import Image

import ucds.cli

EDGES = ("--backbone", "ucds/oriented_edges", "--weights", "none", "--tune", "head")
SHAPES = ("bar", "cross", "disc")

WITHOUT = """
import sys

refused, *commands = sys.argv[1:]


class Refuses:
    def find_spec(name, path=None, target=None):
        if {name, name.partition(".")[0]} & {*refused.split()}:
            raise SystemExit(99)


sys.meta_path.insert(0, Refuses)
from ucds.cli import main

for command in commands:
    sys.argv = ["ucds", *command.split()]
    try:
        main()
    except SystemExit as end:
        print("ENDED", end.code or 0, flush=True)
"""
"""A program that takes libraries and command lines; a command that loads one of them ends with status 99."""


class Result(NamedTuple):
    """Exit status of a command, and what it printed."""

    status: int
    out: str
    err: str


def run_command(*arguments: object) -> Result:
    """Run a command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    command = ["ucds", *map(str, arguments)]
    with mock.patch.object(sys, "argv", command), redirect_stdout(out), redirect_stderr(err):
        try:
            ucds.cli.main()
        except SystemExit as end:
            return Result(int(end.code or 0), out.getvalue(), err.getvalue())
    raise AssertionError("a command ends with an exit status")


def run_successfully(*arguments: object) -> Result:
    """Run a command line in this process, and make sure that it succeeds."""
    done = run_command(*arguments)
    assert done.status == 0, done.err
    return done


def in_subprocess(*arguments: object, env: dict[str, str] | None = None) -> Result:
    """Run a command line in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "ucds", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | (env or {}),
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def draw_domain(root: Path, seed: int, count: int = 8) -> None:
    """Draw several pictures of each class, in class folders: noise that is coarse, finer or fine."""
    rng = np.random.default_rng(seed)
    for fineness, shape in enumerate(SHAPES):
        (root / shape).mkdir(parents=True)
        for i in range(count):
            coarse = rng.integers(256, size=(3 << fineness, 3 << fineness, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize((40, 40)).save(root / shape / f"{i}.png")


def tree(root: Path) -> dict[str, bytes | None]:
    """Return all that lies below a folder: contents of files by path, ``None`` for folders."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read a CSV file with a header."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
