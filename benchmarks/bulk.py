"""`label` and `predict` in bulk by Ray, against the plain loop: equal shards, and seconds.

Photographs of the data sets are drawn in equal steps of their sorted list, and a list of their paths is what
all commands read. A provider's and a client's model are trained on some of them first. Then each command
runs as a process of its own: the plain loop on one processor and on all, and Ray with each number of workers.
The encoder is computed in each run anew; only the files may lie in the memory of the system. Every shard is
compared with that of the plain loop on one processor, byte for byte: each worker of Ray computes with one
thread, too.

    python benchmarks/bulk.py DATA.. --weights FILE [--images 10000] [--workers 1,2] [--leave-out one]
                              [--commands label,predict] [--backbone NAME] [--image-size 128]
                              [--shard-size 512] [--out FILE]

DATA are folders of one folder a domain. `--leave-out one` leaves the plain loop on one processor out.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

import ucds
from ucds.choices import Engine
from ucds.data.folders import scan_domains

TRAINED, CLUSTERS = 400, 12  # images that the models are trained on


@dataclass(frozen=True)
class Photographs:
    """Paths of image files, with the data set of each, which the provider's model takes for its domain."""

    paths: list[str]
    domains: list[str]


@dataclass(frozen=True)
class Way:
    """A way to run a command.

    Attributes:
        engine: engine of the bulk work.
        processors: number of processors that it is to use: of Ray the number of workers.
        pinned: whether the system is told to give it no other processor.
    """

    engine: Engine
    processors: int
    pinned: bool = False

    @property
    def name(self) -> str:
        """Words for the table."""
        what, things = ("Ray", "worker") if self.engine == "ray" else ("plain loop", "processor")
        return f"{what}, {self.processors} {things}{'s' * (self.processors > 1)}"

    @property
    def options(self) -> list[str]:
        """Options of the command."""
        workers = ["--workers", str(self.processors)] if self.engine == "ray" else []
        return ["--engine", self.engine, *workers]


@dataclass(frozen=True)
class Run:
    """One run of a command.

    Attributes:
        command: ``"label"`` or ``"predict"``.
        way: the way in which it ran.
        seconds: time from the start of the process to its end.
        shards: content of each shard's file by its name.
    """

    command: str
    way: Way
    seconds: float
    shards: dict[str, bytes]


def draw(folders: Sequence[Path], count: int) -> Photographs:
    """Draw images in equal steps of the list of all; every image at most once."""
    paths: list[str] = []
    domains: list[str] = []
    for folder in folders:
        scan = scan_domains(folder)
        paths += [str((scan.root / path).absolute()) for path in scan.paths]
        domains += [folder.name] * len(scan)
    if len(paths) < count:
        raise SystemExit(f"there are {len(paths):,} images, not {count:,}")
    chosen = np.linspace(0, len(paths) - 1, count).round().astype(int)
    return Photographs([paths[i] for i in chosen], [domains[i] for i in chosen])


def train(photographs: Photographs, encoder: ucds.EncoderOptions, folder: Path) -> dict[str, Path]:
    """Train a provider's and a client's model on some of the images; return the run of each command."""
    step = max(1, len(photographs.paths) // TRAINED)
    rows = list(zip(photographs.paths[::step], photographs.domains[::step], strict=True))
    with (folder / "domains.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "domain"), *rows])
    (folder / "some.txt").write_text("\n".join(path for path, _ in rows))
    options, cache = ucds.RunOptions(accelerator="cpu"), ucds.CacheOptions(folder / "cache")
    found = {"label": folder / "provider", "predict": folder / "client"}
    for command, images in (("label", "domains.csv"), ("predict", "some.txt")):
        if command == "label":
            ucds.train_source(
                folder / images, found[command], CLUSTERS, encoder=encoder, options=options, cache=cache
            )
        else:
            ucds.train_target(
                folder / images,
                found[command],
                n_clusters=CLUSTERS,
                encoder=encoder,
                options=options,
                cache=cache,
            )
    return found


def ways(workers: Sequence[int], left_out: Sequence[str]) -> list[Way]:
    """Return the ways to run a command; the shards of all are compared with those of the first."""
    found = [] if "one" in left_out else [Way("plain", 1, pinned=True)]
    return [*found, Way("plain", os.cpu_count() or 1), *(Way("ray", number) for number in workers)]


def run(command: str, model: Path, images: Path, out: Path, way: Way, shard_size: int) -> Run:
    """Run a command in one way, in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    environment["RAY_worker_niceness"] = "0"  # as the plain loop has it; Ray's own choice is 15
    pin = ["taskset", "--cpu-list", "0"] if way.pinned else []
    words = [sys.executable, "-m", "ucds", command, str(model), str(images), "--out", str(out), "--quiet"]
    words += ["--accelerator", "cpu", "--shard-size", str(shard_size), *way.options]
    begun = time.perf_counter()
    subprocess.run([*pin, *words], env=environment, check=True)
    seconds = time.perf_counter() - begun
    return Run(command, way, seconds, {path.name: path.read_bytes() for path in out.glob("*.parquet")})


def runs(
    commands: Sequence[str], models: dict[str, Path], images: Path, folder: Path, options: argparse.Namespace
) -> Iterator[Run]:
    """Run every command in every way."""
    workers = [int(number) for number in options.workers.split(",")]
    for command in commands:
        for number, way in enumerate(ways(workers, options.leave_out.split(","))):
            out = folder / f"{command}-{number}"
            done = run(command, models[command], images, out, way, options.shard_size)
            print(f"{command}, {way.name}: {done.seconds:.1f} s", flush=True)
            yield done


def table(done: Sequence[Run], count: int) -> list[str]:
    """Write the runs as a table, each against those that it is to be compared with."""
    lines = [
        "| command | way | seconds | images/s | times Ray with 1 worker "
        "| time beyond the plain loop on as many processors | shards |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for each in done:
        same = [other for other in done if other.command == each.command]
        known = {(other.way.engine, other.way.processors): other.seconds for other in same}
        one, plain = known.get(("ray", 1)), known.get(("plain", each.way.processors))
        times = f"{one / each.seconds:.2f}" if one and each.way.engine == "ray" else ""
        beyond = f"{100 * (each.seconds / plain - 1):+.0f}%" if plain and each.way.engine == "ray" else ""
        first = same[0].shards
        equal = sum(each.shards.get(name) == content for name, content in first.items())
        shards = f"{equal} of {len(first)} equal" if each.shards.keys() == first.keys() else "OTHER FILES"
        lines.append(
            f"| {each.command} | {each.way.name} | {each.seconds:.1f} | {count / each.seconds:.1f} "
            f"| {times} | {beyond} | {shards} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--backbone", default="mobilenetv2_100")
    parser.add_argument("--image-size", type=int, default=128, help="side of the crop in pixels")
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--commands", default="label,predict")
    parser.add_argument("--leave-out", default="", help="'one': the plain loop on one processor")
    parser.add_argument("--shard-size", type=int, default=512)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    options = parser.parse_args()
    load, done = os.getloadavg()[0], list[Run]()
    photographs = draw(options.data, options.images)
    encoder = ucds.EncoderOptions(options.backbone, options.weights, options.image_size)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        images = folder / "images.txt"
        images.write_text("\n".join(photographs.paths))
        models = train(photographs, encoder, folder)
        for each in runs(options.commands.split(","), models, images, folder, options):
            done.append(each)
            options.out.write_text(page(done, options, load))  # what is known, should it be stopped
    print(page(done, options, load))


def page(done: Sequence[Run], options: argparse.Namespace, load: float) -> str:
    """Write the runs that are done, and how they were made."""
    names = " and ".join(folder.name for folder in options.data)
    text = [
        "# Bulk work by Ray against the plain loop",
        "",
        "Made by `python benchmarks/bulk.py`; not edited by hand. What bulk work is: "
        "[docs/bulk.md](../docs/bulk.md).",
        "",
        f"{options.images:,} photographs of {names}, shards of {options.shard_size}, {options.backbone} "
        f"at {options.image_size} pixels, models of {CLUSTERS} clusters. Each run is a process of its own; "
        f"its start, and that of Ray, are in the seconds. torch {version('torch')}, Ray {version('ray')}, "
        f"Python {platform.python_version()}, {platform.machine()}, "
        f"{os.cpu_count()} processors; load average {load:.1f} at the start.",
        "",
        *table(done, options.images),
        "",
    ]
    return "\n".join(text)


if __name__ == "__main__":
    main()
