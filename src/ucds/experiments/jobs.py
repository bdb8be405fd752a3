"""Runs jobs, each in its own process.

Unlike in a pool of the standard library, the jobs go on when a process dies, every process has its own GPU,
and a process ends at once when its parent is gone. A process imports this module before its job begins, so
nothing heavy is imported here.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from ucds.errors import UserError

VISIBLE = "CUDA_VISIBLE_DEVICES"


class Failure(NamedTuple):
    """A job that failed, and the reason."""

    job: Any
    reason: str


def run_jobs(
    work: Callable[[Any], Iterable[Any]], jobs: Sequence[Any], count: int, devices: Sequence[str] = ()
) -> Iterator[Any]:
    """Run ``count`` jobs at a time, each in its own process, so that its peak memory can be measured.

    The work must be importable, or a partial of something importable. The processes get the given devices in
    turn; without any, every process sees all devices. Results of a job are yielded as soon as they exist, and
    a :class:`Failure` for each job that fails.
    """
    waiting, places = deque(jobs), deque(range(count))
    context = get_context("spawn")
    running: dict[Connection, tuple[Any, int, Any]] = {}
    try:
        while waiting or running:
            while waiting and places:
                place, job = places.popleft(), waiting.popleft()
                device = devices[place % len(devices)] if devices else None
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_do, args=(theirs, work, job, device))
                process.start()
                theirs.close()
                running[ours] = process, place, job
            for news in wait(list(running)):
                assert isinstance(news, Connection)
                try:
                    yield news.recv()
                    continue
                except (EOFError, OSError):  # the end of the process, perhaps in the middle of a message
                    process, place, job = running.pop(news)
                news.close()
                process.join()
                places.append(place)
                if process.exitcode < 0:
                    name = signal.Signals(-process.exitcode).name
                    yield Failure(job, f"its process was killed by {name} (perhaps for lack of memory)")
                elif process.exitcode:
                    yield Failure(job, f"its process ended with status {process.exitcode}")
    finally:
        for process, *_ in running.values():
            process.kill()
            process.join()


def _do(news: Connection, work: Callable[[Any], Iterable[Any]], job: Any, device: str | None) -> None:
    """Do one job in this process, and send the parent its results, or the reason of its failure."""
    threading.Thread(target=_follow_parent, daemon=True).start()
    # Ctrl-C is for the parent alone, which ends its processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if device is not None:
        os.environ[VISIBLE] = device
    try:
        for found in work(job):
            news.send(found)
    except Exception as error:
        news.send(Failure(job, reason_of(error)))


def reason_of(error: Exception) -> str:
    """Return the reason of a failure in one line; for a bug of this package, with the error's class."""
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())


def _follow_parent() -> None:
    """End this process as soon as its parent is gone."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
