"""Runs a grid: each group of cells in a process of its own, which records every cell as soon as it is done.

Records are appended to ``results/<name>/runs.jsonl`` and are never changed. A grid that is started again runs
only the cells that have no record yet. Unlike a pool of the standard library, a grid goes on when a process
dies, gives every process a GPU of its own, and leaves none behind: one whose parent is gone ends at once.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ucds.errors import InputError, UserError
from ucds.experiments.cells import UNFINISHED, CellGroup, group_cells, run_group
from ucds.experiments.grid import Benchmark, Cell
from ucds.experiments.preflight import Machine, Survey, compute_features, decode_all, survey
from ucds.experiments.records import (
    FILE,
    append_record,
    identity_in,
    identity_of,
    lock_records,
    origin_of,
    read_records,
)
from ucds.experiments.scoring import Record
from ucds.training.options import Compute

VISIBLE = "CUDA_VISIBLE_DEVICES"


def run_benchmark(benchmark: Benchmark, folder: Path, machine: Machine, *, jobs: int | None = None) -> int:
    """Run the cells of a benchmark that have no record yet.

    Args:
        benchmark: benchmark to run.
        folder: folder of its records.
        machine: data, weights and device; its reporter hears what is missing, and of every finished cell.
        jobs: number of groups of cells that run at a time, each in a process of its own; one for each GPU,
            or one without a GPU, if ``None``.

    Returns:
        Number of new records.

    Raises:
        InputError: nothing can be run, or a cell failed; the others are recorded.
    """
    with lock_records(folder):
        found = survey(benchmark, machine)
        cells = [cell for cell in benchmark.cells() if found.fault(cell) is None]
        decode_all(cells, found, machine)
        todo = _without_record(cells, found, read_records(folder / FILE))
        compute_features(todo, found, machine)
        work = partial(_record_group, replace(machine, compute=machine.compute.silent()), found, folder)
        count = _run(group_cells(todo), work, folder / FILE, machine.compute, jobs)
        shutil.rmtree(folder / UNFINISHED, ignore_errors=True)
        return count


def _without_record(cells: Sequence[Cell], found: Survey, records: Sequence[Record]) -> list[Cell]:
    """Select the cells that have no record made from the same files; of equal cells only the first."""
    done = {(identity_in(record), *origin_of(record).values()) for record in records}
    todo: dict[tuple[str, ...], Cell] = {}
    for cell in cells:
        todo.setdefault((identity_of(cell), *found.origin(cell).values()), cell)
    return [cell for key, cell in todo.items() if key not in done]


def _record_group(machine: Machine, found: Survey, folder: Path, group: CellGroup) -> None:
    """Run a group in a process of its own, and append its records."""
    for record in run_group(machine, found, folder, group):
        append_record(folder / FILE, record)


def _run(
    groups: Sequence[CellGroup],
    work: Callable[[CellGroup], None],
    path: Path,
    compute: Compute,
    jobs: int | None,
) -> int:
    """Run groups, tell of each record as it comes, and return their number."""
    if not groups:
        return 0
    devices = visible_devices() if compute.accelerator != "cpu" else []
    reporter = compute.reporter
    before, count, failures = len(read_records(path)), 0, []
    reporter.begin("run cells", sum(map(len, groups)))
    for ended in run_jobs(work, groups, jobs or max(1, len(devices)), devices if len(devices) > 1 else []):
        new = read_records(path)[before + count :]
        for record in new:
            reporter.say(_line(record))
        count += len(new)
        reporter.advance(count, {})
        if ended is not None and ended.failure is not None:
            failures.append(f"{_name(ended.job)}: {' '.join(ended.failure.split())}")
            reporter.say(f"failed: {failures[-1]}")
    reporter.end()
    if failures:
        message = f"{len(failures)} of {len(groups)} tasks failed, the others are recorded"
        raise InputError(f"{message}; one said: {failures[0]}")
    return count


class Ended(NamedTuple):
    """The end of a job, and the reason if it failed."""

    job: Any
    failure: str | None


def run_jobs(
    work: Callable[[Any], None], jobs: Sequence[Any], count: int, devices: Sequence[str] = ()
) -> Iterator[Ended | None]:
    """Run ``count`` jobs at a time, each in a process of its own, so that its peak of memory is its own.

    The work must be importable, or a partial of what is. Each place of a process has one of the devices in
    turn; without any, every process sees all. Besides the end of each job, ``None`` is yielded about once a
    second, for a caller that looks at what was written.
    """
    waiting, places = deque(jobs), deque(range(count))
    context = get_context("spawn")
    running: dict[int, tuple[Any, Connection, int, Any]] = {}
    try:
        while waiting or running:
            while waiting and places:
                place, job = places.popleft(), waiting.popleft()
                device = devices[place % len(devices)] if devices else None
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_do, args=(theirs, work, job, device))
                process.start()
                theirs.close()
                running[process.sentinel] = process, ours, place, job
            ready = wait(list(running), timeout=1.0)
            for sentinel in ready:
                assert isinstance(sentinel, int)
                process, ours, place, job = running.pop(sentinel)
                process.join()
                places.append(place)
                yield Ended(job, _failure(process.exitcode or 0, ours))
            if not ready:
                yield None
    finally:
        for process, *_ in running.values():
            process.kill()
            process.join()


def _failure(code: int, words: Connection) -> str | None:
    """Return why a process failed: what it said, or else how it ended."""
    with words:
        if words.poll():
            try:
                return str(words.recv())
            except EOFError:  # the end of a pipe in which nothing was said
                pass
    if code < 0:
        return f"its process was killed by {signal.Signals(-code).name} (is the memory large enough?)"
    return f"its process ended with status {code}" if code else None


def _do(words: Connection, work: Callable[[Any], None], job: Any, device: str | None) -> None:
    """Do one job in this process, and tell the parent if it fails."""
    threading.Thread(target=_follow_parent, daemon=True).start()
    # Ctrl-C is for the parent alone, which ends its processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if device is not None:
        os.environ[VISIBLE] = device
    try:
        work(job)
    except UserError as error:
        words.send(str(error))
    except Exception as error:
        # A fault of this package: the grid goes on, and its last line names the fault.
        words.send(" ".join(f"{type(error).__name__}: {error}".split()))


def _follow_parent() -> None:
    """End this process as soon as its parent is gone."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def visible_devices() -> list[str]:
    """Return the names of the GPUs that this process sees, as ``CUDA_VISIBLE_DEVICES`` takes them."""
    given = os.environ.get(VISIBLE)
    count = torch.cuda.device_count()
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
