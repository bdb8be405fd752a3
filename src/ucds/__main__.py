"""The process of a command: ``ucds``, and ``python -m ucds``, which is the same."""

import atexit
import gc
import os
import sys
from contextlib import suppress

from ucds.cli import main


def run() -> None:
    """Run the command line as a process of its own.

    The libraries make half a million objects, which take seconds to load and to free. So the garbage
    collector runs more rarely, and the process ends right after its exit handlers, without freeing memory.
    """
    _open_missing_streams()
    if os.path.expanduser("~") == "~" and "UCDS_CACHE" in os.environ:  # noqa: PTH111  (which raises)
        os.environ["HOME"] = os.environ["UCDS_CACHE"]  # or libraries make a folder of the name "~"
    gc.set_threshold(100_000, 50, 100)
    status: list[int] = []
    atexit.register(_end, status)  # the first to be registered runs last
    try:
        main()
    except SystemExit as end:
        status.append(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise


def _open_missing_streams() -> None:
    """Open streams that were closed before the start; else a file of ours would get their messages."""
    for name in ("stdin", "stdout", "stderr"):  # the lowest free number comes first
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)  # for the processes that this one starts
            setattr(sys, name, os.fdopen(opened, "r" if name == "stdin" else "w"))


def _end(status: list[int]) -> None:
    """End this process with the status of its command; without a status, end in the usual way."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # it is closed, or nobody reads it any longer
            stream.flush()
    if status:
        os._exit(status[0])


if __name__ == "__main__":
    run()
