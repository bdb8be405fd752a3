"""Decode images in processes that can be killed: a file may take for ever, or all the memory there is.

`concurrent.futures` cannot kill one of its processes, and pebble, which can, starts them through
`multiprocessing`: that runs the caller's own script again, or copies a process full of threads. So
these are plain processes, each at the end of a pipe of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from concurrent.futures import CancelledError
from dataclasses import asdict, dataclass
from multiprocessing import Pipe
from pathlib import Path

import numpy as np

from ucds.data.decode import FORMATS, MAX_PIXELS, ByteArray, UnusableImageError
from ucds.serving.decoding_process import DONE, IDLE_SECONDS

_MODULE = "ucds.serving.decoding_process"
_START_SECONDS = 120.0  # a loaded machine may take long to start a process
_LONG = 0.5  # seconds of processor time
_PATIENCE = 4  # by the clock, where other work keeps the processors
_KEPT_VARIABLES = ("PATH", "PYTHONHOME", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE")


class DelayedImageError(UnusableImageError):
    """An image that was not decoded in time because the machine had other work; another try may succeed."""


@dataclass(frozen=True)
class DecodeBounds:
    """Bounds on the decoding of one image. Its defaults are generous.

    Attributes:
        seconds: processor time after which decoding is given up; four times as long by the clock.
        memory_bytes: memory that a decoding process may take beyond that of its start.
        max_pixels: pixels of one image, checked in its header before a pixel is decoded.
        formats: formats that are read, by Pillow's names.
        niceness: amount by which a process gives way to others once an image takes long; 0 to 19.
        give_way_at_once: whether it does so from its start on, however long an image takes.
    """

    seconds: float = 60.0
    memory_bytes: int = 4 * 2**30
    max_pixels: int = MAX_PIXELS
    formats: tuple[str, ...] = FORMATS
    niceness: int = 0
    give_way_at_once: bool = False


class Decoders:
    """Processes that decode images: as many as there are callers at a time, kept for the next callers.

    Args:
        bounds: bounds on the decoding of one image; the defaults if ``None``.
    """

    def __init__(self, bounds: DecodeBounds | None = None) -> None:
        self.bounds = bounds or DecodeBounds()
        self._idle: deque[_Process] = deque()
        self._closed, self._owner = False, os.getpid()

    def decode(self, data: bytes, size: int, path: str | Path = "image") -> ByteArray:
        """Decode an image as :func:`ucds.data.decode.decode_image` does, within the bounds.

        Raises:
            UnusableImageError: the file is not a usable image, or decoding it broke a bound or its process.
        """
        return Decoding(self, data, size, path).run()

    def close(self) -> None:
        """End the idle processes; those at work end when their image is done or cancelled."""
        self._closed = True
        self._forget_others()
        while self._idle:
            self._idle.pop().kill()

    def take(self) -> _Process:
        """Return a process without work."""
        self._forget_others()
        while True:
            try:
                process = self._idle.pop()
            except IndexError:
                return _Process(self.bounds)
            if time.monotonic() - process.since < IDLE_SECONDS / 2 and process.alive:
                return process
            process.kill()  # it ends by itself about now, or somebody killed it

    def give_back(self, process: _Process) -> None:
        """Keep a process for the next image."""
        process.since = time.monotonic()
        self._idle.append(process)
        if self._closed:
            self.close()

    def _forget_others(self) -> None:
        """Leave the processes of the parent to it, where this is the copy in a forked child."""
        if self._owner != os.getpid():
            self._owner, self._idle = os.getpid(), deque()


class Decoding:
    """The decoding of one image, which another thread may cancel.

    Attributes:
        seconds: processor time that it took so far.
    """

    def __init__(self, decoders: Decoders, data: bytes, size: int, path: str | Path = "image") -> None:
        self._decoders, self._data, self._size, self._path = decoders, data, size, path
        self._lock, self._cancelled = threading.Lock(), False
        self._process: _Process | None = None
        self.seconds = 0.0

    def cancel(self) -> None:
        """Give the image up, at once."""
        with self._lock:
            self._cancelled = True
            if self._process is not None:
                self._process.interrupt()

    def run(self) -> ByteArray:
        """Decode the image.

        Raises:
            UnusableImageError: the file is not a usable image, or decoding it broke a bound or its process.
            DelayedImageError: the machine was too busy; this error is an UnusableImageError as well.
            CancelledError: it was cancelled.
        """
        with self._lock:
            if self._cancelled:
                raise CancelledError
            process = self._process = self._decoders.take()
        seconds, whole = self._decoders.bounds.seconds, False
        try:
            answer = process.ask(self._data, self._size, seconds, self._path)
            whole = True
        except TimeoutError:
            reason = f"not decoded within {seconds:g} seconds"
            raise UnusableImageError(self._path, reason) from None
        except (EOFError, OSError):
            if self._cancelled:
                raise CancelledError from None
            raise UnusableImageError(self._path, "its decoder crashed") from None
        finally:
            self.seconds = process.spent
            with self._lock:
                self._process = None
            if whole and not self._cancelled and not process.gives_way:
                self._decoders.give_back(process)
            else:
                process.kill()
        if answer[:1] != DONE:
            raise UnusableImageError(self._path, answer[1:].decode(errors="replace"))
        return np.frombuffer(answer, np.uint8, offset=1).reshape(3, self._size, self._size)


class _Process:
    """One process that decodes, and the pipe to it."""

    def __init__(self, bounds: DecodeBounds) -> None:
        self.since, self.gives_way, self._niceness = time.monotonic(), False, bounds.niceness
        self._pipe, theirs = Pipe()
        number, told = theirs.fileno(), asdict(bounds)
        del told["niceness"], told["give_way_at_once"]  # they are for this side
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE, str(number), json.dumps(told)],
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # libraries write there what a file makes them say
                start_new_session=True,  # Ctrl-C is for the caller
                env=_environment(),
            )
        if bounds.give_way_at_once:
            os.setpriority(os.PRIO_PROCESS, self._process.pid, bounds.niceness)
            self._niceness = 0  # no more than that
        self._ready = False
        self.spent = 0.0  # seconds of processor time for the last image

    def ask(self, data: bytes, size: int, seconds: float, path: str | Path) -> bytes:
        """Return the process's answer.

        Raises:
            TimeoutError: there is none in so many seconds of processor time.
            DelayedImageError: there is none in four times as many seconds by the clock.
            EOFError: the process has ended.
            OSError: the process has ended.
        """
        self._wait_until_ready()
        before = self._seconds_used()
        self._pipe.send_bytes(size.to_bytes(4))
        self._pipe.send_bytes(data)
        try:
            self._wait_for_answer(before, seconds, path)
            return self._pipe.recv_bytes(1 + 3 * size * size + 4096)
        finally:
            self.spent = self._seconds_used() - before

    def _wait_for_answer(self, before: float, seconds: float, path: str | Path) -> None:
        """Wait until there is an answer, or it has taken too long; :meth:`ask` names the errors."""
        end, left = time.monotonic() + _PATIENCE * seconds, seconds
        while not self._pipe.poll(min(left, _LONG)):
            taken = self._seconds_used() - before
            if self._niceness and taken > _LONG:
                os.setpriority(os.PRIO_PROCESS, self._process.pid, self._niceness)
                self.gives_way = True  # for good: only the system's owner may take that back
            left = min(seconds - taken, end - time.monotonic())
            if seconds - taken < 0.01:
                raise TimeoutError
            if left < 0.01:
                raise DelayedImageError(path, f"not decoded within {_PATIENCE * seconds:g} seconds")

    @property
    def alive(self) -> bool:
        """Whether the process runs. The system may kill an idle one when memory is short."""
        return self._process.poll() is None

    def interrupt(self) -> None:
        """End the process, whatever it is doing; who waits for its answer gets an EOFError."""
        self._process.kill()

    def kill(self) -> None:
        """End the process, and free what it holds."""
        self._process.kill()
        self._process.wait()
        self._pipe.close()

    def _seconds_used(self) -> float:
        """Return the processor time that the process has taken; the clock where that is not known."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return time.monotonic()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _wait_until_ready(self) -> None:
        if self._ready:
            return
        if not self._pipe.poll(_START_SECONDS):
            raise RuntimeError(f"{_MODULE} does not start")
        try:
            self._pipe.recv_bytes(1)
        except EOFError:
            if self._process.wait() < 0:  # killed by somebody
                raise
            raise RuntimeError(f"{_MODULE} cannot start; see `python -m {_MODULE}`") from None
        self._ready = True


def _environment() -> dict[str, str]:
    """Return the variables of the processes: this package, one thread, no secret."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    paths = [str(Path(__file__).parents[2]), *filter(None, [kept.get("PYTHONPATH")])]
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MALLOC_ARENA_MAX"), "1")
    return kept | single | {"PYTHONPATH": os.pathsep.join(paths)}
