"""Describes a model, writes it as a graph in ONNX with its description, and compares it with the model."""

from __future__ import annotations

import copy
import json
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ucds.data.dataset import ImageView
from ucds.errors import InputError, one_line
from ucds.networks.model import ClusteringModel
from ucds.training.encoding import run_onnx, write_onnx
from ucds.training.inputs import stored_size, view_for
from ucds.training.model_file import StoredModel

LARGEST_DIFFERENCE = 1e-4
"""Bound on the difference between a probability of an exported model and that of the model itself."""

_BOUNDS = (1, 8, 24, 40, 56)
"""Samples at which a new batch begins: batches of several lengths, as none may be fixed in the graph."""


def describe(stored: StoredModel) -> dict[str, Any]:
    """Describe a model for those who run it without this package, as JSON types.

    The description stands in the file beside an exported model and in the metadata of a graph. ``input`` and
    ``outputs`` are shapes by name, with "n" for any number of samples. ``transform`` is the way from an image
    file to the input, as ``docs/inputs.md`` and ``examples/onnx_model.py`` say it: RGB of 8 bits, resize to a
    square, turn upright, cut out the centre, scale to 0 .. 1, subtract the mean, divide by the standard
    deviation; ``None`` for embeddings.
    """
    card, spec = stored.card, stored.card.backbone
    view, transform = view_for(spec), None
    outputs = {"probabilities": ["n", card.n_clusters], "features": ["n", card.bottleneck_width]}
    taken: dict[str, list[str | int]] = {"embeddings": ["n", spec.takes]}
    if isinstance(view, ImageView):
        taken = {"images": ["n", *view.input_shape]}
        outputs["embeddings"] = ["n", spec.width]
        side = stored_size(spec)
        transform = {
            "colours": "RGB of 8 bits, transparency on white, turned upright by EXIF",
            "grey": {"12 bits": [0, 4095], "16 bits": [0, 65535], "signed, 32 bits or float": "own range"},
            "resize": [side, side],
            "interpolation": "bilinear with antialiasing, the aspect ratio is not kept",
            "crop": [view.crop, view.crop],
            "offset": [(side - view.crop) // 2] * 2,
            "divide_by": 255,
            "mean": list(view.mean),
            "std": list(view.std),
            "layout": "float32, (n, 3, height, width)",
        }
    return {
        "format": "ucds-export/1",
        "model": card.name,
        "fingerprint": stored.fingerprint,
        "role": card.role,
        "n_clusters": card.n_clusters,
        "encoder": spec.name,
        "input": taken,
        "outputs": outputs,
        "transform": transform,
        "made_with": {name: version(name) for name in ("ucds", "torch")},
    }


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
    model: ClusteringModel, description: dict[str, Any], inputs: Tensor
) -> tuple[bytes, dict[str, float]]:
    """Write the exported model as an ONNX file, with its description as metadata, and compare the two.

    Args:
        model: model on the CPU, in evaluation mode.
        description: result of :func:`describe`.
        inputs: inputs ``(64, ...)`` to compare on.

    Returns:
        Contents of the file; largest absolute difference of each output, by name.

    Raises:
        InputError: the encoder cannot be written as a graph, or the graph gives other probabilities.
    """
    (name,), outputs = description["input"], list(description["outputs"])
    exported, batches = ExportedModel(model), inputs.tensor_split(_BOUNDS)
    with torch.no_grad():
        expected = [exported(batch) for batch in batches]
    try:
        described = {"ucds": json.dumps(description)}
        content = write_onnx(exported, inputs[:2], input_name=name, outputs=outputs, metadata=described)
    except Exception as error:  # exporters raise nearly anything over an operation that they do not know
        reason = f"the encoder {model.spec.name!r} cannot be written in ONNX: {one_line(error)}"
        raise InputError(reason) from error
    computed = [run_onnx(content, batch.numpy()) for batch in batches]
    differences = [
        [np.abs(given - own.numpy()).max() for given, own in zip(found, wanted, strict=True)]
        for found, wanted in zip(computed, expected, strict=True)
    ]
    largest = dict(zip(outputs, np.max(differences, axis=0).tolist(), strict=True))
    if not (found := largest["probabilities"]) <= LARGEST_DIFFERENCE:
        raise InputError(
            f"the exported model gives probabilities that differ by {found:.2g} from the model's, "
            f"and {LARGEST_DIFFERENCE:g} is allowed: it is not written"
        )
    return content, largest
