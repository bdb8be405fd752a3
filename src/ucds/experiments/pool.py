"""Runs jobs in processes of their own, some at a time, and hands on what each has to say as it comes.

Unlike a pool of the standard library it outlives the death of a worker, gives every worker a device of
its own, and leaves no worker behind: one whose parent is gone ends at once, whatever it is doing.
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
class News(Generic[J, R]):
    """Something a job has to say.

    Attributes:
        job: that says it.
        result: one of its results, in the order in which they came; ``None`` with a failure.
        failure: why the job ended before it was done.
    """

    job: J
    result: R | None = None
    failure: str | None = None


def run_jobs(
    work: Callable[[J], Iterable[R]],
    jobs: Sequence[J],
    count: int,
    devices: Sequence[str] = (),
) -> Iterator[News[J, R]]:
    """Run jobs, each in a process of its own, so that its peak of memory is its own.

    Args:
        work: does a job and yields its results; an importable function, or a partial of one.
        jobs: started in this order.
        count: at a time.
        devices: of which every worker sees one, in turn; all see all if there are none.

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
                news = _hear(worker)
                if news is not None:
                    yield news
                    continue
                del running[connection]
                slots.append(worker.slot)
                failure = _end(worker)
                if failure is not None:
                    yield News(worker.job, failure=failure)
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
    process = context.Process(target=_serve, args=(theirs, work, job, device))
    process.start()
    theirs.close()  # so that the end of the worker is the end of the pipe
    return _Worker(process, ours, job, slot)


def _hear(worker: _Worker[J]) -> News[J, Any] | None:
    """The next message of a worker, or ``None`` when there will be no more."""
    try:
        kind, value = worker.connection.recv()
    except (EOFError, OSError):
        return None
    if kind == "failure":
        worker.failed = True
        return News(worker.job, failure=value)
    return News(worker.job, result=value)


def _end(worker: _Worker[Any]) -> str | None:
    """Take leave of a worker; say why, if it went without a word before its job was done."""
    worker.process.join()
    worker.connection.close()
    code = worker.process.exitcode or 0
    if code == 0 or worker.failed:
        return None
    if code < 0:
        return f"its process was killed by {signal.Signals(-code).name} (is the memory large enough?)"
    return f"its process ended with status {code}"


def _serve(
    connection: Connection, work: Callable[[Any], Iterable[Any]], job: Any, device: str | None
) -> None:
    """Be a worker."""
    threading.Thread(target=_follow_parent, daemon=True).start()
    # The parent alone heeds Ctrl-C, and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if device is not None:
        os.environ[VISIBLE] = device
    try:
        for result in work(job):
            connection.send(("result", result))
    except UserError as error:
        connection.send(("failure", str(error)))
    except Exception as error:
        # A fault of ours: the grid goes on, and its last line names it.
        connection.send(("failure", " ".join(f"{type(error).__name__}: {error}".split())))


def _follow_parent() -> None:
    """End this process when its parent is gone, in the middle of whatever it is doing."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
