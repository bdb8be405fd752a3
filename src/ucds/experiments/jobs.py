"""Jobs in processes of their own.

Unlike a pool of the standard library, the jobs go on when a process dies, every process has a GPU of its own,
and none is left behind: one whose parent is gone ends at once. A process imports this module before its job
does anything, so nothing heavy is imported here.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from ucds.errors import UserError

VISIBLE = "CUDA_VISIBLE_DEVICES"


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
