"""Runs a grid: each group of cells in its own process, which records every cell as soon as it is done.

Records are appended to ``results/<name>/runs.jsonl`` and are never changed. A grid that is started again runs
only the cells that have no record yet.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ucds.errors import InputError
from ucds.experiments.cells import UNFINISHED, CellGroup, group_cells, run_group
from ucds.experiments.grid import Benchmark, Cell
from ucds.experiments.jobs import VISIBLE, Failure, run_jobs
from ucds.experiments.preflight import Machine, Survey, compute_features, decode_all, survey
from ucds.experiments.records import FILE, describe, identity, lock_records, origin_of, read_records
from ucds.experiments.scoring import Record
from ucds.networks.devices import count_devices
from ucds.training.options import Compute


def run_benchmark(benchmark: Benchmark, folder: Path, machine: Machine, *, jobs: int | None = None) -> int:
    """Run the cells of a benchmark that have no record yet, and return the number of new records.

    The machine's reporter hears what is missing, and of every finished cell. At most ``jobs`` groups of cells
    run at a time, each in a process of its own; ``None`` stands for one a GPU, or one without a GPU.
    """
    with lock_records(folder):
        found = survey(benchmark, machine)
        cells = [cell for cell in benchmark.cells() if found.fault(cell) is None]
        decode_all(cells, found, machine)
        todo = _without_record(cells, found, read_records(folder / FILE))
        compute_features(todo, found, machine)
        work = partial(run_group, replace(machine, compute=machine.compute.silent()), found, folder)
        count = _run(group_cells(todo), work, machine.compute, jobs)
        shutil.rmtree(folder / UNFINISHED, ignore_errors=True)
        return count


def _without_record(cells: Sequence[Cell], found: Survey, records: Sequence[Record]) -> list[Cell]:
    """Select the cells without a record made from the same files; of equal cells, only the first."""
    done = {(identity(record), *origin_of(record).values()) for record in records}
    todo: dict[tuple[str, ...], Cell] = {}
    for cell in cells:
        todo.setdefault((identity(describe(cell)), *found.origin(cell).values()), cell)
    return [cell for key, cell in todo.items() if key not in done]


def _run(
    groups: Sequence[CellGroup],
    work: Callable[[CellGroup], Iterable[Record | Failure]],
    compute: Compute,
    jobs: int | None,
) -> int:
    """Run groups, report each record as it comes, and return the number of records."""
    if not groups:
        return 0
    devices = visible_devices() if compute.accelerator != "cpu" else []
    reporter, count, total, failures = compute.reporter, 0, sum(map(len, groups)), []
    reporter.show("run cells", 0, total)
    for news in run_jobs(work, groups, jobs or max(1, len(devices)), devices if len(devices) > 1 else []):
        if isinstance(news, Failure):
            failures.append(f"{_name(news.job)}: {news.reason}")
            reporter.say(f"failed: {failures[-1]}")
        else:
            reporter.say(_line(news))
            count += 1
            reporter.show("run cells", count, total)
    if failures:
        message = f"{total - count} of {total} cells failed, the others are recorded"
        raise InputError(f"{message}; one error was: {failures[0]}")
    return count


def visible_devices() -> list[str]:
    """Return the names of the GPUs that this process sees, as ``CUDA_VISIBLE_DEVICES`` takes them."""
    given = os.environ.get(VISIBLE)
    count = count_devices()
    return given.split(",")[:count] if given else [str(number) for number in range(count)]


def _line(record: Record) -> str:
    """Describe a record in one line."""
    row = f"{record['method']} [{record['variant']}]" if record["variant"] else record["method"]
    where = f"{record['dataset']} {record['target']}".strip()
    return f"{where}, seed {record['seed']}: {row} {100 * record['accuracy']:.1f}"


def _name(group: CellGroup) -> str:
    first = group[0]
    rows = ", ".join(dict.fromkeys(cell.row for cell in group))
    return f"{first.dataset} {first.target}, seed {first.seed} ({rows})".strip()
