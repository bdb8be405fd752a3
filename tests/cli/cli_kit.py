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
from PIL import Image, ImageDraw

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


def draw(path: Path, shape: str, seed: int, colours: tuple[str, str]) -> None:
    """Draw a shape somewhere on a picture."""
    rng = np.random.default_rng(seed)
    image = Image.new("RGB", (40, 40), colours[0])
    pen = ImageDraw.Draw(image)
    x, y = (int(v) for v in rng.integers(14, 26, 2))
    if shape == "disc":
        pen.ellipse((x - 10, y - 10, x + 10, y + 10), fill=colours[1])
    else:
        pen.line((x - 12, y, x + 12, y), fill=colours[1], width=4)
    if shape == "cross":
        pen.line((x, y - 12, x, y + 12), fill=colours[1], width=4)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


def draw_domain(root: Path, colours: tuple[str, str], seed: int, count: int = 8) -> None:
    """Draw every shape several times, in class folders."""
    for shape in SHAPES:
        for i in range(count):
            draw(root / shape / f"{i}.png", shape, 1000 * seed + i, colours)


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
