"""Devices of this machine that PyTorch computes on."""

from __future__ import annotations

import torch

from ucds.choices import Accelerator
from ucds.errors import InputError


def count_devices() -> int:
    """Return the number of CUDA devices that this process sees."""
    return torch.cuda.device_count()


def describe_device(accelerator: Accelerator) -> dict[str, str | int]:
    """Describe, for a record, what computes: the name of the device, and the number of threads beside it."""
    on_cuda = torch.cuda.is_available() and accelerator != "cpu"
    return {
        "device": torch.cuda.get_device_name() if on_cuda else "cpu",
        "threads": torch.get_num_threads(),
    }


def peak_device_memory_mib() -> int:
    """Return the most memory of a GPU that this process has held so far, in MiB; 0 without one."""
    return torch.cuda.max_memory_allocated() // 1024**2 if torch.cuda.is_available() else 0


def check_devices(accelerator: Accelerator, devices: int) -> None:
    """Make sure that the machine has a number of devices of a kind."""
    if devices < 1:
        raise InputError(f"the number of devices must be at least 1, not {devices}")
    available = torch.cuda.device_count()
    if accelerator == "cuda" and not available:
        raise InputError('PyTorch finds no CUDA device: use `accelerator="cpu"`')
    if accelerator != "cpu" and 0 < available < devices:
        raise InputError(f"this machine has {available} CUDA devices, and {devices} are asked for")


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
