"""Small benchmarks on small pictures, and records made by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ucds.config import PCDSettings
from ucds.errors import UserError
from ucds.experiments.grid import Benchmark, read_benchmark
from ucds.experiments.pool import News
from ucds.experiments.preflight import Place
from ucds.training.inputs import CacheOptions

TOML = """
title = "Small"
[grid]
backbone = "ucds/oriented_edges"
targets = ["a"]
methods = ["kmeans", "po"]
seeds = [0, 1]
[settings]
tune = "head"
bottleneck_width = 8
source_epochs = 1
clustering_epochs = 1
refinement_epochs = 1
evaluations_per_stage = 1
[paper]
po = { a = 14.1 }
"""


def write_small(folder: Path, more: str = "", **replaced: str) -> Path:
    """Write the benchmark above, with the lines that begin with these keys replaced, and more at the end."""
    text = TOML
    for old, new in replaced.items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"{old} =")]
        text = text.replace(line, new)
    path = folder / "small.toml"
    path.write_text(text + more)
    return path


def small(folder: Path, more: str = "", **replaced: str) -> Benchmark:
    """The same, read."""
    return read_benchmark(write_small(folder, more, **replaced))


def write_pictures(root: Path, domains: Sequence[str] = ("a", "b"), per_class: int = 4) -> None:
    """Noise in three classes a domain."""
    rng = np.random.default_rng(0)
    for domain in domains:
        for klass in ("x", "y", "z"):
            for i in range(per_class):
                path = root / domain / klass / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(rng.integers(256, size=(40, 40, 3), dtype=np.uint8)).save(path)


def make_place(folder: Path) -> Place:
    """A machine with these pictures, and random weights for every encoder."""
    write_pictures(folder / "data")
    return Place(folder / "data", {"": "none"}, CacheOptions(folder / "cache"), accelerator="cpu")


def run_inline(
    work: Callable[[Any], Iterable[Any]], jobs: Sequence[Any], count: int, devices: Sequence[str] = ()
) -> Iterator[News[Any, Any]]:
    """What ``run_jobs`` does, in this process."""
    for job in jobs:
        try:
            for result in work(job):
                yield News(job, result=result)
        except UserError as error:
            yield News(job, failure=str(error))


def record(method: str, target: str, seed: int, accuracy: float, **more: Any) -> dict[str, Any]:
    """A record as the first version of the package made them, and more."""
    config = PCDSettings(**more.pop("settings", {"epsilon": 0.02}))
    return {
        "method": method,
        "target": target,
        "seed": seed,
        "accuracy": accuracy,
        "nmi": 0.5,
        "ari": 0.25,
        "seconds": 2.0,
        "peak_memory_mib": 100,
        "backbone": "net",
        "weights": "none",
        "data": "aa",
        "config": config.model_dump(),
        "config_hash": config.hash,
        "revision": "0123456789ab",
        "device": "cpu",
        "threads": 1,
        "versions": {"torch": "2"},
    } | more
