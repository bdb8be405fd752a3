"""Devices of this machine that PyTorch computes on."""

from __future__ import annotations

import torch

from ucds.choices import Accelerator, require_choice
from ucds.errors import InputError


def check_devices(accelerator: Accelerator, devices: int) -> None:
    """Make sure that the machine has so many devices of a kind."""
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
    check_devices(accelerator, 1)
    if accelerator == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda", 0)
    return torch.device("mps", 0) if torch.backends.mps.is_available() else torch.device("cpu")
