"""Describes a model, writes it as a graph in ONNX with its description, and compares it with the model."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ucds.choices import Pooling
from ucds.data.dataset import ImageView
from ucds.encoders.encoder import Encoder, FunctionEncoder, ViewpointEncoder
from ucds.errors import InputError, UserError, one_line
from ucds.heads import Head
from ucds.math.arrays import FloatArray
from ucds.training.inputs import view_for
from ucds.training.model_file import StoredModel

LARGEST_DIFFERENCE = 1e-4
"""Largest allowed difference between a probability of an exported model and of the model itself."""

_OPSET = 17  # of graphs without an encoder's own
_PREFIX = "encoder/"  # of all names of an encoder's graph
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
    """Write a model as an ONNX file, with its description as metadata, and compare the two on 64 inputs.

    The graph is that of the encoder with the head on top, or the head alone. The contents of the file are
    returned with the largest absolute difference of each output, by name.
    """
    (name,) = description["input"]
    try:
        model = _join(stored, name, list(description["outputs"]))
        model.metadata_props.add(key="ucds", value=json.dumps(description))
        content: bytes = model.SerializeToString()
        largest = _compare(content, stored, inputs, list(description["outputs"]))
    except UserError:
        raise
    except Exception as error:  # whatever a graph of others may lead to, such as one for a single image
        reason = f"{stored.card.encoder.called} cannot be written in ONNX: {one_line(error)}"
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


def _join(stored: StoredModel, taken: str, outputs: list[str]) -> Any:
    """Make an ONNX model of an encoder and a head, with the names of its input and its outputs."""
    from onnx import TensorProto, helper

    card = stored.card
    widths = {
        "probabilities": card.n_clusters,
        "features": card.bottleneck_width,
        "embeddings": card.encoder.width,
    }
    named = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", widths[name]]) for name in outputs]
    part = _Part()
    if card.encoder.input_size is None:
        given = helper.make_tensor_value_info(taken, TensorProto.FLOAT, ["n", card.encoder.takes])
        _add_head(part, stored.head, _see(part, stored.encoder, taken))
        graph = helper.make_graph(part.nodes, "ucds", [given], named, part.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)
    model = _graph_of(stored.encoder, taken)
    wanted = card.encoder.output
    (found,) = (one for one in model.graph.output if wanted is None or one.name == f"{_PREFIX}{wanted}")
    tokens = len(found.type.tensor_type.shape.dim) == 3
    _add_head(part, stored.head, _pool(part, found.name, card.encoder.pooling, tokens=tokens))
    graph = model.graph
    graph.node.extend(part.nodes)
    graph.initializer.extend(part.constants)
    del graph.output[:]
    graph.output.extend(named)
    return model


class _Part:
    """Nodes and constants of a part of a graph."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, *inputs: str | NDArray[Any], out: str, **attributes: Any) -> str:
        """Add a node, whose inputs are names or constants, and return the name of its output."""
        from onnx import helper, numpy_helper

        names: list[str] = []
        for value in inputs:
            if not isinstance(value, str):
                self.constants.append(numpy_helper.from_array(np.asarray(value), f"{out}/{len(names)}"))
                value = f"{out}/{len(names)}"
            names.append(value)
        self.nodes.append(helper.make_node(operator, names, [out], name=f"{out}/node", **attributes))
        return out


def _add_head(part: _Part, head: Head, below: str) -> None:
    """Add the layers above the encoder's features, which have a name."""
    if head.unit_features:
        below = part.add("LpNormalization", below, out="directions", axis=1, p=2)
    features = part.add("Gemm", below, head.weight, head.bias, out="features", transB=1)
    logits = part.add("MatMul", features, head.prototypes, out="logits")
    part.add("Softmax", logits, out="probabilities", axis=1)


def _see(part: _Part, encoder: Encoder, taken: str) -> str:
    """Add an encoder of vectors, and return the name of its features."""
    from onnx import TensorProto

    if isinstance(encoder, FunctionEncoder):
        raise InputError("the encoder is a function of your own, which cannot be written in ONNX")
    if not isinstance(encoder, ViewpointEncoder):
        return taken
    wide = part.add("Cast", taken, out="wide", to=TensorProto.DOUBLE)
    apart = part.add("Sub", wide, encoder.point[:-1], out="apart")
    squares = part.add("Mul", apart, apart, out="squares")
    total = part.add("ReduceSum", squares, np.array([1]), out="total", keepdims=1)
    lengths = part.add("Sqrt", part.add("Add", total, encoder.point[-1:] ** 2, out="sum"), out="lengths")
    seen = part.add("Div", apart, lengths, out="seen")
    last = part.add("Div", -encoder.point[-1:], lengths, out="last")
    whole = part.add("Concat", seen, last, out="whole", axis=1)
    return part.add("Cast", whole, out="directions_seen", to=TensorProto.FLOAT)


def _graph_of(encoder: Encoder, taken: str) -> Any:
    """Return the graph of an encoder of images, whose input gets a name."""
    import onnx

    model = onnx.compose.add_prefix(onnx.load_model_from_string(encoder.as_graph().content), _PREFIX)
    constants = {one.name for one in model.graph.initializer}
    (given,) = (one for one in model.graph.input if one.name not in constants)
    given.type.tensor_type.shape.dim[0].dim_param = "n"  # a graph for one image may take any number
    before, given.name = given.name, taken
    for node in model.graph.node:
        node.input[:] = [taken if name == before else name for name in node.input]
    return model


def _pool(part: _Part, features: str, pooling: Pooling | None, *, tokens: bool) -> str:
    """Add the way from an encoder's output, of tokens or maps, to "embeddings", and return this name."""
    if pooling == "class":
        return part.add("Gather", features, np.array(0), out="embeddings", axis=1)
    if pooling == "mean":
        if tokens:
            features = part.add("Transpose", features, out="by_feature", perm=[0, 2, 1])
        features = part.add("GlobalAveragePool", features, out="mean")
    return part.add("Flatten", features, out="embeddings", axis=1)
