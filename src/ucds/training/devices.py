"""Devices of this machine, and libraries that compute on them.

What only predicts takes a device from here, without loading Fabric.
"""

from __future__ import annotations

import torch

from ucds.backbones.spec import IDENTITY, BackboneSpec
from ucds.choices import Accelerator, EncoderRuntime, Tune, require_choice
from ucds.errors import InputError
from ucds.training.onnx_graph import require_onnx


def check_devices(accelerator: Accelerator, devices: int) -> None:
    """Make sure that the machine has devices.

    Args:
        accelerator: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        devices: number of devices.

    Raises:
        InputError: there is no such accelerator, or there are fewer devices.
    """
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

    Args:
        accelerator: ``"auto"``, ``"cpu"`` or ``"cuda"``.

    Raises:
        InputError: there is no such accelerator.
    """
    check_devices(accelerator, 1)
    if accelerator == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda", 0)
    return torch.device("mps", 0) if torch.backends.mps.is_available() else torch.device("cpu")


def require_runtime(runtime: EncoderRuntime, accelerator: Accelerator, tune: Tune = "head") -> None:
    """Make sure, before any work, that a library can compute the features of an encoder.

    Args:
        runtime: library that computes.
        accelerator: device to compute on.
        tune: part of the model that is trained.

    Raises:
        InputError: there is no such library; or ONNX Runtime is asked for, and the encoder is trained, the
            device is not the processor, or a package is not installed.
    """
    require_choice("encoder_runtime", runtime, EncoderRuntime)
    if runtime == "torch":
        return
    if tune == "full":
        raise InputError(
            f"--encoder-runtime {runtime} is for frozen encoders (--tune head), and this one is trained: "
            "leave it out"
        )
    if (device := choose_device(accelerator)).type != "cpu":
        raise InputError(
            f"--encoder-runtime {runtime} computes on the processor, not on {device.type}: give "
            "--accelerator cpu as well, or leave it out"
        )
    require_onnx()


def refuse_embeddings(runtime: EncoderRuntime, spec: BackboneSpec) -> None:
    """Make sure that there is an encoder to compute, if a library is chosen for it.

    Args:
        runtime: library that computes features.
        spec: description of the encoder.

    Raises:
        InputError: ONNX Runtime is asked for, and the samples are embeddings.
    """
    if runtime != "torch" and spec.name == IDENTITY:
        raise InputError("--encoder-runtime is for images, not for embeddings: leave it out")
