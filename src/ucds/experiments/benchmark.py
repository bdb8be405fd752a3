"""Runs a grid, and keeps one self-contained record of each cell.

Records are appended to ``results/<name>/runs.jsonl`` as soon as a cell is done and are never changed; a
grid that is started again runs only what has no record yet.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ucds.errors import UserError
from ucds.experiments.grid import Benchmark, Cell
from ucds.experiments.measures import Record
from ucds.experiments.pool import VISIBLE, run_jobs
from ucds.experiments.preflight import Place, Survey, compute_features, decode_all, row_name, survey
from ucds.experiments.records import (
    FILE,
    alone,
    append_records,
    identity_in,
    identity_of,
    origin_of,
    read_records,
)
from ucds.experiments.tasks import UNFINISHED, Job, plan_jobs, run_job
from ucds.training.progress import Reporter


def run_benchmark(
    benchmark: Benchmark, folder: Path, place: Place, reporter: Reporter, *, jobs: int | None = None
) -> int:
    """Run the cells that have no record yet.

    Args:
        benchmark: the grid.
        folder: of its records.
        place: data, weights, device.
        reporter: told what is missing, and of every finished cell.
        jobs: tasks at a time, each in a process of its own; one a GPU, or one, if ``None``.

    Returns:
        The number of new records.

    Raises:
        UserError: nothing can be run, or something failed; what else was found is recorded.
    """
    with alone(folder):
        found = survey(benchmark, place, reporter)
        cells = [cell for cell in benchmark.cells() if found.fault(cell) is None]
        decode_all(cells, found, place, reporter)
        drawn = frozenset(cell for cell in cells if benchmark.is_drawn(cell))
        todo = _without_record(benchmark, cells, drawn, found, read_records(folder / FILE))
        compute_features(todo, found, place, reporter)
        work = partial(run_job, place, found, benchmark.baselines, folder)
        count = _run(plan_jobs(todo, drawn), work, folder / FILE, place, reporter, jobs)
        shutil.rmtree(folder / UNFINISHED, ignore_errors=True)
        return count


def _without_record(
    benchmark: Benchmark,
    cells: Sequence[Cell],
    drawn: frozenset[Cell],
    found: Survey,
    records: Sequence[Record],
) -> list[Cell]:
    """Cells to run: those without a record of the same files, each of what several variants share once."""
    dataset = benchmark.only_dataset
    done: set[tuple[object, ...]] = set()
    for record in records:
        key = (identity_in(record, dataset), *origin_of(record).values())
        done |= {(*key, False), (*key, "points" in record)}
    todo = []
    for cell in cells:
        key = (identity_of(cell, benchmark.baselines), *found.origin(cell).values())
        if (*key, cell in drawn) not in done:
            todo.append(cell)
            done |= {(*key, False), (*key, cell in drawn)}
    return todo


def _run(
    planned: Sequence[Job],
    work: Any,
    path: Path,
    place: Place,
    reporter: Reporter,
    jobs: int | None,
) -> int:
    count, failures = 0, []
    devices = visible_devices() if place.accelerator != "cpu" else []
    for news in run_jobs(work, planned, jobs or max(1, len(devices)), devices if len(devices) > 1 else []):
        if news.result is not None:
            append_records(path, [news.result])
            count += 1
            reporter.say(_line(news.result))
        if news.failure is not None:
            failures.append(f"{_name(news.job)}: {' '.join(news.failure.split())}")
            reporter.say(f"failed: {failures[-1]}")
    if failures:
        # What the other tasks found is on the disk by now.
        message = f"{len(failures)} of {len(planned)} tasks failed, the others are recorded"
        raise UserError(f"{message}; one said: {failures[0]}")
    return count


def visible_devices() -> list[str]:
    """The GPUs of this process, as a worker that is to see only one of them must be told."""
    given = os.environ.get(VISIBLE)
    count = torch.cuda.device_count()
    return given.split(",")[:count] if given else [str(number) for number in range(count)]


def _line(record: Mapping[str, Any]) -> str:
    row = f"{record['method']} [{record['variant']}]" if record["variant"] else record["method"]
    where = f"{record['dataset']} {record['target']}".strip()
    return f"{where}, seed {record['seed']}: {row} {100 * record['accuracy']:.1f}"


def _name(job: Job) -> str:
    first = job.cells[0]
    rows = ", ".join(dict.fromkeys(row_name(cell) for cell in job.cells))
    return f"{first.dataset} {first.target}, seed {first.seed} ({rows})".strip()
