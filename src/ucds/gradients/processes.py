"""Devices of this machine, and the processes of a run on them.

Fabric starts the other processes of one machine (``--devices``); torchrun starts those of several machines,
and leaves in the environment which of them this one is. What only predicts takes its device from here,
without loading Fabric.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ucds.choices import Accelerator, require_choice
from ucds.errors import InputError

if TYPE_CHECKING:
    import torch


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


def check_devices(accelerator: Accelerator, devices: int) -> None:
    """Make sure that the machine has so many devices of a kind."""
    import torch  # it takes seconds, which what only asks for its place among the processes need not wait for

    require_choice("accelerator", accelerator, Accelerator)
    if devices < 1:
        raise InputError(f"the number of devices must be at least 1, not {devices}")
    available = torch.cuda.device_count()
    if accelerator == "cuda" and not available:
        raise InputError("no CUDA device found: use --accelerator cpu")
    if accelerator != "cpu" and 0 < available < devices:
        raise InputError(f"asked for {devices} CUDA devices, but this machine has {available}")


def choose_device(accelerator: Accelerator) -> torch.device:
    """Return the device of a program of one process, the one that Fabric would choose.

    Raises:
        InputError: there is no such accelerator.
    """
    import torch

    check_devices(accelerator, 1)
    if accelerator == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda", 0)
    return torch.device("mps", 0) if torch.backends.mps.is_available() else torch.device("cpu")
