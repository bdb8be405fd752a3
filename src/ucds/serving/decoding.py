"""Decodes images in processes that can be killed: a file may take forever, or all the memory.

`concurrent.futures` cannot kill one of its processes. Pebble can, but starts them through `multiprocessing`,
which hands them the secrets in the environment and runs the caller's script again. So these are plain
processes, each at the end of its own socket.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

import numpy as np

from ucds.data.decode import Bounds, ByteArray, UnusableImageError
from ucds.data.sandbox import DONE
from ucds.serving.bounds import Waste, cost_of_refusal
from ucds.serving.limits import Limits
from ucds.serving.problems import Refusal

_MODULE = "ucds.data.sandbox"
_START_SECONDS = 120.0  # a loaded machine may take long to start a process
_NICENESS = 10  # beyond that of the service
_PATIENCE = 4  # times as long by the clock, where other work keeps the processors
_MOST_REMEMBERED = 10_000
_LONGEST_REASON = 4096
_KEPT_VARIABLES = ("PATH", "PYTHONHOME", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE")


class ImageDecoder:
    """Decodes the images of requests, in fair turns of the keys; used on the event loop only.

    The service has priority, so that no answer waits for the decoding of another request. Processes are kept
    for the next images. A thread waits for each busy process, so that the event loop need not.
    """

    def __init__(self, size: int, limits: Limits, waste: Waste) -> None:
        self._size, self._limits, self._waste = size, limits, waste
        # One process more than one key may take: its slow images leave one for the others.
        workers = limits.decode_workers or (os.cpu_count() or 1) + 1
        self._places = asyncio.Semaphore(workers)
        most = max(1, workers - 1)
        self._turns = defaultdict[int, asyncio.Semaphore](lambda: asyncio.Semaphore(most))
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="decoding")
        self._idle: list[_Process] = []
        self._unusable: OrderedDict[tuple[int, bytes], str] = OrderedDict()

    async def decode(self, key: int, files: Mapping[bytes, bytes | memoryview]) -> list[ByteArray | str]:
        """Return ``(3, size, size)`` uint8 for each file of a key, or the reason why it cannot be used.

        Reasons are remembered: if a request is refused on the way, its next try pays for none again. If
        the call is cancelled, the decoding is cancelled at once.
        """
        tasks = [asyncio.ensure_future(self._decode(key, *item)) for item in files.items()]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                if not task.cancelling():  # a second time would interrupt the end of its process
                    task.cancel()
            await asyncio.wait(tasks)

    def close(self) -> None:
        """End the idle processes; busy ones end when their task is cancelled."""
        for process in self._idle:
            process.end()
        self._threads.shutdown()

    async def _decode(self, key: int, content: bytes, data: bytes | memoryview) -> ByteArray | str:
        if (key, content) in self._unusable:
            return self._unusable[key, content]
        async with self._turns[key], self._places:
            self._waste.delay(key)  # refuses a key that wasted too much meanwhile
            spent = 0.0
            try:
                if not data:
                    raise UnusableImageError("image", "empty file")
                if len(data) > self._limits.max_image_bytes:
                    raise UnusableImageError("image", f"longer than {self._limits.max_image_bytes:,} bytes")
                process = self._take()
                try:
                    return await self._ask(process, data)
                finally:
                    spent = process.spent
            except UnusableImageError as error:
                self._waste.charge(key, spent + cost_of_refusal(len(data)))
                self._unusable[key, content] = error.reason
                if len(self._unusable) > _MOST_REMEMBERED:
                    self._unusable.popitem(last=False)
                return error.reason

    async def _ask(self, process: _Process, data: bytes | memoryview) -> ByteArray:
        """Ask a process in a thread, and keep it if it lives on."""
        seconds = self._limits.decode_seconds
        asking = asyncio.get_running_loop().run_in_executor(self._threads, process.ask, data)
        try:
            await asyncio.wait([asking], timeout=_PATIENCE * seconds + process.seconds_to_start)
            if not asking.done() and process.seconds_used() < seconds:  # the machine had other work
                raise Refusal("busy", "The images could not be decoded in time; try again.", retry_after=5)
        finally:
            if not asking.done():
                process.kill()  # so that its thread waits no longer
                await asyncio.wait([asking])
                asking.exception()  # else asyncio would report that nobody looked at it
            if process.is_alive:
                self._idle.append(process)
        return asking.result()

    def _take(self) -> _Process:
        """Return a process without work."""
        while self._idle:
            process = self._idle.pop()
            if process.is_alive:  # the system may kill an idle one when memory is short
                return process
            process.end()
        limits = self._limits
        return _Process(
            size=self._size,
            seconds=limits.decode_seconds,
            memory_bytes=limits.decode_memory_bytes,
            max_pixels=min(limits.max_image_pixels, Bounds.pixels),
            formats=limits.formats,
        )


class _Process:
    """One decoding process and its socket; `spent` is its processor time for the last image."""

    def __init__(self, size: int, **bounds: Any) -> None:
        self._size, self._seconds = size, bounds["seconds"]
        self._before, self.spent, self.seconds_to_start = 0.0, 0.0, _START_SECONDS
        self._channel, theirs = Pipe()
        with theirs:
            told = str(theirs.fileno()), json.dumps(bounds | {"size": size})
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE, *told],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # libraries write there what a file makes them say
                process_group=0,  # Ctrl-C is for the caller
                env=_environment(),
            )
        # Linux compares the niceness of processes of one session alone, so this one stays in the service's.
        niceness = min(19, os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS)
        os.setpriority(os.PRIO_PROCESS, self._process.pid, niceness)

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def ask(self, data: bytes | memoryview) -> ByteArray:
        """Wait for the pixels of an image; a process that an image kills is gone when this raises."""
        if self.seconds_to_start:
            self._wait_until_ready()
        self._before += self.seconds_used()
        length = 3 * self._size**2
        try:
            self._channel.send_bytes(data)
            answer = self._channel.recv_bytes(1 + max(length, _LONGEST_REASON))
        except (EOFError, OSError):
            self.spent = self.seconds_used()
            is_late = self.end() == -signal.SIGPROF or self.spent >= self._seconds
            reason = f"not decoded within {self._seconds:g} seconds" if is_late else "its decoder crashed"
            raise UnusableImageError("image", reason) from None
        self.spent = self.seconds_used()
        if answer[:1] != DONE or len(answer) != 1 + length:
            reason = answer[1:_LONGEST_REASON].decode(errors="replace")
            raise UnusableImageError("image", reason)
        return np.frombuffer(answer, np.uint8, offset=1).reshape(3, self._size, self._size)

    def seconds_used(self) -> float:
        """Return the processor time that the process took for this image; 0 if it is not known."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") - self._before

    def kill(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()

    def end(self) -> int:
        """End the process, wait until it is gone, and return its status."""
        self._process.kill()
        self._channel.close()
        return self._process.wait()

    def _wait_until_ready(self) -> None:
        try:
            self._channel.recv_bytes(1)
        except (OSError, EOFError):
            raise RuntimeError(f"{_MODULE} cannot start; see `python -m {_MODULE}`") from None
        self.seconds_to_start = 0.0


def _environment() -> dict[str, str]:
    """Return the environment of the processes: this package's path, one thread, no secret."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    paths = [str(Path(__file__).parents[2]), *filter(None, [kept.get("PYTHONPATH")])]
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MALLOC_ARENA_MAX"), "1")
    return kept | single | {"PYTHONPATH": os.pathsep.join(paths)}
