"""What the workers of the pool's tests do; they find it by importing this file."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from ucds.errors import UserError
from ucds.experiments.pool import VISIBLE


def numbers(job: int) -> Iterator[int]:
    yield from range(job)


def fragile(job: str) -> Iterator[float]:
    yield 1
    if job == "user":
        raise UserError("no such thing")
    if job == "fault":
        yield 1 / 0
    if job == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    yield 2


def devices_seen(job: int) -> Iterator[str | None]:
    if job:
        time.sleep(1.0)  # long enough for another worker to start meanwhile
    yield os.environ.get(VISIBLE)


def forever(job: str) -> Iterator[str]:
    path = Path(job)
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").rename(path)
    yield "begun"
    while True:  # busy, so that only another thread can end it
        pass
