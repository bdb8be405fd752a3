"""Runs a grid, and keeps one record of each cell.

Records are appended to ``results/<name>/runs.jsonl`` as soon as a cell is done and are never changed. A grid
that is started again runs only the cells that have no record yet.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ucds.errors import InputError
from ucds.experiments.cells import UNFINISHED, CellGroup, group_cells, run_group
from ucds.experiments.columns import Record
from ucds.experiments.grid import Benchmark, Cell
from ucds.experiments.pool import VISIBLE, run_jobs
from ucds.experiments.preflight import Machine, Survey, compute_features, decode_all, row_name, survey
from ucds.experiments.records import (
    FILE,
    append_record,
    identity_in,
    identity_of,
    lock_records,
    origin_of,
    read_records,
)
from ucds.training.progress import Reporter


def run_benchmark(
    benchmark: Benchmark, folder: Path, machine: Machine, reporter: Reporter, *, jobs: int | None = None
) -> int:
    """Run the cells of a benchmark that have no record yet.

    Args:
        benchmark: benchmark to run.
        folder: folder of its records.
        machine: data, weights and device.
        reporter: receives progress messages: what is missing, and every finished cell.
        jobs: number of groups of cells that run at a time, each in a process of its own; one for each GPU,
            or one without a GPU, if ``None``.

    Returns:
        Number of new records.

    Raises:
        InputError: nothing can be run, or a cell failed; the others are recorded.
    """
    with lock_records(folder):
        found = survey(benchmark, machine, reporter)
        cells = [cell for cell in benchmark.cells() if found.fault(cell) is None]
        decode_all(cells, found, machine, reporter)
        drawn = frozenset(cell for cell in cells if benchmark.is_drawn(cell))
        todo = _without_record(benchmark, cells, drawn, found, read_records(folder / FILE))
        compute_features(todo, found, machine, reporter)
        work = partial(run_group, machine, found, folder)
        count = _run(group_cells(todo, drawn), work, folder / FILE, machine, reporter, jobs)
        shutil.rmtree(folder / UNFINISHED, ignore_errors=True)
        return count


def _without_record(
    benchmark: Benchmark,
    cells: Sequence[Cell],
    drawn: frozenset[Cell],
    found: Survey,
    records: Sequence[Record],
) -> list[Cell]:
    """Select the cells that have no record made from the same files; of equal cells only the first."""
    done: set[tuple[object, ...]] = set()
    for record in records:
        key = (identity_in(record), *origin_of(record).values())
        done |= {(*key, False), (*key, "points" in record)}
    todo = []
    for cell in cells:
        key = (identity_of(cell), *found.origin(cell).values())
        if (*key, cell in drawn) not in done:
            todo.append(cell)
            done |= {(*key, False), (*key, cell in drawn)}
    return todo


def _run(
    groups: Sequence[CellGroup], work: Any, path: Path, machine: Machine, reporter: Reporter, jobs: int | None
) -> int:
    count, failures = 0, []
    devices = visible_devices() if machine.accelerator != "cpu" else []
    if groups:
        reporter.begin("run cells", sum(len(group.cells) for group in groups))
    for report in run_jobs(work, groups, jobs or max(1, len(devices)), devices if len(devices) > 1 else []):
        if report.result is not None:
            append_record(path, report.result)
            count += 1
            reporter.say(_line(report.result))
            reporter.advance(count, {})
        if report.failure is not None:
            failures.append(f"{_name(report.job)}: {' '.join(report.failure.split())}")
            reporter.say(f"failed: {failures[-1]}")
    if groups:
        reporter.end()
    if failures:
        message = f"{len(failures)} of {len(groups)} tasks failed, the others are recorded"
        raise InputError(f"{message}; one said: {failures[0]}")
    return count


def visible_devices() -> list[str]:
    """Return the names of the GPUs that this process sees, as ``CUDA_VISIBLE_DEVICES`` takes them."""
    given = os.environ.get(VISIBLE)
    count = torch.cuda.device_count()
    return given.split(",")[:count] if given else [str(number) for number in range(count)]


def _line(record: Mapping[str, Any]) -> str:
    row = f"{record['method']} [{record['variant']}]" if record["variant"] else record["method"]
    where = f"{record['dataset']} {record['target']}".strip()
    return f"{where}, seed {record['seed']}: {row} {100 * record['accuracy']:.1f}"


def _name(group: CellGroup) -> str:
    first = group.cells[0]
    rows = ", ".join(dict.fromkeys(row_name(cell) for cell in group.cells))
    return f"{first.dataset} {first.target}, seed {first.seed} ({rows})".strip()
