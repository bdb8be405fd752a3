"""Writes networks as graphs in ONNX, and runs such graphs on the processor."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ucds.errors import InputError

Outputs = tuple[NDArray[np.float32], ...]


def require_onnx() -> None:
    """Make sure that the packages for ONNX are installed.

    Raises:
        InputError: one of them is missing.
    """
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise InputError("ONNX needs further packages: pip install 'ucds[export]'") from None


def write_onnx(
    module: nn.Module,
    example: Tensor,
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """Return the contents of an ONNX file of a network that takes any number of samples.

    Exporters raise nearly any error over an operation that they do not know.

    Args:
        module: network in evaluation mode, on the CPU.
        example: batch of at least two inputs ``(n, ...)``.
        inputs: names of the inputs; the exporter's choice if ``None``.
        outputs: names of the outputs, likewise.
        metadata: texts that the file holds besides, by name; none if ``None``.

    Raises:
        InputError: a package is not installed.
    """
    require_onnx()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    program = torch.onnx.export(
        module,
        (example,),
        input_names=inputs,
        output_names=outputs,
        dynamic_shapes=({0: torch.export.Dim("n", min=1)},),
        verbose=False,
    )
    assert program is not None
    program.model.metadata_props.update(metadata or {})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        program.save(path, external_data=False)
        return path.read_bytes()


def open_onnx(content: bytes) -> Callable[[Tensor], Outputs]:
    """Return a function from a batch of inputs to the outputs of an ONNX graph.

    It computes on the processor, with as many threads as PyTorch has now.

    Args:
        content: contents of an ONNX file with one input.

    Raises:
        InputError: a package is not installed.
    """
    require_onnx()
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    (entry,) = session.get_inputs()
    return lambda batch: tuple(session.run(None, {entry.name: batch.numpy()}))
