"""How long a newcomer takes from a clone of the project to the report of a folder of photographs.

The repository is cloned to a new folder and its environment is made there. Then three commands sort the
photographs, without a number of clusters: the model with its report, folders of sorted photographs, and the
report of these. No cache of this machine is read. Nobody reads or types in between, so a person takes longer.

    python benchmarks/newcomer.py PHOTOS [--weights FILE] [--repository ADDRESS]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ucds.files import write_text_atomically

RECORD = Path(__file__).with_suffix(".md")
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Step:
    """One command of the way.

    Attributes:
        command: command as the newcomer types it.
        seconds: time until it ended.
    """

    command: str
    seconds: float


def main() -> None:
    """Go the way once, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("photos", type=Path, help="folder of photographs")
    parser.add_argument(
        "--weights", type=Path, help="weights of mobilenetv2_100, for machines without a network"
    )
    parser.add_argument("--repository", default=str(ROOT), help="address of the repository")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as place:
        steps = walk(Path(place), options)
        revision = _output(["git", "rev-parse", "--short=12", "HEAD"], Path(place) / "ucds")
        count = len((Path(place) / "clusters.csv").read_text().splitlines()) - 1
    write_text_atomically(RECORD, describe(steps, count, revision, load))
    print(RECORD.read_text())


def walk(place: Path, options: argparse.Namespace) -> list[Step]:
    """Clone, install and sort in a folder, and return what each command took."""
    clone, photos = place / "ucds", place / "PHOTOS"
    photos.symlink_to(options.photos.resolve())
    encoder = ["--backbone", "mobilenetv2_100"]
    if options.weights:
        encoder += ["--weights", str(options.weights.resolve())]
    ucds = str(clone / ".venv" / "bin" / "ucds")
    return [
        _take("git clone ADDRESS ucds", ["git", "clone", "--quiet", options.repository, "ucds"], place),
        _take("make setup", ["make", "setup"], clone),
        _take(
            "ucds train-target PHOTOS --clusters auto --out first --backbone mobilenetv2_100",
            [ucds, "train-target", "PHOTOS", "--clusters", "auto", "--out", "first", *encoder],
            place,
        ),
        _take(
            "ucds predict first PHOTOS --out clusters.csv --sort-into sorted --no-report",
            [
                ucds,
                "predict",
                "first",
                "PHOTOS",
                "--out",
                "clusters.csv",
                "--sort-into",
                "sorted",
                "--no-report",
            ],
            place,
        ),
        _take("ucds report first", [ucds, "report", "first"], place),
    ]


def _take(command: str, words: Sequence[str], place: Path) -> Step:
    """Run a command in a folder, with empty caches of its own, and measure it."""
    own = os.environ | {"XDG_CACHE_HOME": str(place / "caches")}
    started = time.monotonic()
    subprocess.run(words, cwd=place, env=own, check=True, stdout=subprocess.DEVNULL)
    step = Step(command, time.monotonic() - started)
    print(f"{step.seconds:7.1f} s  {command}", flush=True)
    return step


def _output(words: Sequence[str], place: Path) -> str:
    return subprocess.run(words, cwd=place, check=True, capture_output=True, text=True).stdout.strip()


def describe(steps: Sequence[Step], photographs: int, revision: str, load: float) -> str:
    """Write the record as Markdown."""
    rows = [f"| `{step.command}` | {step.seconds:.0f} |" for step in steps]
    commands = sum(step.seconds for step in steps[2:])
    return "\n".join(
        [
            "# A newcomer's way",
            "",
            "Made by `python benchmarks/newcomer.py`; not edited by hand.",
            "",
            f"{photographs} photographs, {os.cpu_count()} processors, load average {load:.1f} at the start,",
            f"revision {revision}. Caches were empty. The time of `make setup` depends on the network: it",
            "installs all extras, with the CUDA build of PyTorch.",
            "",
            "| command | seconds |",
            "| --- | ---: |",
            *rows,
            "",
            f"The three commands on the photographs took {commands:.0f} seconds together. The first of them",
            "writes a report, too.",
            "",
        ]
    )


if __name__ == "__main__":
    main()
