"""Joins the graph of an encoder and a head into one graph in ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ucds.choices import Pooling
from ucds.encoders.encoder import Encoder, FunctionEncoder, ViewpointEncoder
from ucds.errors import InputError
from ucds.heads import Head
from ucds.training.model_file import StoredModel

_OPSET = 17  # of graphs without an encoder's own
_PREFIX = "encoder/"  # of all names of an encoder's graph


def join(stored: StoredModel, taken: str, outputs: list[str]) -> Any:
    """Make an ONNX model of an encoder and a head.

    Args:
        stored: model.
        taken: name of the input.
        outputs: names of the outputs: "probabilities", "features" and, for images, "embeddings".

    Raises:
        InputError: the encoder is not a graph.
    """
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
        """Add a node with names or constants as inputs, and return the name of its output."""
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
    """Add the layers above the encoder's features, given by their name."""
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
    """Return the graph of an encoder of images, with the given name for its input."""
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
    """Add the pooling of an encoder's tokens or maps into "embeddings", and return this name."""
    if pooling == "class":
        return part.add("Gather", features, np.array(0), out="embeddings", axis=1)
    if pooling == "mean":
        if tokens:
            features = part.add("Transpose", features, out="by_feature", perm=[0, 2, 1])
        features = part.add("GlobalAveragePool", features, out="mean")
    return part.add("Flatten", features, out="embeddings", axis=1)
