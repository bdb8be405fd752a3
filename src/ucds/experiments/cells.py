"""Runs cells of a grid: opens their data, runs their methods, and makes the record of each.

Cells of one target and seed that share a source model form a group, which runs in its own process.
"""

from __future__ import annotations

import shutil
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ucds.config import MethodSettings, ModelSettings, for_source
from ucds.data.dataset import Dataset
from ucds.data.ground_truth import GroundTruth, read_ground_truth
from ucds.data.samples import Samples, SubsetSamples, subset
from ucds.errors import UcdsWarning
from ucds.experiments.datasets import Located, imbalanced_subset, long_tail_subset, small_subset
from ucds.experiments.grid import Cell, Condition
from ucds.experiments.jobs import Failure
from ucds.experiments.methods import run_methods
from ucds.experiments.pipeline import Sources, Task, TaskOptions
from ucds.experiments.preflight import Machine, Survey, make_encoder, open_inputs
from ucds.experiments.records import FILE, append_record, describe
from ucds.experiments.scoring import measure, place_features, provenance
from ucds.files import digest_of
from ucds.math.arrays import IntArray

UNFINISHED = "unfinished"
"""Name of the folder, beside the records, for the state of unfinished stages."""

CellGroup = tuple[Cell, ...]
"""Cells of one target and seed that may share a source model, in the order of the grid."""


def group_cells(cells: Sequence[Cell]) -> list[CellGroup]:
    """Group the cells that share data set, target, seed and source model, in the order of the grid."""
    groups: dict[object, list[Cell]] = defaultdict(list)
    for cell in cells:
        groups[cell.dataset, cell.target, cell.seed, source_of(cell)].append(cell)
    return list(map(tuple, groups.values()))


def source_of(cell: Cell) -> tuple[object, ...]:
    """Return the part of a cell's condition on which the source model and its labels depend."""
    condition = cell.condition
    settings = tuple(for_source(given) for given in condition.settings if isinstance(given, MethodSettings))
    return settings, condition.source, condition.pooled_source, condition.subset, condition.source_clusters


def run_group(
    machine: Machine, survey: Survey, folder: Path, group: CellGroup
) -> Iterator[dict[str, Any] | Failure]:
    """Run the cells of a group, and yield the record of each as soon as it is on the disk.

    For a cell that fails, a failure is yielded. The state of unfinished stages goes into the folder of the
    records, and stays there if a cell fails.
    """
    unfinished = _checkpoints(folder / UNFINISHED, group, survey)
    sources, failed = Sources(checkpoints=unfinished), False
    by_condition: dict[Condition, list[Cell]] = defaultdict(list)
    for cell in group:
        by_condition[cell.condition].append(cell)
    with warnings.catch_warnings():
        # Records give the number of clusters in use, so a terminal shared by several groups need not.
        warnings.simplefilter("ignore", UcdsWarning)
        for condition, cells in by_condition.items():
            task, truth = _open(cells[0], survey.located[cells[0].dataset], machine)
            options = TaskOptions(
                condition.settings,
                cells[0].seed,
                machine.compute,
                start=condition.start,
                checkpoints=unfinished and unfinished / digest(condition),
            )
            named, reasons = {cell.method: cell for cell in cells}, dict[str, str]()
            for outcome in run_methods(task, options, list(named), sources, reasons):
                cell = named[outcome.method]
                values = provenance(cell.settings, machine.compute)
                values |= {"variant": cell.variant} | describe(cell) | survey.origin(cell)
                values |= measure(outcome, truth.classes, truth.names)
                if survey.draws_features and outcome.model is not None:
                    values |= place_features(outcome.model, options, truth.classes)
                append_record(folder / FILE, values)
                yield values
            failed |= bool(reasons)
            yield from (Failure((named[method],), reason) for method, reason in reasons.items())
    if unfinished is not None and not failed:
        shutil.rmtree(unfinished, ignore_errors=True)


def _checkpoints(folder: Path, group: CellGroup, survey: Survey) -> Path | None:
    """Return the folder of the state of unfinished stages, from which a killed group continues."""
    first = group[0]
    # Groups whose stages all train on frozen features keep no state: they take seconds.
    if not any(isinstance(c.settings, ModelSettings) and c.settings.tune == "full" for c in group):
        return None
    files = survey.weights.get(first.condition.source), survey.data[first.dataset, first.condition.source]
    return folder / digest((first.dataset, first.target, first.seed, source_of(first), files))


def digest(value: object) -> str:
    """Return sixteen hexadecimal digits of a value's ``repr``."""
    return digest_of(repr(value).encode())[:16]


def _open(cell: Cell, located: Located, machine: Machine) -> tuple[Task, GroundTruth]:
    """Open the task of a cell and the classes for its scores; as in the paper, K is their number."""
    condition = cell.condition
    data = seen = open_inputs(located, condition.target, machine, machine.compute.silent())
    if condition.source != condition.target:
        seen = open_inputs(located, condition.source, machine, machine.compute.silent())
    truth = read_ground_truth(data.samples)
    assert truth is not None  # or the survey would have said so
    domain = data.samples.domain_names.index(located.folders[cell.target])
    is_target = data.samples.domain == domain
    target, source = _taking_part(cell, data.samples, truth, is_target), np.flatnonzero(~is_target)
    source_samples = subset(seen.samples, source)
    if condition.pooled_source:  # as samples of one domain
        nowhere = np.zeros(len(source), dtype=np.int64)
        source_samples = SubsetSamples(seen.samples, source, nowhere, ("pooled",))
    task = Task(
        source=Dataset(source_samples, seen.view),
        target=Dataset(subset(data.samples, target), data.view),
        queries=Dataset(subset(seen.samples, target), seen.view),
        source_encoder=partial(make_encoder, condition.source, machine),
        encoder=partial(make_encoder, condition.target, machine),
        source_clusters=condition.source_clusters or truth.n_classes,
        n_clusters=truth.n_classes,
    )
    return task, GroundTruth(truth.names, truth.classes[target])


def _taking_part(cell: Cell, samples: Samples, truth: GroundTruth, is_target: NDArray[np.bool_]) -> IntArray:
    """Return the positions of the target samples that a method trains on and is scored with."""
    match cell.condition.subset:
        case "full":
            return np.flatnonzero(is_target)
        case "small":
            return small_subset(np.flatnonzero(is_target), seed=cell.seed)
        case "long-tail":
            kept = long_tail_subset(truth, samples.domain, seed=cell.seed)
        case "imbalanced":
            kept = imbalanced_subset(truth, samples.domain)
    return kept[is_target[kept]]
