"""Decodes images in processes that can be killed: a file may take for ever, or all the memory there is.

`concurrent.futures` cannot kill one of its processes, and pebble, which can, starts them through
`multiprocessing`: that hands them the secrets in the environment, and runs the caller's own script again. So
these are plain processes, each at the end of a socket of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ucds.data.decode import MAX_PIXELS, ByteArray, UnusableImageError
from ucds.serving.bounds import Waste, cost_of_refusal
from ucds.serving.limits import Limits
from ucds.serving.problems import Refusal
from ucds.serving.sandbox import DONE

_MODULE = "ucds.serving.sandbox"
_START_SECONDS = 120.0  # a loaded machine may take long to start a process
_LONG = 0.5  # seconds of processor time
_NICENESS, _GIVES_WAY = 10, 19  # beyond that of the service
_PATIENCE = 4  # times as long by the clock, where other work keeps the processors
_MOST_REMEMBERED = 10_000
_LONGEST_REASON = 4096
_KEPT_VARIABLES = ("PATH", "PYTHONHOME", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE")


class ImageDecoder:
    """Decodes the images of requests, a fair turn for each key; used on the event loop only.

    The service itself goes first, so that no answer waits for the decoding of another. Processes are kept
    for the next images. One that an image keeps long gives way to all other work from then on, for good. It
    serves keys that wasted work of late: they do not compete with the others.
    """

    def __init__(self, size: int, limits: Limits, waste: Waste) -> None:
        self._size, self._limits, self._waste = size, limits, waste
        # One process more than one key may take: its slow images leave one for the others.
        self._workers = limits.decode_workers or (os.cpu_count() or 1) + 1
        self._places = asyncio.Semaphore(self._workers)
        most = max(1, self._workers - 1)
        self._turns = defaultdict[int, asyncio.Semaphore](lambda: asyncio.Semaphore(most))
        self._idle: dict[bool, list[_Process]] = {False: [], True: []}
        self._unusable: OrderedDict[tuple[int, bytes], str] = OrderedDict()

    async def decode(self, key: int, files: Mapping[bytes, bytes | memoryview]) -> list[ByteArray | str]:
        """Return ``(3, size, size)`` uint8 for each file of a key, or the reason why it cannot be used.

        Reasons are remembered: a request that is refused on the way pays for none of them twice. If the call
        is cancelled, so is the decoding, at once.

        Raises:
            Refusal: an image was not decoded in time by the clock (503), or the key has used up what it may
                waste (429).
        """
        tasks = [asyncio.ensure_future(self._decode(key, *item)) for item in files.items()]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def close(self) -> None:
        """End the idle processes; those at work end when their task is cancelled."""
        for process in (*self._idle[False], *self._idle[True]):
            process.end()

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
                process = self._take(self._waste.debt(key) > 0)
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
        """Ask a process, and keep it or end it."""
        whole = False
        try:
            kind, answer = await process.ask(self._size, data, self._limits.decode_seconds)
            whole = True
        finally:
            others = self._idle[process.gives_way]
            if whole and len(others) < self._workers:
                others.append(process)
            else:
                await asyncio.to_thread(process.end)
        if kind != DONE:
            raise UnusableImageError("image", answer.decode(errors="replace"))
        return np.frombuffer(answer, np.uint8).reshape(3, self._size, self._size)

    def _take(self, gives_way: bool) -> _Process:
        """Return a process without work."""
        while self._idle[gives_way]:
            process = self._idle[gives_way].pop()
            if process.is_alive:  # the system may kill an idle one when memory is short
                return process
            process.end()
        limits = self._limits
        process = _Process(
            seconds=limits.decode_seconds,
            memory_bytes=limits.decode_memory_bytes,
            max_pixels=min(limits.max_image_pixels, MAX_PIXELS),
            formats=limits.formats,
        )
        if gives_way:
            process.give_way()
        return process


class _Process:
    """One process that decodes, and the socket to it; `spent` is its processor time for the last image."""

    def __init__(self, **bounds: Any) -> None:
        self.gives_way, self.spent, self._is_ready = False, 0.0, False
        self._ours, theirs = socket.socketpair()
        self._ours.setblocking(False)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE, str(theirs.fileno()), json.dumps(bounds)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # libraries write there what a file makes them say
                process_group=0,  # Ctrl-C is for the caller; in a session of its own, priority means nothing
                env=_environment(),
            )
        self._be_nice(_NICENESS)

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    async def ask(self, size: int, data: bytes | memoryview, seconds: float) -> tuple[bytes, bytes]:
        """Return the kind and the content of the process's answer within some seconds of processor time."""
        if not self._is_ready:
            await self._wait_until_ready()
        before, end = self._seconds_used(), time.monotonic() + _PATIENCE * seconds
        asking = asyncio.ensure_future(self._exchange(size, data))
        try:
            while not (await asyncio.wait([asking], timeout=min(_LONG, seconds)))[0]:
                spent = self._seconds_used() - before
                if spent > _LONG:
                    self.give_way()
                if spent > seconds:
                    raise UnusableImageError("image", f"not decoded within {seconds:g} seconds")
                if time.monotonic() > end:  # no word on the image: the machine had other work
                    raise Refusal(
                        "busy", "The images could not be decoded in time; come again.", retry_after=5
                    )
            return asking.result()
        except (EOFError, OSError):
            raise UnusableImageError("image", "its decoder crashed") from None
        finally:
            if not asking.done():
                asking.cancel()
                await asyncio.wait([asking])  # until then the event loop looks at the socket
            self.spent = self._seconds_used() - before

    def give_way(self) -> None:
        """Let all other work go first, for good: only the system's owner may take that back."""
        if not self.gives_way:
            self.gives_way = True
            self._be_nice(_GIVES_WAY)

    def _be_nice(self, more: int) -> None:
        niceness = min(19, os.getpriority(os.PRIO_PROCESS, 0) + more)
        os.setpriority(os.PRIO_PROCESS, self._process.pid, niceness)

    def end(self) -> None:
        """End the process, whatever it is doing, and wait until it is gone."""
        self._process.kill()
        self._process.wait()
        self._ours.close()

    async def _wait_until_ready(self) -> None:
        try:
            await asyncio.wait_for(self._receive(1), _START_SECONDS)
        except (TimeoutError, OSError, EOFError):
            raise RuntimeError(f"{_MODULE} cannot start; see `python -m {_MODULE}`") from None
        self._is_ready = True

    async def _exchange(self, size: int, data: bytes | memoryview) -> tuple[bytes, bytes]:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._ours, size.to_bytes(4) + len(data).to_bytes(4))
        await loop.sock_sendall(self._ours, data)
        head = await self._receive(5)
        length = int.from_bytes(head[1:])
        if length > max(3 * size * size, _LONGEST_REASON):
            raise EOFError
        return head[:1], await self._receive(length)

    async def _receive(self, count: int) -> bytes:
        received, loop = bytearray(), asyncio.get_running_loop()
        while len(received) < count:
            piece = await loop.sock_recv(self._ours, count - len(received))
            if not piece:
                raise EOFError
            received += piece
        return bytes(received)

    def _seconds_used(self) -> float:
        """Return the processor time that the process has taken; the clock where that is not known."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return time.monotonic()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _environment() -> dict[str, str]:
    """Return the variables of the processes: this package, one thread, no secret."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    paths = [str(Path(__file__).parents[2]), *filter(None, [kept.get("PYTHONPATH")])]
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MALLOC_ARENA_MAX"), "1")
    return kept | single | {"PYTHONPATH": os.pathsep.join(paths)}
