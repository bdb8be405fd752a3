"""`label` and `predict` in bulk by Ray, against the plain loop: equal shards, and seconds.

Photographs of the data sets are drawn in equal steps of their sorted list, and a list of their paths is what
all commands read. A provider's and a client's model are trained on some of them first. Then each command
runs as a process of its own: the plain loop on one processor and on all, and Ray with each number of workers
on as many processors. (A worker decodes beside its computing, on a second processor if it gets one.) The
encoder is computed in each run anew; only the files may lie in the memory of the system. Every shard is
compared with that of the plain loop on one processor, byte for byte.

    python benchmarks/bulk.py DATA.. --weights FILE [--images 10000] [--workers 1,2] [--image-size 224]
                              [--commands label,predict] [--backbone NAME] [--shard-size 512]

DATA are folders of one folder a domain; without them the page is written anew from the records in bulk.jsonl.
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
from records import Records

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
        processors: number of processors that the system gives it; of Ray also the number of workers.
    """

    engine: Engine
    processors: int

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
        image_size: side of the crop in pixels.
        images: number of images.
        engine: engine of the bulk work.
        processors: number of processors, see :class:`Way`.
        seconds: time from the start of the process to its end.
        shards: number of shards.
        equal: number of shards that equal those of the plain loop on one processor, byte for byte.
        load: runnable processes of the machine before the first of the runs.
        machine: processor, and versions of the packages.
    """

    command: str
    image_size: int
    images: int
    engine: Engine
    processors: int
    seconds: float
    shards: int
    equal: int
    load: float
    machine: str

    @property
    def way(self) -> Way:
        """The way in which it ran."""
        return Way(self.engine, self.processors)

    @property
    def task(self) -> tuple[str, int, int]:
        """What was to be done: runs of one task are compared with each other."""
        return self.command, self.image_size, self.images


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


def ways(workers: Sequence[int]) -> list[Way]:
    """Return the ways to run a command; the shards of all are compared with those of the first."""
    return [Way("plain", 1), Way("plain", os.cpu_count() or 1), *(Way("ray", number) for number in workers)]


def run(command: str, model: Path, images: Path, out: Path, way: Way, shard_size: int) -> float:
    """Run a command in one way, in a process of its own; return the seconds that it took."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    environment["RAY_worker_niceness"] = "0"  # as the plain loop has it; Ray's own choice is 15
    pin = ["taskset", "--cpu-list", f"0-{way.processors - 1}"]
    words = [sys.executable, "-m", "ucds", command, str(model), str(images), "--out", str(out), "--quiet"]
    words += ["--accelerator", "cpu", "--shard-size", str(shard_size), *way.options]
    begun = time.perf_counter()
    subprocess.run([*pin, *words], env=environment, check=True)
    return time.perf_counter() - begun


def shards_in(folder: Path) -> dict[str, bytes]:
    """Read the shards that a command wrote, by name."""
    return {path.name: path.read_bytes() for path in folder.glob("*.parquet")}


def runs(models: dict[str, Path], images: Path, folder: Path, options: argparse.Namespace) -> Iterator[Run]:
    """Run every command in every way."""
    load = round(os.getloadavg()[0], 1)
    workers = [int(number) for number in options.workers.split(",")]
    for command in options.commands.split(","):
        first: dict[str, bytes] = {}
        for number, way in enumerate(ways(workers)):
            out = folder / f"{command}-{number}"
            seconds = run(command, models[command], images, out, way, options.shard_size)
            found = shards_in(out)
            first = first or found
            equal = sum(first.get(name) == content for name, content in found.items())
            yield Run(
                command,
                options.image_size,
                options.images,
                way.engine,
                way.processors,
                round(seconds, 1),
                len(found),
                equal,
                load,
                machine(),
            )


def machine() -> str:
    """Describe the machine and the packages."""
    packages = f"torch {version('torch')}, Ray {version('ray')}, Python {platform.python_version()}"
    return f"{os.cpu_count()} processors ({processor_name()}), {packages}"


def processor_name() -> str:
    """Return the name of the processor, as the system tells it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")


PAGE = """# Bulk work by Ray against the plain loop

Made by `python benchmarks/bulk.py` from `bulk.jsonl`; not edited by hand. What bulk work is:
[docs/large-data.md](../docs/bulk.md).

Photographs of Office-31 and PACS, MobileNetV2, models of 12 clusters, shards of 512. Each run is a process
of its own, which has as many processors as the way says; its start, and that of Ray, are in the seconds.

- *times one worker*: images a second in relation to those of Ray with one worker, on one processor.
- *beyond the plain loop*: seconds more than the plain loop takes on as many processors.
- *equal*: shards that equal those of the plain loop on one processor, byte for byte.

{tables}
"""


def page(recorded: Sequence[Run]) -> str:
    """Write a table for each size of the images; of two runs of one task and way the later one counts."""
    done, parts = list({(one.task, one.way): one for one in recorded}.values()), []
    for size in sorted({one.image_size for one in done}):
        some = [one for one in done if one.image_size == size]
        facts = "; ".join(dict.fromkeys(one.machine for one in some))
        most = max(one.load for one in some)
        parts += [f"## {size} pixels", "", f"{facts}; load average {most:.1f} at the start.", ""]
        parts += [*table(some), ""]
    return PAGE.format(tables="\n".join(parts).rstrip())


def table(done: Sequence[Run]) -> list[str]:
    """Write runs as a table, each against those that it is to be compared with."""
    lines = [
        "| command | images | way | seconds | images/s | times one worker | beyond the plain loop | equal |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for one in done:
        known = {other.way: other.seconds for other in done if other.task == one.task}
        first, plain = known.get(Way("ray", 1)), known.get(Way("plain", one.processors))
        is_ray = one.engine == "ray"
        times = f"{first / one.seconds:.2f}" if first and is_ray else ""
        beyond = f"{100 * (one.seconds / plain - 1):+.0f}%" if plain and is_ray else ""
        cells = [one.command, f"{one.images:,}", one.way.name, f"{one.seconds:.1f}"]
        cells += [f"{one.images / one.seconds:.1f}", times, beyond, f"{one.equal} of {one.shards}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="*", type=Path)
    parser.add_argument("--weights", default="default")
    parser.add_argument("--backbone", default="mobilenetv2_100")
    parser.add_argument("--image-size", type=int, default=224, help="side of the crop in pixels")
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--commands", default="label,predict")
    parser.add_argument("--shard-size", type=int, default=512)
    options = parser.parse_args()
    records = Records(__file__, Run)
    if options.data:
        measure(options, records)
    records.write_page(page(records.runs))


def measure(options: argparse.Namespace, records: Records[Run]) -> None:
    """Train the models, and record a run of each command in each way."""
    photographs = draw(options.data, options.images)
    encoder = ucds.EncoderOptions(options.backbone, options.weights, options.image_size)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        images = folder / "images.txt"
        images.write_text("\n".join(photographs.paths))
        for one in runs(train(photographs, encoder, folder), images, folder, options):
            records.add(one)


if __name__ == "__main__":
    main()
