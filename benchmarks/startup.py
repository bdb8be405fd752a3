"""Times and memory of the first commands, beside those of another checkout, in one run that takes turns.

The other checkout has an environment of its own, into which it or its dependencies were installed. Each
command is a process, and each round has an empty cache. Prints a table and writes it to startup.md.

    python benchmarks/startup.py CHECKOUT PYTHON --images FOLDER [--encoder "--backbone NAME --weights FILE"]
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

HERE = Path(__file__).parents[1]
ROWS, WIDTH, GROUPS = 200_000, 64, 50
IMPORT = "import time; t = time.perf_counter(); import ucds; print(time.perf_counter() - t)"
LIMITS = {
    "predict of 8 images": (0.35, None),
    "predict of all, known": (0.4, None),
    "first train-target": (0.75, 0.4),
    "second train-target": (0.6, None),
    f"train-target on {ROWS:,} vectors": (1.0, 1.0),
}
"""Largest ratios of time and of memory to the other checkout's."""


class Cost(NamedTuple):
    """Seconds of a process, and the most memory that it held, in MB."""

    seconds: float
    megabytes: float


Call = Callable[..., tuple[Cost, str]]


def measure(run: Call, encoder: Sequence[str], images: Path) -> Iterator[tuple[str, Cost]]:
    """Run all commands of one side, and yield what each of them costs."""
    yield "import ucds", Cost(float(run("-c", IMPORT)[1]), 0.0)
    for what, out in (("first train-target", "run"), ("second train-target", "again")):
        train = ["train-target", str(images), "--clusters", "31", "--out", out, *encoder]
        yield what, run("-m", "ucds", *train)[0]
    for what, data in (("predict of all, known", images), ("predict of 8 images", Path("../few"))):
        yield what, run("-m", "ucds", "predict", "run", str(data), "--out", f"{data.name}.csv")[0]
    vectors = ["train-target", "../vectors.npy", "--clusters", str(GROUPS), "--out", "vectors"]
    yield f"train-target on {ROWS:,} vectors", run("-m", "ucds", *vectors)[0]


def call(checkout: Path, python: str, place: Path, *arguments: str) -> tuple[Cost, str]:
    """Run Python with a checkout in a folder, and return what it cost and what it printed."""
    place.mkdir(exist_ok=True)
    env = os.environ | {"PYTHONPATH": str(checkout / "src"), "XDG_CACHE_HOME": str(place / "cache")}
    begun, command = time.perf_counter(), [python, *arguments]
    with subprocess.Popen(command, cwd=place, env=env, stdout=subprocess.PIPE, text=True) as process:
        said = process.stdout.read() if process.stdout else ""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{shlex.join(command)} ended with {process.returncode}")
    return Cost(time.perf_counter() - begun, usage.ru_maxrss / 1000), said


def make_inputs(place: Path, images: Path) -> None:
    """Copy eight images into a folder, and draw vectors in groups."""
    (place / "few").mkdir()
    for number, path in enumerate(sorted(path for path in images.rglob("*") if path.is_file())[:8]):
        shutil.copy(path, place / "few" / f"{number}{path.suffix}")
    rng = np.random.default_rng(0)
    vectors = 3 * rng.normal(size=(GROUPS, WIDTH))[rng.integers(0, GROUPS, ROWS)]
    np.save(place / "vectors.npy", (vectors + rng.normal(size=vectors.shape)).astype(np.float32))


def table(found: dict[str, list[tuple[Cost, Cost]]]) -> Iterator[str]:
    """Write the medians of all rounds, and the medians of their ratios."""
    yield "| what | seconds | before | ratio | at most | MB | before | ratio | at most |"
    yield "|---" * 9 + "|"
    for what, rounds in found.items():
        cells = [what]
        for part, digits, limit in zip(Cost._fields, (2, 0), LIMITS.get(what, (None, None)), strict=True):
            pairs = [(getattr(one, part), getattr(other, part)) for one, other in rounds]
            ratio = median(one / max(other, 1e-9) for one, other in pairs)
            cells += [f"{median(values):,.{digits}f}" for values in zip(*pairs, strict=True)]
            cells += [f"{ratio:.2f}", "" if limit is None else f"{limit:.2f}"]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure both sides in turn."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path, help="checkout of the other revision")
    parser.add_argument("python", help="interpreter of its environment")
    parser.add_argument("--images", type=Path, required=True, help="folder of images")
    parser.add_argument("--encoder", default="", help="options with which it gets its encoder")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    found: dict[str, list[tuple[Cost, Cost]]] = {}
    with tempfile.TemporaryDirectory() as name:
        make_inputs(Path(name), given.images)
        for number in range(given.rounds):
            ours = partial(call, HERE, sys.executable, Path(name, f"{number}-ours"))
            theirs = partial(call, given.checkout.resolve(), given.python, Path(name, f"{number}-theirs"))
            images = given.images.resolve()
            sides = measure(ours, (), images), measure(theirs, shlex.split(given.encoder), images)
            for (what, one), (_, other) in zip(*sides, strict=True):
                found.setdefault(what, []).append((one, other))
                print(what, one, other, flush=True)
    about = f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors, {given.rounds} rounds"
    lines = [about, "", *table(found)]
    print("\n".join(lines))
    Path(__file__).with_suffix(".md").write_text("\n".join(["# Start-up", "", *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
