"""Runs a grid of tasks, seeds and methods, and keeps one self-contained record of each cell.

Records are appended to ``results/<name>/runs.jsonl`` as soon as a task is done and are never changed;
a grid that is started again runs only what has no record yet.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import resource
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ucds.backbones import build_backbone
from ucds.choices import Accelerator, Precision
from ucds.config import Config
from ucds.data.ground_truth import read_ground_truth
from ucds.data.layouts import tell_layout
from ucds.data.samples import subset
from ucds.errors import UcdsWarning, UserError
from ucds.evaluation import best_snapshot
from ucds.experiments.methods import METHODS, Outcome, Setting, Task, run_methods
from ucds.metrics import match_clusters, proportions_by_class, proportions_l1, score
from ucds.training.features import frozen_features
from ucds.training.launch import CacheOptions, Inputs, open_for_training
from ucds.training.progress import Quiet, Reporter
from ucds.training.runtime import Runtime
from ucds.training.stage import TrainingData


class Grid(BaseModel):
    """The cells of a benchmark: every target with every seed and every method."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    backbone: str = Field(description="encoder of both sides")
    targets: tuple[str, ...] = Field(min_length=1, description="domains; the others are the sources")
    methods: tuple[str, ...] = tuple(METHODS)
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = (0, 1, 2, 3, 4)


class Benchmark(BaseModel):
    """One published table or figure, as read from a TOML file in ``configs/``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    grid: Grid
    settings: dict[str, Any] = Field(default_factory=dict, description="see ucds.config.Config")
    paper: dict[str, dict[str, float]] = Field(
        default_factory=dict, description="the paper's accuracy in percent, by method and target"
    )


@dataclass(frozen=True)
class Place:
    """What a benchmark needs of the machine it runs on."""

    data: Path
    weights: str
    cache: CacheOptions
    accelerator: Accelerator = "auto"
    precision: Precision = "32-true"
    threads: int | None = None


def read_benchmark(path: Path) -> Benchmark:
    """Read a benchmark's TOML file.

    Raises:
        UserError: it cannot be read, or asks for something unknown.
    """
    try:
        benchmark = Benchmark(**tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UserError(f"cannot read the benchmark {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not TOML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{path}: {place}: {first['msg']}") from None
    unknown = set(benchmark.grid.methods) - METHODS.keys()
    if unknown:
        raise UserError(f"{path}: unknown methods {', '.join(sorted(unknown))}; known: {', '.join(METHODS)}")
    Config.from_mapping(benchmark.settings)
    return benchmark


def run_benchmark(
    benchmark: Benchmark, records: Path, place: Place, reporter: Reporter, *, jobs: int = 1
) -> int:
    """Run the cells that have no record yet.

    Args:
        benchmark: the grid.
        records: file to append records to.
        place: data, weights, device.
        reporter: told of every finished task.
        jobs: tasks at a time, each in a process of its own.

    Returns:
        The number of new records.
    """
    config = Config.from_mapping(benchmark.settings)
    origin = _fill_caches(benchmark, place, reporter)
    done = {
        (record["target"], record["seed"], record["method"])
        for record in read_records(records)
        if has_settings(record, config) and origin.items() <= record.items()
    }
    todo = [
        (target, seed, missing)
        for seed in benchmark.grid.seeds
        for target in benchmark.grid.targets
        if (missing := [m for m in benchmark.grid.methods if (target, seed, m) not in done])
    ]
    run = partial(_run_task, benchmark, place, origin)
    count, failures = 0, []
    # A process for each task, so that its peak of memory is its own.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        tasks = [pool.submit(run, target, seed, missing) for target, seed, missing in todo]
        for task in as_completed(tasks):
            error = task.exception()
            if error is not None:
                failures.append(error)
                continue
            lines = task.result()
            append_records(records, lines)
            count += len(lines)
            first = lines[0]
            reporter.say(f"{first['target']}, seed {first['seed']}: " + _accuracies(lines))
    if failures:
        # What the other tasks found is on the disk by now.
        reason = " ".join(str(failures[0]).split()) or type(failures[0]).__name__
        raise UserError(
            f"{len(failures)} of {len(todo)} tasks failed, the others are recorded; one said: {reason}"
        )
    return count


def _accuracies(lines: Sequence[Mapping[str, Any]]) -> str:
    return "  ".join(f"{line['method']} {100 * line['accuracy']:.1f}" for line in lines)


def read_records(path: Path) -> list[dict[str, Any]]:
    """Read the records of a benchmark; none if there is no file yet.

    A last line without an end is what a crash left of a record never finished; it is passed over.

    Raises:
        UserError: a finished line is not a record.
    """
    if not path.exists():
        return []
    *lines, _ = path.read_text(encoding="utf-8").split("\n")
    try:
        return [json.loads(line) for line in lines]
    except json.JSONDecodeError as error:
        raise UserError(f"{path} holds a line that is no record: {error}") from None


def has_settings(record: Mapping[str, Any], config: Config) -> bool:
    """Whether a record was made with these settings.

    Settings that are younger than the record had their defaults: those keep what was before.
    """
    return Config().model_dump() | dict(record["config"]) == config.model_dump()


def append_records(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Append records, and return when they are on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.truncate(_finished_bytes(path))
        for record in records:
            file.write(json.dumps(record).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _finished_bytes(path: Path) -> int:
    """Length up to the last end of a line: what a crash left after it is no record."""
    return path.read_bytes().rfind(b"\n") + 1


def _open(benchmark: Benchmark, place: Place, reporter: Reporter) -> Inputs:
    return open_for_training(
        place.data,
        backbone=benchmark.grid.backbone,
        weights=place.weights,
        with_domains=True,
        cache=place.cache,
        reporter=reporter,
    )


def _fill_caches(benchmark: Benchmark, place: Place, reporter: Reporter) -> dict[str, str]:
    """Decode all images, and compute all features, before tasks run side by side.

    Returns:
        What, beside the settings, tells records of other runs apart: encoder, weights and data.
    """
    tell_layout(place.data, None, reporter.say, with_classes=True)
    inputs = _open(benchmark, place, reporter)
    missing = set(benchmark.grid.targets) - set(inputs.data.samples.domain_names)
    if missing:
        raise UserError(f"{place.data} has no domain {', '.join(sorted(missing))}")
    if Config.from_mapping(benchmark.settings).tune == "head":
        runtime = Runtime(accelerator=place.accelerator, reporter=reporter)
        inputs.backbone.module.to(runtime.device)
        frozen_features(inputs.backbone, inputs.data, runtime, place.cache.place, batch_size=64)
    return {
        "backbone": inputs.backbone.spec.name,
        "weights": inputs.backbone.weights,
        "data": inputs.data.samples.fingerprint[:16],
    }


def _run_task(
    benchmark: Benchmark,
    place: Place,
    origin: Mapping[str, str],
    target: str,
    seed: int,
    methods: Sequence[str],
) -> list[dict[str, Any]]:
    """Run the methods of one task with one seed.

    K is the number of classes, as in the paper; the classes themselves are held against the labels of a
    method when it has given them all.
    """
    if place.threads is not None:
        torch.set_num_threads(place.threads)
    config = Config.from_mapping(benchmark.settings)
    data = _open(benchmark, place, Quiet()).data
    truth = read_ground_truth(data.samples)
    if truth is None:
        raise UserError(f"{place.data} has no class folders to score against")
    is_target = data.samples.domain == data.samples.domain_names.index(target)
    task = Task(
        source=TrainingData(subset(data.samples, np.flatnonzero(~is_target)), data.view),
        target=TrainingData(subset(data.samples, np.flatnonzero(is_target)), data.view),
        backbone=partial(build_backbone, benchmark.grid.backbone, weights=place.weights),
        n_clusters=truth.n_classes,
    )
    setting = Setting(config, seed, place.accelerator, place.precision, place.cache.place)
    classes = truth.classes[is_target]
    common = _provenance(config, place) | dict(origin) | {"target": target, "seed": seed}
    with warnings.catch_warnings():
        # A record says how many clusters are in use; a terminal shared by several tasks need not.
        warnings.simplefilter("ignore", UcdsWarning)
        return [
            common | measure(outcome, classes, truth.n_classes)
            for outcome in run_methods(task, setting, methods)
        ]


def measure(outcome: Outcome, classes: np.ndarray[Any, np.dtype[np.int64]], n_classes: int) -> dict[str, Any]:
    """Score what a method made of the target: all figures of one record."""
    scores = score(outcome.labels, classes)
    record: dict[str, Any] = {
        "method": outcome.method,
        "samples": len(classes),
        "clusters_in_use": len(np.unique(outcome.labels)),
        "accuracy": scores.accuracy,
        "nmi": scores.nmi,
        "ari": scores.ari,
        "seconds": round(outcome.seconds, 3),
        "stage_seconds": {stage.name: round(stage.seconds, 3) for stage in outcome.stages},
        "peak_memory_mib": _peak_memory_mib(),
    }
    seen = {s.name: np.stack([e.labels.numpy() for e in s.evaluations]) for s in outcome.stages}
    on_target = {name: labels for name, labels in seen.items() if labels.shape[1] == len(classes)}
    on_target.pop("learn-source", None)
    if on_target:
        last = outcome.stages[-1]
        record["oracle_accuracy"] = best_snapshot(on_target, classes).accuracy
        matching = match_clusters(outcome.labels, classes)
        true = np.bincount(classes, minlength=n_classes) / len(classes)
        estimated = proportions_by_class(last.state["proportions"][0].numpy(), matching, n_classes)
        uniform = np.full(n_classes, 1 / n_classes)
        record["proportions_l1"] = proportions_l1(estimated, true)
        record["uniform_l1"] = proportions_l1(uniform, true)
    return record


def _provenance(config: Config, place: Place) -> dict[str, Any]:
    device = (
        torch.cuda.get_device_name() if torch.cuda.is_available() and place.accelerator != "cpu" else "cpu"
    )
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "config": config.model_dump(),
        "config_hash": config.hash,
        "revision": _revision(),
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("ucds", "torch", "timm", "scikit-learn")},
        "device": device,
        "threads": torch.get_num_threads(),
        "precision": place.precision,
    }


def _peak_memory_mib() -> int:
    """The most memory this process has held so far."""
    status = Path("/proc/self/status")
    if status.exists():
        # Unlike the figure of getrusage, this one does not begin at what the parent held.
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) // 1024
    scale = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // scale


def _revision() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
