"""Writes networks as graphs in ONNX, and runs such graphs on the processor."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Outputs = tuple[NDArray[np.float32], ...]


def write_onnx(
    module: nn.Module,
    example: Tensor,
    *,
    input_name: str = "inputs",
    outputs: Sequence[str] = ("features",),
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """Return the contents of an ONNX file of a network that takes any number of samples.

    PyTorch has two exporters. The one that traces takes a tenth of the time of the other one, which knows
    more operations and is asked where the first one fails. Both raise nearly any error over an operation
    that they do not know, and a graph has to be compared with its network.

    Args:
        module: network in evaluation mode, on the CPU.
        example: batch of at least two inputs ``(n, ...)``.
        input_name: name of the input.
        outputs: names of the outputs.
        metadata: texts that the file holds besides, by name; none if ``None``.
    """
    import onnx  # it takes a second, which a command with a known graph need not wait for

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    named: dict[str, Any] = {"input_names": [input_name], "output_names": list(outputs)}
    content = io.BytesIO()
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        try:
            axes = {name: {0: "n"} for name in (input_name, *outputs)}
            traced: dict[str, Any] = {
                "f": content,
                "dynamo": False,
                "dynamic_axes": axes,
            }  # stubs know no file in memory
            torch.onnx.export(module, (example,), **traced, **named)
            model = onnx.load_model_from_string(content.getvalue())
        except Exception:  # of an operation that this exporter does not know
            shapes = ({0: torch.export.Dim("n", min=1)},)
            program = torch.onnx.export(module, (example,), dynamic_shapes=shapes, verbose=False, **named)
            assert program is not None
            model = program.model_proto
    for name, text in (metadata or {}).items():
        model.metadata_props.add(key=name, value=text)
    written: bytes = model.SerializeToString()
    return written


def open_onnx(content: bytes) -> Callable[[Tensor], Outputs]:
    """Return a function from a batch of inputs to the outputs of an ONNX graph.

    It computes on the processor, with as many threads as PyTorch has now.

    Args:
        content: contents of an ONNX file with one input.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    (entry,) = session.get_inputs()
    return lambda batch: tuple(session.run(None, {entry.name: batch.numpy()}))
