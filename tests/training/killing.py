"""Runs a command in a process that ends itself by SIGKILL; in a module that a forked process can import."""

import os
import signal
import sys
from threading import Timer
from typing import Any

from ucds.cli import main


def run_and_kill(arguments: list[str], folder: str, changes: int, pause: float) -> None:
    """Run a command in this process, and SIGKILL it a pause after so many changes of files in a folder."""
    seen = 0

    # Python tells an audit hook of every such change before it happens; nothing of the program is replaced.
    def watch(event: str, details: tuple[Any, ...]) -> None:
        nonlocal seen
        path = {"open": 0, "os.remove": 0, "os.rename": 1}.get(event)
        if path is None or not str(details[path]).startswith(folder):
            return
        if event == "open" and not details[2] & (os.O_WRONLY | os.O_RDWR):
            return
        seen += 1
        if seen == changes and pause:
            Timer(pause, os.kill, (os.getpid(), signal.SIGKILL)).start()
        elif seen == changes:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.argv = arguments
    os.environ["UCDS_CHECKPOINT_SECONDS"] = "0"
    if changes:
        sys.addaudithook(watch)
    main()
