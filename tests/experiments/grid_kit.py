"""Small benchmarks on small pictures, and records made by hand."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ucds.choices import Tune
from ucds.data.dataset import Dataset
from ucds.data.samples import subset
from ucds.data.sources import find_samples
from ucds.encoders.encoder import Encoder
from ucds.errors import UserError
from ucds.experiments.grid import Benchmark, read_benchmark
from ucds.experiments.jobs import Failure, reason_of
from ucds.experiments.methods import method_named
from ucds.experiments.pipeline import Task
from ucds.experiments.preflight import Machine
from ucds.training.inputs import open_for_training
from ucds.training.options import Compute, EncoderOptions

TOML = """
title = "Small"
[grid]
backbone = "ucds/oriented_edges"
targets = ["a"]
methods = ["kmeans", "po"]
seeds = [0, 1]
[settings.pcd]
tune = "head"
bottleneck_width = 8
source_epochs = 1
clustering_epochs = 1
refinement_epochs = 1
evaluations_per_stage = 1
[paper]
po = { a = 14.1 }
"""


VARIANTS = """
[[variants]]
name = "pooled"
pooled_source = true
[[variants]]
name = "open"
start = "source weights"
[[variants]]
name = "part"
subset = "imbalanced"
[[variants]]
name = "tail"
subset = "long-tail"
[[variants]]
name = "the grid again"
"""


def write_small(folder: Path, more: str = "", **replaced: str | Sequence[object]) -> Path:
    """Write the benchmark above, with other lists under these keys, or other lines, and more at the end."""
    text = TOML
    for old, new in replaced.items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"{old} =")]
        text = text.replace(line, new if isinstance(new, str) else f"{old} = {json.dumps(new)}")
    path = folder / "small.toml"
    path.write_text(text + more)
    return path


def small(folder: Path, more: str = "", **replaced: str | Sequence[object]) -> Benchmark:
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


def make_machine(folder: Path) -> Machine:
    """A machine with these pictures, and random weights for every encoder."""
    write_pictures(folder / "data")
    return Machine(folder / "data", {"": "none"}, Compute("cpu", cache=folder / "cache"))


def picture_task(root: Path, cache: Path, target: str) -> Task:
    """The task of one of the domains below a folder, with three clusters.

    Edges are the frozen encoder; a small network is trained.
    """
    edges, small = EncoderOptions("ucds/oriented_edges"), EncoderOptions("test_resnet", "none", 32)
    found, compute = find_samples(root, by_domain=True), Compute("cpu", cache=cache)
    data = open_for_training(found, edges, compute).data

    def make(tune: Tune) -> Encoder:
        return small.network(compute) if tune == "full" else edges.find(compute)

    is_target = data.samples.domain == data.samples.domain_names.index(target)
    source, target_data = (
        Dataset(subset(data.samples, np.flatnonzero(side)), data.view) for side in (~is_target, is_target)
    )
    return Task(source, target_data, target_data, make, make, 3, 3)


def run_inline(
    work: Callable[[Any], Iterable[Any]], jobs: Sequence[Any], count: int, devices: Sequence[str] = ()
) -> Iterator[Any]:
    """What ``run_jobs`` does, in this process."""
    for job in jobs:
        try:
            yield from work(job)
        except UserError as error:
            yield Failure(job, reason_of(error))


def record(method: str, target: str, seed: int, accuracy: float, **more: Any) -> dict[str, Any]:
    """A record of the encoder "net", with those of ``settings`` that the method has, and more entries."""
    kind, given = method_named(method).settings, more.pop("settings", {"epsilon": 0.02})
    settings = None
    if kind is not None:
        settings = kind(**{name: value for name, value in given.items() if name in kind.model_fields})
    return {
        "dataset": "",
        "target": target,
        "seed": seed,
        "variant": "",
        "method": method,
        "settings": None if settings is None else settings.model_dump(mode="json"),
        "settings_hash": "none" if settings is None else settings.hash,
        "backbone": "net",
        "source_backbone": "net",
        "image_size": None,
        "subset": "full",
        "pooled_source": False,
        "source_clusters": None,
        "start": "pre-trained",
        "weights": "none",
        "source_weights": "none",
        "data": "aa",
        "accuracy": accuracy,
        "nmi": 0.5,
        "ari": 0.25,
        "seconds": 2.0,
        "peak_memory_mib": 100,
        "revision": "0123456789ab",
        "device": "cpu",
        "threads": 1,
        "versions": {"torch": "2"},
    } | more
