"""Time, memory and accuracy of the consensus method with the number of samples, beside scikit-learn.

Embeddings are drawn from a mixture of known classes, in chunks, into a file. Each program runs in a process
of its own on that file, one after the other: the four commands of the two sides (`train-source`, `label`,
`train-target`, `predict`), and scikit-learn's `MiniBatchKMeans`. Each run is recorded as one line of JSON.
Tasks whose runs have all a record are left out, so that the work can be done in pieces; the page is written
anew from all records each time.

    python benchmarks/scale.py [--samples 1000,10000,50000] [--widths 64] [--clusters 50] [--threads 2]
                               [--folder DIR] [--most-samples N]

Without options it measures 1,000, 10,000 and 50,000 embeddings in some minutes. The whole grid is
`--samples 1000,10000,50000,100000,1000000 --widths 64,512 --clusters 10,50,200`; it takes hours, and a file
of 2 GB. `--samples=` measures nothing, and writes the page.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Container, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from records import Records

from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.metrics import score

OURS = ("train-source", "label", "train-target", "predict", "train-source (pcd)", "train-target (pcd)")
PROGRAMS = (*OURS, "MiniBatchKMeans", "faiss")
"""Programs that have records; those of pcd and faiss were measured once."""

NOISE = 1.2
CHUNK = 10_000  # samples that are drawn at a time
EXACT = 50_000  # samples of which all are clustered by default
SMALL, TENTH, LARGEST = 10_000, 100_000, 1_000_000
_LOOK = 0.02  # seconds between two looks at the memory of a process


@dataclass(frozen=True)
class Task:
    """A file of embeddings, and what is to be found in it."""

    samples: int
    width: int
    clusters: int


@dataclass(frozen=True)
class Record:
    """One run of one program.

    Attributes:
        program: name of the program.
        samples: number of embeddings.
        width: width of the embeddings.
        clusters: number of clusters, K; the number of classes.
        most_samples: bound on the samples that are clustered; 0 for other programs.
        seconds: time from start to end.
        processor_seconds: time of all processors.
        peak_mib: largest resident memory, with the pages of mapped files.
        own_mib: largest memory that is not backed by files: what does not fit any more is lost.
        accuracy: share of samples in the cluster of their class, in percent; ``None`` without predictions.
        load: runnable processes of the machine before the start.
        threads: number of threads of the mathematics.
        versions: versions of the packages.
    """

    program: str
    samples: int
    width: int
    clusters: int
    most_samples: int
    seconds: float
    processor_seconds: float
    peak_mib: float
    own_mib: float
    accuracy: float | None
    load: float
    threads: int
    versions: dict[str, str]

    @property
    def place(self) -> tuple[str, int, int, int, int]:
        """What is measured once."""
        return self.program, self.samples, self.width, self.clusters, self.most_samples


def make(task: Task, path: Path) -> NDArray[np.int64]:
    """Draw the embeddings of a task into a file, chunk by chunk, and return the classes.

    The directions in which the classes differ take up a part of the variance. A file is made once.
    """
    centres = np.random.default_rng(0).normal(size=(task.clusters, task.width)) / 4
    scales = NOISE / np.sqrt(1 + np.arange(task.width) * 32 / task.width)
    shape, truth = (task.samples, task.width), np.empty(task.samples, np.int64)
    fresh = not path.exists()
    rows = np.lib.format.open_memmap(path.with_suffix(".part"), "w+", np.float32, shape) if fresh else None
    for number, start in enumerate(range(0, task.samples, CHUNK)):
        rng, end = np.random.default_rng([1, number]), min(start + CHUNK, task.samples)
        truth[start:end] = rng.integers(task.clusters, size=end - start)
        if rows is not None:
            noise = scales * rng.normal(size=(end - start, task.width))
            rows[start:end] = centres[truth[start:end]] + noise
    if rows is not None:
        rows.flush()
        path.with_suffix(".part").rename(path)
    return truth


def commands_of(
    task: Task, file: Path, work: Path, most: int
) -> Iterator[tuple[str, Sequence[str], Path | None]]:
    """Return each program's name, command and file of clusters, in the order in which one needs another."""
    count, bound = ["--clusters", task.clusters], ["--set", f"most_samples={most}"]
    source, target, labels, found = (work / name for name in ("source", "target", "labels.json", "found.csv"))
    given = [file, "--labels", labels, "--no-report", *bound]
    ours: dict[str, tuple[list[object], Path, Path | None]] = {
        "train-source": ([file, *count, *bound], source, None),
        "label": ([source, file], labels, labels),
        "train-target": (given, target, None),
        "predict": ([target, file], found, found),
    }
    for name, (arguments, out, clusters) in ours.items():
        words = [name, *map(str, arguments), "--out", str(out), "--quiet"]
        yield name, [sys.executable, "-m", "ucds", *words], clusters
    out = work / "MiniBatchKMeans.npy"
    yield "MiniBatchKMeans", [sys.executable, "-c", RIVAL, str(file), str(task.clusters), str(out)], out


RIVAL = """
import sys, numpy
from sklearn.cluster import MiniBatchKMeans
file, clusters, out = sys.argv[1:]
rows = numpy.load(file, mmap_mode="r")
numpy.save(out, MiniBatchKMeans(int(clusters), random_state=0).fit(rows).labels_)
"""


def observe(command: Sequence[str], threads: int) -> dict[str, Any]:
    """Run a command, and return its times and its memory.

    Raises:
        SystemExit: it fails.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = os.environ | dict.fromkeys(names, str(threads))
    load, begin, peak, own = os.getloadavg()[0], time.perf_counter(), 0.0, 0.0
    process = subprocess.Popen(command, env=environment)
    while True:
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if ended:
            break
        now = read_memory(process.pid)
        peak = max(peak, now.get("VmHWM", 0.0))
        own = max(own, now.get("RssAnon", 0.0) + now.get("RssShmem", 0.0))
        time.sleep(_LOOK)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return {
        "seconds": round(time.perf_counter() - begin, 2),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_mib": round(peak, 1),
        "own_mib": round(own, 1),
        "load": round(load, 2),
    }


def read_memory(process: int) -> dict[str, float]:
    """Return the system's entries on the memory of a process, in MiB; none once it has ended.

    The peak that the system tells at the end (`ru_maxrss`) would be that of this script for lighter programs.
    """
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    return {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.endswith(" kB")}


def measure(
    task: Task, folder: Path, known: Container[tuple[Any, ...]], options: argparse.Namespace
) -> Iterator[Record]:
    """Run all programs on a task, unless each of them has a record."""
    versions = {name: version(name) for name in ("ucds", "torch", "numpy", "scikit-learn")}
    versions |= {"python": platform.python_version(), "machine": platform.machine()}
    bounds = dict.fromkeys(OURS, options.most_samples) | {"MiniBatchKMeans": 0}
    file, truth = folder / f"{task.samples}x{task.width}-{task.clusters}.npy", np.empty(0, np.int64)
    work = folder / f"{file.stem}-{options.most_samples}"
    commands = list(commands_of(task, file, work, options.most_samples))
    new = [name for name, _, _ in commands if (name, *asdict(task).values(), bounds[name]) not in known]
    if new:
        truth = make(task, file)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
    for name, command, clusters in commands if new else []:
        figures = observe(command, options.threads)
        accuracy = None
        if clusters is not None:
            accuracy = round(100 * score(read_clusters(clusters), truth).accuracy, 3)
        own: Any = {"program": name, **asdict(task), "most_samples": bounds[name]}
        if name in new:
            yield Record(**own, **figures, accuracy=accuracy, threads=options.threads, versions=versions)


def read_clusters(file: Path) -> NDArray[np.int64]:
    """Read the clusters that a program wrote."""
    if file.suffix == ".json":
        return ClusterLabels.load(file).labels
    if file.suffix == ".csv":
        return np.loadtxt(file, np.int64, delimiter=",", skiprows=1, usecols=1)
    return np.asarray(np.load(file), dtype=np.int64)


def page(records: Sequence[Record]) -> str:
    """Write the tables of all records."""
    kinds = sorted({(one.width, one.clusters) for one in records})
    machines = sorted({f"{one.versions['machine']}, {one.threads} thread(s)" for one in records})
    loads = [one.load for one in records]
    head = HEAD.format(machines="; ".join(machines), low=min(loads), high=max(loads))
    parts = [head, "## Growth\n", GROWTH, *map(growth_row, group_by_program(records))]
    for width, clusters in kinds:
        own = [one for one in records if (one.width, one.clusters) == (width, clusters)]
        parts += [f"\n## {width} numbers, {clusters} clusters\n", RUNS]
        own.sort(key=lambda one: (one.samples, -one.most_samples, order_of(one)))
        parts += map(run_row, own)
    return "\n".join(parts) + "\n"


HEAD = """# A thousand samples to a million

Made by `python benchmarks/scale.py` from `scale.jsonl`; not edited by hand. What a machine can do:
[docs/large-data.md](../docs/large-data.md).

Embeddings of a mixture of classes, in a file; each program in a process of its own, its start included.
{machines}; the load of the machine before a run was {low} to {high}: other work took a part of it, and only
ratios within one size mean much. The method is `consensus` where none is named. `predict` writes its report
too. "Memory" is the largest resident memory; "own" leaves out what is backed by files: pages of the mapped
embeddings, and libraries. In runs without a recorded revision, the "memory" of a program that is lighter than
the measuring script is that of the script. Runs of `pcd` (two epochs a stage) and of faiss were made once.
Where fewer samples are clustered than there are, the others get their cluster from the model that is fitted.
"""

GROWTH = """Seconds of all processors grow with the number of samples to the power of "exponent", up to
1,000,000 samples. "Own memory" is that of 1,000,000 samples in relation to that of 100,000 and of 10,000.
"Accuracy" is that of 1,000,000 samples less that of 50,000, in points.

| program | clustered at most | numbers | clusters | exponent | own memory, 100,000 | 10,000 | accuracy |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""

RUNS = """| samples | program | clustered at most | seconds | processor seconds | memory (MiB) | own (MiB) \
| accuracy (%) |
| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |"""


def order_of(record: Record) -> int:
    return PROGRAMS.index(record.program)


def group_by_program(records: Sequence[Record]) -> list[dict[int, Record]]:
    """Gather the records of each program by the number of samples; all else is equal in a group."""
    found: dict[tuple[Any, ...], dict[int, Record]] = {}
    for one in sorted(
        records, key=lambda one: (one.width, one.clusters, -one.most_samples, order_of(one), one.samples)
    ):
        kind = one.width, one.clusters, one.most_samples, one.program
        found.setdefault(kind, {})[one.samples] = one
    return [sizes for sizes in found.values() if LARGEST in sizes]


def growth_row(sizes: dict[int, Record]) -> str:
    """Write the line of one program on one kind of data."""
    large, exact = sizes[LARGEST], sizes.get(EXACT)
    power = accuracy = ""
    for fewer in (SMALL, TENTH):
        if not power and fewer in sizes:
            ratio = large.processor_seconds / sizes[fewer].processor_seconds
            power = f"{np.log(ratio) / np.log(LARGEST / fewer):.2f} (from {fewer:,})"
    memory = [f"{large.own_mib / sizes[n].own_mib:.2f}" if n in sizes else "" for n in (TENTH, SMALL)]
    if exact and exact.accuracy is not None and large.accuracy is not None:
        accuracy = f"{large.accuracy - exact.accuracy:+.2f}"
    bound = f"{large.most_samples:,}" if large.most_samples else ""
    return (
        f"| {large.program} | {bound} | {large.width} | {large.clusters} | {power} "
        f"| {' | '.join(memory)} | {accuracy} |"
    )


def run_row(one: Record) -> str:
    """Write the line of one run."""
    accuracy = "" if one.accuracy is None else f"{one.accuracy:.2f}"
    bound = f"{one.most_samples:,}" if one.most_samples else ""
    return (
        f"| {one.samples:,} | {one.program} | {bound} | {one.seconds:.1f} | {one.processor_seconds:.1f} "
        f"| {one.peak_mib:,.0f} | {one.own_mib:,.0f} | {accuracy} |"
    )


def run(options: argparse.Namespace, folder: Path) -> None:
    """Measure what has no record yet, and write the page."""
    records = Records(__file__, Record)
    kinds = [(width, clusters) for width in options.widths for clusters in options.clusters]
    for task in [Task(samples, *kind) for kind in kinds for samples in options.samples]:
        for record in measure(task, folder, {one.place for one in records.runs}, options):
            records.add(record)
    records.write_page(page(records.runs))


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure time, memory and accuracy with many samples.")
    parser.add_argument("--samples", type=numbers, default=[1000, 10_000, 50_000], help="numbers of samples")
    parser.add_argument("--widths", type=numbers, default=[64], help="widths of the embeddings")
    parser.add_argument("--clusters", type=numbers, default=[50], help="numbers of clusters")
    parser.add_argument("--most-samples", type=int, default=EXACT, help="samples that are clustered at most")
    parser.add_argument("--threads", type=int, default=2, help="threads of the mathematics")
    parser.add_argument("--folder", type=Path, help="folder that keeps the embeddings; a temporary one")
    options = parser.parse_args()
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
        run(options, options.folder)
        return
    with tempfile.TemporaryDirectory() as temporary:
        run(options, Path(temporary))


if __name__ == "__main__":
    main()
