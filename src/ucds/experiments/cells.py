"""Runs the cells of one task with one seed, in a process of its own, and makes their records."""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from ucds.config import MethodSettings, ModelSettings, PCDSettings, for_source
from ucds.data.dataset import Dataset
from ucds.data.ground_truth import GroundTruth, read_ground_truth
from ucds.data.samples import Samples, SubsetSamples, subset
from ucds.data.subsets import imbalanced_subset, long_tail_subset, small_subset
from ucds.errors import InputError, UcdsWarning
from ucds.experiments.datasets import Located
from ucds.experiments.grid import Cell, Condition
from ucds.experiments.methods import run_methods
from ucds.experiments.pipeline import Sources, Task, TaskOptions
from ucds.experiments.points import save_points
from ucds.experiments.preflight import Machine, Survey, make_backbone, open_inputs
from ucds.experiments.records import describe
from ucds.experiments.scoring import measure, provenance, source_scores
from ucds.training.progress import Quiet

IntArray = NDArray[np.int64]

POINTS = "points"
"""Folder, beside the records, of the points of figures."""

UNFINISHED = "unfinished"
"""Folder, beside the records, of the state of stages that were killed."""


@dataclass(frozen=True)
class CellGroup:
    """Cells of one target and seed that may share a source model.

    Attributes:
        cells: in the order of the grid.
        drawn: those of which points for a figure are kept too.
    """

    cells: tuple[Cell, ...]
    drawn: frozenset[Cell] = frozenset()


def group_cells(cells: Sequence[Cell], drawn: frozenset[Cell]) -> list[CellGroup]:
    """Put together the cells that share a target, a seed and stage 1, in the order of the first of each."""
    groups: dict[object, list[Cell]] = defaultdict(list)
    for cell in cells:
        groups[cell.dataset, cell.target, cell.seed, source_of(cell)].append(cell)
    return [CellGroup(tuple(group), drawn.intersection(group)) for group in groups.values()]


def source_of(cell: Cell) -> tuple[object, ...]:
    """All of a cell's condition that stage 1, and its answers, depend on."""
    condition = cell.condition
    settings = tuple(for_source(given) for given in condition.settings if isinstance(given, MethodSettings))
    return settings, condition.source, condition.pooled_source, condition.subset, condition.source_clusters


def run_group(
    machine: Machine,
    survey: Survey,
    folder: Path,
    group: CellGroup,
) -> Iterator[dict[str, Any]]:
    """Run the cells of a job and yield the record of each as soon as it is finished.

    Args:
        machine: what of the machine to use.
        survey: where data and weights were found.
        folder: of the records; points of figures and the state of unfinished stages go there too.
        group: cells to run.
    """
    if machine.threads is not None:
        torch.set_num_threads(machine.threads)
        threadpool_limits(machine.threads)  # of NumPy and scikit-learn
    unfinished = _checkpoints(folder / UNFINISHED, group, survey)
    sources = Sources(checkpoints=unfinished)
    by_condition: dict[Condition, list[Cell]] = defaultdict(list)
    for cell in group.cells:
        by_condition[cell.condition].append(cell)
    with warnings.catch_warnings():
        # A record says how many clusters are in use; a terminal shared by several tasks need not.
        warnings.simplefilter("ignore", UcdsWarning)
        for condition, cells in by_condition.items():
            opened = _open(cells[0], survey.located[cells[0].dataset], machine)
            options = TaskOptions(
                condition.settings,
                cells[0].seed,
                machine.accelerator,
                machine.precision,
                machine.cache.directory,
                start=condition.start,
                checkpoints=unfinished and unfinished / digest(condition),
            )
            named = {cell.method: cell for cell in cells}
            for outcome in run_methods(opened.task, options, list(named), sources=sources):
                cell = named[outcome.method]
                record = _circumstances(cell, machine, survey)
                record |= measure(outcome, opened.classes, opened.names)
                record["source_scores"] = source_scores(
                    outcome.stages,
                    opened.task.source.samples,
                    opened.source_classes,
                    options.settings_of(PCDSettings).validation_fraction,
                    cell.seed,
                )
                if cell in group.drawn:
                    record["points"] = save_points(
                        folder / POINTS, cell, outcome, options.runtime(), opened.classes
                    )
                yield record
    if unfinished is not None:
        shutil.rmtree(unfinished, ignore_errors=True)


def _checkpoints(folder: Path, group: CellGroup, survey: Survey) -> Path | None:
    """Where a job keeps the state of unfinished stages, so that a killed one continues.

    Stages on frozen features take seconds, and are not worth it.
    """
    first = group.cells[0]
    if not any(isinstance(c.settings, ModelSettings) and c.settings.tune == "full" for c in group.cells):
        return None
    files = survey.weights.get(first.condition.source), survey.data[first.dataset, first.condition.source]
    return folder / digest((first.dataset, first.target, first.seed, source_of(first), files))


def digest(value: object) -> str:
    """Sixteen hexadecimal digits of what a value says of itself."""
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def _circumstances(cell: Cell, machine: Machine, survey: Survey) -> dict[str, Any]:
    """All that a record says besides what was found."""
    values = provenance(cell.settings, machine.accelerator, machine.precision)
    values |= {"variant": cell.variant} | describe(cell)
    return json.loads(json.dumps(values)) | survey.origin(cell)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Opened:
    task: Task
    classes: IntArray
    names: tuple[str, ...]
    source_classes: IntArray


def _open(cell: Cell, located: Located, machine: Machine) -> _Opened:
    """Open a task. K is the number of classes, as in the paper.

    The classes themselves are held against the labels of a method when it has given them all. The
    subsets that depend on classes read them earlier, to make the data sets that they are.
    """
    condition = cell.condition
    data = open_inputs(located, condition.target, machine, Quiet())
    seen = data
    if condition.source != condition.target:
        seen = open_inputs(located, condition.source, machine, Quiet())
    truth = read_ground_truth(data.samples)
    if truth is None:
        raise InputError(f"{located.path} has no class folders to score against")
    domain = data.samples.domain_names.index(located.folders[cell.target])
    is_target = data.samples.domain == domain
    target, source = _taking_part(cell, data.samples, truth, is_target), np.flatnonzero(~is_target)
    source_samples = (
        _pooled(seen.samples, source) if condition.pooled_source else subset(seen.samples, source)
    )
    task = Task(
        source=Dataset(source_samples, seen.view),
        target=Dataset(subset(data.samples, target), data.view),
        backbone=partial(make_backbone, condition.target, machine),
        n_clusters=truth.n_classes,
        source_clusters=condition.source_clusters,
        source_backbone=partial(make_backbone, condition.source, machine),
        queries=Dataset(subset(seen.samples, target), seen.view),
    )
    return _Opened(task, truth.classes[target], truth.names, truth.classes[source])


def _taking_part(cell: Cell, samples: Samples, truth: GroundTruth, is_target: NDArray[np.bool_]) -> IntArray:
    """Positions of the target samples that a method trains on and is scored with."""
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


def _pooled(samples: Samples, positions: IntArray) -> SubsetSamples:
    """All source domains as one."""
    return SubsetSamples(samples, positions, np.zeros(len(positions), dtype=np.int64), ("pooled",))
