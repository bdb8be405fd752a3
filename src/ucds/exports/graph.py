"""Writes a model as a graph of operations, in ONNX or TorchScript, and compares it with the model itself."""

from __future__ import annotations

import copy
import io
import json
import logging
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ucds.errors import InputError, one_line
from ucds.exports.describe import Description
from ucds.models import ClusteringModel

GraphFormat = Literal["onnx", "torchscript"]
LARGEST_DIFFERENCE = 1e-4
"""Bound on the difference between a probability of an exported model and that of the model itself."""

_BOUNDS = (1, 8, 24, 40, 56)
"""Samples at which a new batch begins: batches of several lengths, as none may be fixed in the graph."""

Outputs = tuple[NDArray[np.float32], ...]


class ExportedModel(nn.Module):
    """Computes what an exported model gives: probabilities, features and, for images, embeddings."""

    def __init__(self, model: ClusteringModel) -> None:
        super().__init__()
        copied = copy.deepcopy(model)
        self.backbone, self.head = copied.encoder.backbone, copied.head()
        self.of_images = model.spec.input_size is not None
        self.eval().requires_grad_(False)

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """Compute probabilities ``(n, K)``, features ``(n, d_f)`` and, of images, embeddings ``(n, d)``."""
        embeddings = self.backbone(inputs)
        features, logits = self.head(embeddings)
        found = logits.softmax(-1), features
        return (*found, embeddings) if self.of_images else found


def write_graph(
    model: ClusteringModel, description: Description, example: Tensor, form: GraphFormat
) -> bytes:
    """Return the contents of a file of the exported model, with its description as metadata.

    Args:
        model: model on the CPU, in evaluation mode.
        description: description of the model; names of the input and of the outputs.
        example: batch of at least two inputs.
        form: format of the file.

    Raises:
        InputError: the encoder cannot be written in this format, or a package is not installed.
    """
    exported = ExportedModel(model)
    write = _onnx if form == "onnx" else _torchscript
    try:
        with torch.no_grad(), warnings.catch_warnings(action="ignore"):
            return write(exported, description, example)
    except InputError:
        raise
    except Exception as error:  # exporters raise nearly anything over an operation that they do not know
        reason = f"the encoder {model.spec.name!r} cannot be written as {form}: {one_line(error)}"
        raise InputError(reason) from error


def _onnx(exported: ExportedModel, description: Description, example: Tensor) -> bytes:
    _require_onnx()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    program = torch.onnx.export(
        exported,
        (example,),
        input_names=list(description.input),
        output_names=list(description.outputs),
        dynamic_shapes=({0: torch.export.Dim("n", min=1)},),
        verbose=False,
    )
    assert program is not None
    program.model.metadata_props["ucds"] = json.dumps(asdict(description))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        program.save(path, external_data=False)
        return path.read_bytes()


def _torchscript(exported: ExportedModel, description: Description, example: Tensor) -> bytes:
    traced: Any = torch.jit.trace(  # type: ignore[no-untyped-call]
        exported, (example,), check_trace=False
    )
    file = io.BytesIO()
    torch.jit.save(traced, file, _extra_files={"ucds.json": json.dumps(asdict(description))})
    return file.getvalue()


def largest_difference(
    model: ClusteringModel, content: bytes, inputs: Tensor, form: GraphFormat
) -> tuple[float, ...]:
    """Compare the outputs of an exported model with those of the model itself.

    Args:
        model: model on the CPU, in evaluation mode.
        content: contents of the exported file.
        inputs: inputs ``(n, ...)`` to compare on.
        form: format of the file.

    Returns:
        Largest absolute difference of each output.
    """
    run = _onnx_runner(content) if form == "onnx" else _torchscript_runner(content)
    exported = ExportedModel(model)
    differences = []
    for batch in inputs.tensor_split(_BOUNDS):
        if len(batch):
            with torch.no_grad():
                expected = [output.numpy() for output in exported(batch)]
            found = zip(run(batch), expected, strict=True)
            differences.append([float(np.abs(given - wanted).max()) for given, wanted in found])
    return tuple(np.max(differences, axis=0).tolist())


def _onnx_runner(content: bytes) -> Callable[[Tensor], Outputs]:
    _require_onnx()
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (entry,) = session.get_inputs()
    return lambda batch: tuple(session.run(None, {entry.name: batch.numpy()}))


def _torchscript_runner(content: bytes) -> Callable[[Tensor], Outputs]:
    with warnings.catch_warnings(action="ignore"):
        loaded: Any = torch.jit.load(io.BytesIO(content))  # type: ignore[no-untyped-call]

    def run(batch: Tensor) -> Outputs:
        with torch.no_grad():
            return tuple(output.numpy() for output in loaded(batch))

    return run


def _require_onnx() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise InputError("ONNX needs further packages: pip install 'ucds[export]'") from None
