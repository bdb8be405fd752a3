"""Devices of this machine that PyTorch computes on."""

from __future__ import annotations

import torch

from ucds.choices import Accelerator, Precision
from ucds.errors import InputError


def count_devices() -> int:
    """Return the number of CUDA devices that this process sees."""
    return torch.cuda.device_count()


def kind_of(accelerator: Accelerator) -> str:
    """Return the kind of device that computes: ``"cpu"``, ``"cuda"`` or ``"mps"``, the GPU of a Mac."""
    if accelerator != "auto":
        return accelerator
    if count_devices():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def describe_device(accelerator: Accelerator) -> dict[str, str | int]:
    """Describe the device for a record: its name, and the number of threads beside it."""
    kind = kind_of(accelerator)
    name = torch.cuda.get_device_name() if kind == "cuda" else kind
    return {"device": name, "threads": torch.get_num_threads()}


def peak_device_memory_mib() -> int:
    """Return the most GPU memory that this process has held so far, in MiB; 0 without a GPU."""
    return torch.cuda.max_memory_allocated() // 1024**2 if torch.cuda.is_available() else 0


def check_devices(accelerator: Accelerator, devices: int, precision: Precision = "32-true") -> None:
    """Make sure that the machine has enough devices of a kind, and that they have the precision."""
    if devices < 1:
        raise InputError(f"the number of devices must be at least 1, not {devices}")
    kind = kind_of(accelerator)
    if kind == "cpu":
        return
    available = count_devices() if kind == "cuda" else int(torch.backends.mps.is_available())
    name = kind.upper()
    if not available:
        raise InputError(f'PyTorch finds no {name} device: use `accelerator="cpu"`')
    if available < devices:
        count = "1 MPS device" if kind == "mps" else f"{available} CUDA devices"
        raise InputError(f"this machine has {count}, but {devices} are asked for")
    if kind == "mps" and precision != "32-true":
        raise InputError(
            f'MPS devices compute in single precision: use `precision="32-true"`, not {precision!r}'
        )


def choose_device(accelerator: Accelerator, precision: Precision = "32-true") -> torch.device:
    """Return the device of a program of one process, the one that Fabric would choose."""
    check_devices(accelerator, 1, precision)
    kind = kind_of(accelerator)
    return torch.device("cpu") if kind == "cpu" else torch.device(kind, 0)
