"""The place of this process among the processes of a run.

Fabric starts the other processes of one machine (``--devices``); torchrun starts those of several machines,
and tells each process its place through the environment.
"""

from __future__ import annotations

import os
from typing import NamedTuple


class Processes(NamedTuple):
    """Numbers of processes on each machine, and of machines, that torchrun has started."""

    on_machine: int
    machines: int


def started_by_torchrun() -> Processes | None:
    """Return the processes that torchrun has started; ``None`` if this process was started otherwise."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    on_machine = int(os.environ["LOCAL_WORLD_SIZE"])
    return Processes(on_machine, int(os.environ["WORLD_SIZE"]) // on_machine)


def is_first_process() -> bool:
    """Return whether this is the first, or the only, process of a run: the one that reports to the user."""
    if started_by_torchrun() is not None:
        return os.environ["RANK"] == "0"
    return is_first_on_machine()


def is_first_on_machine() -> bool:
    """Return whether this is the first, or the only, process of a run on its machine."""
    return os.environ.get("LOCAL_RANK", "0") == "0"
