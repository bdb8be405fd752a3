"""Runs the service in several processes that answer on one socket, and replaces those that die.

The first process holds the socket, and the workers accept its connections. So a connection that nobody has
accepted yet outlives the death of a worker, and who is asked next is the system's choice.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

from ucds.data.ahead import processors
from ucds.errors import ServiceUnavailableError, UserError, one_line
from ucds.serving.server import Sockets

_START_SECONDS = 300.0  # a loaded machine may take long to load a model
_TICK_SECONDS = 0.2
_MOST_FAILURES = 5
_LONGEST_PAUSE = 30.0
_MARGIN_SECONDS = 5.0
READY = b"ready"
logger = logging.getLogger("ucds.serving")


class _Worker:
    """One process of the service, and the pipe on which it says that it is ready, or why it is not."""

    def __init__(self, told: bytes, fds: tuple[int, ...], count: int) -> None:
        self._reading, writing = os.pipe()
        threads = {"OMP_NUM_THREADS": str(max(1, processors() // count))}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ucds.serving.worker", str(writing)],
            stdin=subprocess.PIPE,  # its end tells the worker that this process is gone
            stdout=subprocess.DEVNULL,
            pass_fds=(writing, *fds),
            start_new_session=True,  # Ctrl-C is for this process, which ends them all
            env=threads | os.environ,
        )
        os.close(writing)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it ended at once, as the pipe for its word will tell
            self.process.stdin.write(told)
            self.process.stdin.flush()
        self.is_ready = False
        self.error: UserError | None = None

    def hear(self) -> None:
        """Take note of what the worker has said: that it is ready, or an error."""
        if self.is_ready or not select.select([self._reading], [], [], 0)[0]:
            return
        said = b""
        while part := os.read(self._reading, 2**16):
            said += part
            if said == READY:
                self.is_ready = True
                return
        if said:
            self.error = pickle.loads(said)

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self.process.poll() is not None

    def close(self, seconds: float) -> None:
        """Wait for the end of a process that was asked to stop, and make sure of it after some seconds."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._reading)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


class Workers:
    """The processes of a service.

    Args:
        count: number of processes.
        options: message to each worker, beside the sockets; it can be pickled.
        bound: sockets to answer on.
        shutdown_seconds: time for requests in work when the service is asked to stop.
    """

    def __init__(self, count: int, options: Any, bound: Sockets, shutdown_seconds: float) -> None:
        self._count, self._seconds = count, shutdown_seconds
        self._rates = tempfile.TemporaryFile(prefix="ucds-rates-")  # noqa: SIM115  (closed by `run`)
        numbers = [one.fileno() for one in bound.all()]
        self._fds = (*numbers, self._rates.fileno())
        self._told = pickle.dumps((options, numbers, self._rates.fileno()))
        self._workers: list[_Worker] = []
        self._failures, self._is_up = 0, False

    def run(self, ready: Callable[[], None], stop: threading.Event, tick: Callable[[], None]) -> None:
        """Answer until SIGTERM, SIGINT or the event; then let the workers finish what they accepted.

        Args:
            ready: called once all workers answer.
            stop: event that ends the service.
            tick: called several times a second.

        Raises:
            UserError: the workers cannot start; the message is that of the first one.
        """
        with ExitStack() as stack:
            stack.callback(self._rates.close)
            stack.callback(self._end)
            stack.enter_context(_signals(stop))
            self._workers = [self._start() for _ in range(self._count)]
            end = time.monotonic() + _START_SECONDS
            while not stop.is_set() and not all(worker.is_ready for worker in self._workers):
                if time.monotonic() > end:
                    raise ServiceUnavailableError("the workers of the service do not start")
                self._look(stop)
            if not stop.is_set():
                self._is_up = True
                ready()
            while not stop.is_set():
                self._look(stop)
                tick()

    def _start(self) -> _Worker:
        return _Worker(self._told, self._fds, self._count)

    def _look(self, stop: threading.Event) -> None:
        """Hear what the workers say, and replace those that have died."""
        for place, worker in enumerate(self._workers):
            was_ready = worker.is_ready
            worker.hear()
            if worker.is_ready and not was_ready:
                self._failures = 0
            if worker.error is not None and not self._is_up:
                raise worker.error
            if worker.has_ended:
                self._replace(place, stop)
        stop.wait(_TICK_SECONDS)

    def _replace(self, place: int, stop: threading.Event) -> None:
        """Start a worker in the place of a dead one, after a pause if it died before it could answer."""
        dead = self._workers[place]
        logger.error("a worker of the service ended (%s): another one is started", dead.error or "killed")
        if not dead.is_ready:
            self._failures += 1
            if self._failures >= _MOST_FAILURES and not self._is_up:
                raise ServiceUnavailableError("the workers of the service end before they can answer")
            stop.wait(min(_LONGEST_PAUSE, self._failures))
        dead.close(0)
        self._workers[place] = self._start()

    def _end(self) -> None:
        for worker in self._workers:
            worker.process.terminate()
        end = time.monotonic() + self._seconds + _MARGIN_SECONDS
        for worker in self._workers:
            worker.close(max(0.0, end - time.monotonic()))


@contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """Set an event at SIGTERM and SIGINT, where this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(sig: int, frame: FrameType | None) -> None:
        stop.set()

    before = {sig: signal.signal(sig, note) for sig in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for sig, handler in before.items():
            signal.signal(sig, handler)


def describe(error: Exception) -> bytes:
    """Return what a worker says when it cannot start: an error for the user, pickled."""
    known = error if isinstance(error, UserError) else ServiceUnavailableError(one_line(error))
    return pickle.dumps(known)
