"""What the processes of the tests of jobs do; they find it by importing this file."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from ucds.errors import UserError
from ucds.experiments.jobs import VISIBLE


def fragile(job: str) -> None:
    path = Path(job)
    path.write_text("begun")
    if path.name == "user":
        raise UserError("no such thing")
    if path.name == "fault":
        1 / 0  # noqa: B018
    if path.name == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    path.write_text("done")


def devices_seen(job: str) -> None:
    time.sleep(1.0)  # long enough for another process to start meanwhile
    Path(job).write_text(os.environ.get(VISIBLE, ""))


def forever(job: str) -> None:
    path = Path(job)
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").rename(path)
    while True:  # busy, so that only another thread can end it
        pass
