"""Writes a model as a graph in ONNX, and compares it with the model itself."""

from __future__ import annotations

import copy
import json
from dataclasses import asdict

import numpy as np
import torch
from torch import Tensor, nn

from ucds.errors import InputError, one_line
from ucds.exports.describe import Description
from ucds.models import ClusteringModel
from ucds.training.onnx_graph import open_onnx, write_onnx

LARGEST_DIFFERENCE = 1e-4
"""Bound on the difference between a probability of an exported model and that of the model itself."""

_BOUNDS = (1, 8, 24, 40, 56)
"""Samples at which a new batch begins: batches of several lengths, as none may be fixed in the graph."""


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


def write_graph(model: ClusteringModel, description: Description, example: Tensor) -> bytes:
    """Return the contents of an ONNX file of the exported model, with its description as metadata.

    Args:
        model: model on the CPU, in evaluation mode.
        description: description of the model; names of the input and of the outputs.
        example: batch of at least two inputs.

    Raises:
        InputError: the encoder cannot be written as a graph.
    """
    (name,), outputs = description.input, list(description.outputs)
    described = {"ucds": json.dumps(asdict(description))}
    try:
        return write_onnx(ExportedModel(model), example, input_name=name, outputs=outputs, metadata=described)
    except Exception as error:  # exporters raise nearly anything over an operation that they do not know
        reason = f"the encoder {model.spec.name!r} cannot be written in ONNX: {one_line(error)}"
        raise InputError(reason) from error


def largest_difference(model: ClusteringModel, content: bytes, inputs: Tensor) -> tuple[float, ...]:
    """Compare the outputs of an exported model with those of the model itself.

    Args:
        model: model on the CPU, in evaluation mode.
        content: contents of the exported file.
        inputs: inputs ``(n, ...)`` to compare on.

    Returns:
        Largest absolute difference of each output.
    """
    run, exported = open_onnx(content), ExportedModel(model)
    differences = []
    for batch in inputs.tensor_split(_BOUNDS):
        if len(batch):
            with torch.no_grad():
                expected = [output.numpy() for output in exported(batch)]
            found = zip(run(batch), expected, strict=True)
            differences.append([float(np.abs(given - wanted).max()) for given, wanted in found])
    return tuple(np.max(differences, axis=0).tolist())
