"""What the processes of the tests of jobs do; they find it by importing this file."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from ucds.errors import UserError
from ucds.experiments.jobs import VISIBLE


def fragile(job: str) -> Iterator[str]:
    path = Path(job)
    path.write_text("begun")
    yield path.name
    if path.name == "user":
        raise UserError("no such thing")
    if path.name == "fault":
        1 / 0  # noqa: B018
    if path.name == "leaves":
        os._exit(3)
    if path.name == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    path.write_text("done")


def devices_seen(job: str) -> Iterator[str]:
    time.sleep(float(job))
    yield os.environ.get(VISIBLE, "")


def forever(job: str) -> Iterator[int]:
    path = Path(job)
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").rename(path)
    yield os.getpid()
    while True:  # busy, so that only another thread can end it
        pass
