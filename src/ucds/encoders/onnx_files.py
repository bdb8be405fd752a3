"""Reads what an ONNX file says of itself, without the package onnx: a few fields of its protobuf messages.

The numbers of fields are those of ``onnx.proto``, which never change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ucds.errors import InputError
from ucds.math.arrays import FloatArray

STANDARD = ("", "ai.onnx")
"""Domains of the operators of the ONNX standard."""

_UNBOUNDED = frozenset({"Loop", "Scan"})  # they may never end
_FLOAT = 1  # type of numbers: single precision
_MOST_FIELDS, _MOST_NODES, _DEEPEST = 10**6, 50_000, 8
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SPARSE = "it holds sparse tensors, whose size the file's does not bound"
_Dimension = int | None


@dataclass(frozen=True)
class Value:
    """An input or an output of a graph.

    Attributes:
        name: its name.
        kind: ONNX's number of the type of its entries; 0 unless it is a tensor.
        shape: its dimensions, ``None`` where the graph leaves one open; ``None`` as a whole without a shape.
    """

    name: str
    kind: int
    shape: tuple[_Dimension, ...] | None


@dataclass(frozen=True)
class GraphFacts:
    """What a graph of images takes and returns.

    Attributes:
        image: its input: images ``(n, 3, height, width)``.
        outputs: its outputs.
        nodes: number of its operations, at least 1.
    """

    image: Value
    outputs: tuple[Value, ...]
    nodes: int


@dataclass
class _Graph:
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    weights: set[str] = field(default_factory=set)
    nodes: int = 0


def read_graph(content: bytes) -> GraphFacts:
    """Read what a graph takes and returns; errors do not name the file.

    Raises:
        InputError: it is no ONNX graph, has an operator that is not allowed, or does not take images alone.
    """
    graphs = list[memoryview]()
    try:
        for number, value in _fields(memoryview(content)):
            if number == 7 and isinstance(value, memoryview):
                graphs.append(value)
            if number == 25:
                raise InputError("it defines operators of its own")
        if len(graphs) != 1:
            raise InputError("it is not an ONNX file")
        graph = _read_graph(graphs[0], _Graph(), 0)
    except (IndexError, UnicodeDecodeError):
        raise InputError("it is not an ONNX file, or is damaged") from None
    inputs = [one for one in graph.inputs if one.name not in graph.weights]
    return GraphFacts(_require_image(inputs), tuple(graph.outputs), max(1, graph.nodes))


def read_last_weights(content: bytes, width: int) -> FloatArray | None:
    """Read the weights of a graph's last layer that has ``width`` outputs, as ``(width, inputs)``.

    The layers are convolutions and products with matrices whose weights are in single precision; ``None`` if
    the graph has no such layer.
    """
    (graph,) = (value for number, value in _fields(memoryview(content)) if number == 7)
    parts = [(number, value) for number, value in _messages(graph)]
    weights = {_require_inside(value): value for number, value in parts if number == 5}
    for number, node in reversed(parts):
        operator, taken, transposed = "", list[str](), False
        for part, value in _messages(node) if number == 1 else ():
            if part == 1:
                taken.append(_text(value))
            elif part == 4:
                operator = _text(value)
            elif part == 5:
                about = dict(_fields(value))
                transposed |= _text(about.get(1)) == "transB" and about.get(3) == 1
        if operator not in ("Conv", "Gemm", "MatMul") or len(taken) < 2 or taken[1] not in weights:
            continue
        found = _numbers(weights[taken[1]])
        if found is not None and found.ndim > 1:
            rows = found.reshape(len(found), -1) if operator == "Conv" or transposed else found.T
            if len(rows) == width:
                return rows
    return None


def _numbers(tensor: memoryview) -> FloatArray | None:
    """Read a tensor in single precision; ``None`` for another one."""
    shape, kind, data = list[int](), 0, memoryview(b"")
    for number, value in _fields(tensor):
        if isinstance(value, int):
            kind = value if number == 2 else kind
            shape += [value] if number == 1 else []
        elif number == 1:  # packed
            place = 0
            while place < len(value):
                length, place = _varint(value, place)
                shape.append(length)
        elif number in (4, 9):
            data = value
    if kind != _FLOAT or len(data) != 4 * math.prod(shape):
        return None
    return np.frombuffer(data, "<f4").reshape(shape)


def _require_image(inputs: list[Value]) -> Value:
    """Return the only input, if it is a batch of images."""
    listed = ", ".join(one.name for one in inputs[:5]) or "none"
    if len(inputs) != 1:
        raise InputError(f"it must take images alone, and its inputs are: {listed}")
    image, shape = inputs[0], inputs[0].shape
    batch, channels, height, width = shape if shape and len(shape) == 4 else (None, 0, None, None)
    if image.kind != _FLOAT or channels not in (3, None):
        raise InputError(f"its input {image.name!r} is not a batch (n, 3, height, width) of float32")
    if batch not in (1, None):
        raise InputError(f"it takes {batch} images at a time: export it for any number of images, or for 1")
    if height != width and None not in (height, width):
        raise InputError(f"it takes images of {width} x {height} pixels, and images here are squares")
    return image


def _read_graph(data: memoryview, graph: _Graph, depth: int) -> _Graph:
    """Add the contents of a graph message, and of the graphs inside it, to what was read before."""
    if depth > _DEEPEST:
        raise InputError("its graphs lie too deep inside each other")
    for number, value in _messages(data):
        if number == 15:
            raise InputError(_SPARSE)
        if number == 1:
            _read_node(value, graph, depth)
        elif number == 5:
            graph.weights.add(_require_inside(value))
        elif number == 11 and depth == 0:
            graph.inputs.append(_read_value(value))
        elif number == 12 and depth == 0:
            graph.outputs.append(_read_value(value))
    return graph


def _read_node(data: memoryview, graph: _Graph, depth: int) -> None:
    """Check the operator of a node, and the tensors and graphs in its attributes."""
    graph.nodes += 1
    if graph.nodes > _MOST_NODES:
        raise InputError(f"it has over {_MOST_NODES:,} operations")
    operator = domain = ""
    for number, value in _messages(data):
        if number == 4:
            operator = _text(value)
        elif number == 7:
            domain = _text(value)
        elif number == 5:
            for part, inner in _messages(value):
                if part in (22, 23):
                    raise InputError(_SPARSE)
                if part in (5, 10):
                    _require_inside(inner)
                elif part in (6, 11):
                    _read_graph(inner, graph, depth + 1)
    if domain not in STANDARD:
        raise InputError(f"its operator {domain}.{operator} is not one of the ONNX standard")
    if operator in _UNBOUNDED:
        raise InputError(f"its operator {operator} may never end")


def _require_inside(tensor: memoryview) -> str:
    """Return the name of a tensor whose numbers lie in the file itself."""
    name = ""
    for number, value in _fields(tensor):
        if number == 8 and isinstance(value, memoryview):
            name = _text(value)
        elif number == 13 or (number == 14 and value):
            raise InputError("its weights lie in other files: save it as one file")
    return name


def _read_value(data: memoryview) -> Value:
    """Read the name, type and shape of an input or an output."""
    name, kind, shape = "", 0, None
    for number, value in _messages(data):
        if number == 1:
            name = _text(value)
        for part, tensor in _messages(value) if number == 2 else ():
            for detail, inner in _fields(tensor) if part == 1 else ():
                if detail == 1 and isinstance(inner, int):
                    kind = inner
                elif detail == 2 and isinstance(inner, memoryview):
                    shape = tuple(_dimension(one) for _, one in _messages(inner))
    return Value(name, kind, shape)


def _dimension(data: memoryview) -> _Dimension:
    """Return the length of an axis, ``None`` where the graph leaves it open or below 1."""
    length = dict(_fields(data)).get(1)
    return length if isinstance(length, int) and 0 < length < 2**31 else None


def _text(value: int | memoryview | None) -> str:
    """Return the start of a text; the text of what is none is empty."""
    return bytes(value[:1000]).decode() if isinstance(value, memoryview) else ""


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Go through the fields of a message: their numbers, with the number or the bytes that each one holds."""
    place = count = 0
    while place < len(data):
        count += 1
        if count > _MOST_FIELDS:
            raise InputError(f"it has over {_MOST_FIELDS:,} fields in one message")
        key, place = _varint(data, place)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, place = _varint(data, place)
            yield number, value
            continue
        if kind == _BYTES:
            length, place = _varint(data, place)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise IndexError("a kind of field that protobuf does not have")
        if place + length > len(data):
            raise IndexError("the message ends within a field")
        yield number, data[place : place + length]
        place += length


def _messages(data: int | memoryview) -> Iterator[tuple[int, memoryview]]:
    """Go through those fields of a message that hold bytes."""
    for number, value in _fields(data) if isinstance(data, memoryview) else ():
        if isinstance(value, memoryview):
            yield number, value


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    """Read a number of up to ten bytes; return it, and where the next one starts."""
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
        if shift > 63:
            raise IndexError("a number of more than ten bytes")
