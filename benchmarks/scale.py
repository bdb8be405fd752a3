"""Time, memory and accuracy of the consensus method with the number of samples, beside scikit-learn.

    python benchmarks/scale.py [--samples 1000 10000 50000] [--width 64] [--clusters 50] [--threads 2]

`--samples` alone measures nothing, and writes the page. A million samples take a quarter of an hour.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from records import Row, complete, table

from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.metrics import clustering_accuracy

RIVAL_NAME = "MiniBatchKMeans"
PROGRAMS = ("train-source", "label", "train-target", "predict", RIVAL_NAME)
NOISE = 1.2
DATA = "embeddings.npy"
CHUNK = 10_000  # samples that are drawn at a time
FEWER, LARGEST = (10_000, 100_000), 1_000_000


def make(samples: int, width: int, clusters: int, path: Path) -> NDArray[np.int64]:
    """Draw embeddings, whose classes differ in a part of the variance, into a file; return the classes."""
    centres = np.random.default_rng(0).normal(size=(clusters, width)) / 4
    scales = NOISE / np.sqrt(1 + np.arange(width) * 32 / width)
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (samples, width))
    truth = np.empty(samples, np.int64)
    for number, start in enumerate(range(0, samples, CHUNK)):
        rng, end = np.random.default_rng([1, number]), min(start + CHUNK, samples)
        truth[start:end] = rng.integers(clusters, size=end - start)
        rows[start:end] = centres[truth[start:end]] + scales * rng.normal(size=(end - start, width))
    return truth


def commands_of(clusters: int, work: Path) -> Iterator[tuple[str, list[str], Path | None]]:
    """Yield each program's name, command and file of clusters, in the order in which one needs another."""
    file, source, target = work / DATA, work / "source", work / "target"
    labels, found, theirs = work / "labels.json", work / "found.csv", work / "clusters.npy"
    ours: dict[str, tuple[list[object], Path, Path | None]] = {
        "train-source": ([file, "--clusters", clusters], source, None),
        "label": ([source, file], labels, labels),
        "train-target": ([file, "--labels", labels, "--no-report"], target, None),
        "predict": ([target, file], found, found),
    }
    for name, (arguments, out, made) in ours.items():
        words = [name, *map(str, arguments), "--out", str(out), "--quiet"]
        yield name, [sys.executable, "-m", "ucds", *words], made
    yield RIVAL_NAME, [sys.executable, "-c", RIVAL, str(file), str(clusters), str(theirs)], theirs


RIVAL = """
import sys, numpy
from sklearn.cluster import MiniBatchKMeans
file, clusters, out = sys.argv[1:]
rows = numpy.load(file, mmap_mode="r")
numpy.save(out, MiniBatchKMeans(int(clusters), random_state=0).fit(rows).labels_)
"""


def observe(command: Sequence[str], threads: int) -> dict[str, Any]:
    """Run a command: its time, that of all processors, its memory with mapped files and without, the load."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = os.environ | dict.fromkeys(names, str(threads))
    load, begin, peak, own = os.getloadavg()[0], os.times(), 0.0, 0.0
    process = subprocess.Popen(command, env=environment)
    while process.poll() is None:
        now = read_memory(process.pid)
        peak = max(peak, now.get("VmHWM", 0.0))
        own = max(own, now.get("RssAnon", 0.0) + now.get("RssShmem", 0.0))
        time.sleep(0.02)  # between two looks at its memory
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    end = os.times()
    return {
        "seconds": round(end.elapsed - begin.elapsed, 2),
        "processor_seconds": round(sum(end[2:4]) - sum(begin[2:4]), 2),  # of ended processes
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


@cache
def measure_all(samples: int, width: int, clusters: int, threads: int) -> dict[str, Row]:
    """Run all programs on one file of embeddings: seconds, memory in MiB, accuracy in percent.

    All of them, whichever are recorded: a program needs what those before it have written.
    """
    versions = {name: version(name) for name in ("ucds", "torch", "numpy", "scikit-learn")}
    versions |= {"python": platform.python_version(), "machine": platform.machine()}
    task, runs = {"samples": samples, "width": width, "clusters": clusters}, dict[str, Row]()
    with tempfile.TemporaryDirectory() as folder:
        truth = make(samples, width, clusters, Path(folder) / DATA)
        for name, command, made in commands_of(clusters, Path(folder)):
            figures, accuracy = observe(command, threads), None
            if made is not None:
                accuracy = round(100 * clustering_accuracy(read_clusters(made), truth), 3)
            run = {"program": name} | task | figures | {"accuracy": accuracy}
            runs[name] = run | {"threads": threads, "versions": versions}
    return runs


def measure(program: str, **task: int) -> Iterator[Row]:
    yield measure_all(**task)[program]


def read_clusters(file: Path) -> NDArray[np.int64]:
    """Read the clusters that a program wrote."""
    if file.suffix == ".json":
        return ClusterLabels.load(file).labels
    if file.suffix == ".csv":
        return np.loadtxt(file, np.int64, delimiter=",", skiprows=1, usecols=1)
    return np.asarray(np.load(file), dtype=np.int64)


HEAD = """# A thousand samples to a million

Made by `python benchmarks/scale.py` from `scale.jsonl`; not edited by hand. What a machine can do:
[docs/large-data.md](../docs/large-data.md).

Embeddings of a mixture of classes, in a file; each program in a process of its own, its start included. At
most 50,000 samples are clustered; the others get their cluster from the model that is fitted. {machines}; the
load of the machine before a run was {low} to {high}: other work took a part of it, and only ratios within one
size mean much. Before revision ffe0f0b `predict` wrote its report too. "Memory" is the largest resident
memory in MiB; "own" leaves out what is backed by files: pages of mapped embeddings, and libraries. The rows
of 10,000 and 1,000,000 samples with 64 numbers in 50 clusters are the latest, and of another machine than the
other rows: compare their seconds with each other alone.

## Growth

Seconds of all processors grow with the number of samples to the power of "exponent", from 10,000 or, where
there is no such run, from 100,000 to 1,000,000. "Own memory" is that of 1,000,000 samples to that of fewer.
"""


def page(rows: Sequence[Row]) -> str:
    """Write the tables of all records."""
    runs = pd.DataFrame(rows)
    runs["program"] = pd.Categorical(runs["program"], PROGRAMS)
    runs = runs.sort_values(["width", "clusters", "samples", "program"])
    machines = sorted({f"{one.versions['machine']}, {one.threads} thread(s)" for one in runs.itertuples()})
    loads = runs["load"]
    head = HEAD.format(machines="; ".join(machines), low=loads.min(), high=loads.max())
    found = runs.set_index(["program", "width", "clusters", "samples"])[["processor_seconds", "own_mib"]]
    growth = [growth_row(found, key) for key in found.index if key[-1] == LARGEST]
    cells = {
        **{"numbers": runs["width"], "clusters": runs["clusters"]},
        **{"samples": runs["samples"].map("{:,}".format), "program": runs["program"]},
        "seconds": runs["seconds"].map("{:.1f}".format),
        "of processors": runs["processor_seconds"].map("{:.1f}".format),
        "memory": runs["peak_mib"].map("{:,.0f}".format),
        "own": runs["own_mib"].map("{:,.0f}".format),
        "%": runs["accuracy"].map("{:.2f}".format, na_action="ignore").fillna(""),
    }
    return f"{head}\n{table(growth)}\n\n## Runs\n\n{table(pd.DataFrame(cells))}\n"


def growth_row(found: pd.DataFrame, key: tuple[str, int, int, int]) -> Row:
    """Write the line of one program on one kind of data: its largest run, compared with smaller ones."""
    growth = {n: found.loc[key] / found.loc[*key[:3], n] for n in FEWER if (*key[:3], n) in found.index}
    exponents = [f"{np.log(one['processor_seconds']) / np.log(LARGEST / n):.2f}" for n, one in growth.items()]
    memory = [f"{growth[n]['own_mib']:.2f}" if n in growth else "" for n in reversed(FEWER)]
    names = ("program", "numbers", "clusters", "exponent", "own memory, to 100,000", "to 10,000")
    return dict(zip(names, (*key[:3], *(exponents[:1] or [""]), *memory), strict=True))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure time, memory and accuracy with many samples.")
    parser.add_argument("--samples", type=int, nargs="*", default=[1000, 10_000, 50_000])
    parser.add_argument("--width", type=int, default=64, help="width of the embeddings")
    parser.add_argument("--clusters", type=int, default=50, help="number of clusters")
    parser.add_argument("--threads", type=int, default=2, help="threads of the mathematics")
    options = parser.parse_args()
    jobs = (
        ({"program": name} | task, partial(measure, name, **task, threads=options.threads))
        for samples in options.samples
        for task in [{"samples": samples, "width": options.width, "clusters": options.clusters}]
        for name in PROGRAMS
    )
    complete(__file__, jobs, page)
