"""Runs jobs in processes of their own, several at a time, and passes on each result as soon as it is there.

Unlike a pool of the standard library, it goes on when a worker dies, gives every worker a device of its own,
and leaves no worker behind: a worker whose parent is gone ends at once.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Generic, TypeVar

from ucds.errors import UserError

J = TypeVar("J")
R = TypeVar("R")

VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class JobReport(Generic[J, R]):
    """One result of a job, or the reason of its failure.

    Attributes:
        job: job that the report is about.
        result: one of the job's results, in the order in which they came; ``None`` with a failure.
        failure: reason why the job ended before it was done.
    """

    job: J
    result: R | None = None
    failure: str | None = None


def run_jobs(
    work: Callable[[J], Iterable[R]],
    jobs: Sequence[J],
    count: int,
    devices: Sequence[str] = (),
) -> Iterator[JobReport[J, R]]:
    """Run jobs, each in a process of its own, so that its peak of memory is its own.

    Args:
        work: function that does a job and yields its results; importable, or a partial of such a function.
        jobs: jobs in the order of their start.
        count: number of jobs at a time.
        devices: GPUs, one for each worker in turn; without any, every worker sees all.

    Yields:
        Every result as soon as it is there, and one failure for each job that fails.
    """
    waiting, slots = deque(jobs), deque(range(count))
    running: dict[Connection, _Worker[J]] = {}
    try:
        while waiting or running:
            while waiting and slots:
                slot = slots.popleft()
                device = devices[slot % len(devices)] if devices else None
                worker = _start(work, waiting.popleft(), slot, device)
                running[worker.connection] = worker
            for connection in wait(list(running)):
                assert isinstance(connection, Connection)
                worker = running[connection]
                report = _receive(worker)
                if report is None:
                    del running[connection]
                    slots.append(worker.slot)
                    report = _close(worker)
                if report is not None:
                    yield report
    finally:
        for worker in running.values():
            worker.process.kill()
            worker.process.join()


@dataclass
class _Worker(Generic[J]):
    process: SpawnProcess
    connection: Connection
    job: J
    slot: int
    failed: bool = False


def _start(work: Callable[[J], Iterable[Any]], job: J, slot: int, device: str | None) -> _Worker[J]:
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run_job, args=(theirs, work, job, device))
    process.start()
    theirs.close()  # so that the end of the worker is the end of the pipe
    return _Worker(process, ours, job, slot)


def _receive(worker: _Worker[J]) -> JobReport[J, Any] | None:
    """Return the next report of a worker, or ``None`` when there will be no more."""
    try:
        report: JobReport[J, Any] = JobReport(worker.job, *worker.connection.recv())
    except (EOFError, OSError):
        return None
    worker.failed |= report.failure is not None
    return report


def _close(worker: _Worker[J]) -> JobReport[J, Any] | None:
    """Wait for the end of a worker, and report a failure that the worker did not report itself."""
    worker.process.join()
    worker.connection.close()
    code = worker.process.exitcode or 0
    if code == 0 or worker.failed:
        return None
    failure = f"its process ended with status {code}"
    if code < 0:
        failure = f"its process was killed by {signal.Signals(-code).name} (is the memory large enough?)"
    return JobReport(worker.job, failure=failure)


def _run_job(
    connection: Connection, work: Callable[[Any], Iterable[Any]], job: Any, device: str | None
) -> None:
    """Run one job in this process, and send every result, or a failure, to the parent."""
    threading.Thread(target=_follow_parent, daemon=True).start()
    # Ctrl-C is for the parent alone, which ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if device is not None:
        os.environ[VISIBLE] = device
    try:
        for result in work(job):
            connection.send((result, None))
    except UserError as error:
        connection.send((None, str(error)))
    except Exception as error:
        # A fault of this package: the grid goes on, and its last line names the fault.
        connection.send((None, " ".join(f"{type(error).__name__}: {error}".split())))


def _follow_parent() -> None:
    """End this process as soon as its parent is gone."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
