"""Describes a model, writes it as a graph in ONNX with its description, and compares it with the model."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

import numpy as np

from ucds.data.dataset import ImageView
from ucds.errors import InputError, UserError, one_line
from ucds.exports.joined import join
from ucds.math.arrays import FloatArray
from ucds.training.inputs import view_for
from ucds.training.model_file import StoredModel

LARGEST_DIFFERENCE = 1e-4
"""Largest allowed difference between a probability of an exported model and of the model itself."""

_BOUNDS = (1, 8, 24, 40, 56)
"""Positions where a new batch begins: batches have several lengths, because the graph may fix none."""


def describe(stored: StoredModel, *packages: str) -> dict[str, Any]:
    """Describe a model, as JSON types, for people who run it without this package.

    The description goes into the file beside an exported model, and into the metadata of a graph. ``input``
    and ``outputs`` are shapes by name, with "n" for any number of samples. ``transform`` lists the steps from
    an image file to the input, as in ``docs/inputs.md`` and ``examples/onnx_model.py``: RGB of 8 bits, resize
    to a square, turn upright, cut out the centre, scale to 0 .. 1, subtract the mean, divide by the standard
    deviation; ``None`` for embeddings. It names the versions of the ``packages`` that made the file.
    """
    card, spec = stored.card, stored.card.encoder
    view, transform = view_for(spec), None
    outputs = {"probabilities": ["n", card.n_clusters], "features": ["n", card.bottleneck_width]}
    taken: dict[str, list[str | int]] = {"embeddings": ["n", spec.takes]}
    if isinstance(view, ImageView):
        taken = {"images": ["n", *view.input_shape]}
        outputs["embeddings"] = ["n", spec.width]
        side = spec.stored_size
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
        "made_with": {name: version(name) for name in packages},
    }


def write_graph(
    stored: StoredModel, description: dict[str, Any], inputs: FloatArray
) -> tuple[bytes, dict[str, float]]:
    """Write a model as an ONNX file, with its description as metadata, and compare the two.

    The graph is that of the encoder with the head on top, or the head alone.

    Args:
        stored: model.
        description: result of :func:`describe`.
        inputs: inputs ``(64, ...)`` to compare on.

    Returns:
        Contents of the file; largest absolute difference of each output, by name.

    Raises:
        InputError: the encoder cannot be written as a graph, or the graph's probabilities differ.
    """
    (name,) = description["input"]
    try:
        model = join(stored, name, list(description["outputs"]))
        model.metadata_props.add(key="ucds", value=json.dumps(description))
        content: bytes = model.SerializeToString()
        largest = _compare(content, stored, inputs, list(description["outputs"]))
    except UserError:
        raise
    except Exception as error:  # whatever a graph of others may lead to, such as one for a single image
        reason = f"the encoder {stored.card.encoder.name!r} cannot be written in ONNX: {one_line(error)}"
        raise InputError(reason) from error
    if not (found := largest["probabilities"]) <= LARGEST_DIFFERENCE:
        raise InputError(
            f"the exported model gives probabilities that differ by {found:.2g} from the model's, "
            f"but only {LARGEST_DIFFERENCE:g} is allowed: it is not written"
        )
    return content, largest


def _compare(content: bytes, stored: StoredModel, inputs: FloatArray, outputs: list[str]) -> dict[str, float]:
    """Compute the largest absolute difference of each output of a graph from the model's own, by name."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what it would print becomes an error
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    taken, largest = session.get_inputs()[0].name, dict.fromkeys(outputs, 0.0)
    for batch in np.split(inputs, _BOUNDS):
        embeddings = stored.encoder(batch)
        features = stored.head.features(embeddings)
        own = {
            "probabilities": stored.head.probabilities(features),
            "features": features,
            "embeddings": embeddings,
        }
        for name, found in zip(outputs, session.run(outputs, {taken: batch}), strict=True):
            largest[name] = max(largest[name], float(np.abs(found - own[name]).max()))
    return largest
