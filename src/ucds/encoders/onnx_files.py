"""Reads the description in an ONNX file (a few fields of its protobuf messages) without the package onnx.

The numbers of fields are those of ``onnx.proto``, which never change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ucds.errors import InputError
from ucds.math.arrays import FloatArray

_STANDARD = ("", "ai.onnx")  # domains of the operators of the ONNX standard
_UNBOUNDED = frozenset({"Loop", "Scan"})  # they may never end
_FLOAT = 1  # type of numbers: single precision
_MOST_FIELDS, _MOST_NODES, _MOST_AXES, _DEEPEST = 300_000, 50_000, 64, 8
_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}  # bytes of the other kinds of fields
_SPARSE = "it holds sparse tensors, whose size the file size does not bound"


@dataclass(frozen=True)
class Value:
    """An input or an output of a graph."""

    name: str
    kind: int  # ONNX's number of the type of its entries; 0 unless it is a tensor
    shape: tuple[int | None, ...] | None  # None in it where the graph leaves a dimension open


@dataclass(frozen=True)
class GraphFacts:
    """Inputs and outputs of a graph of images."""

    image: Value  # input (n, 3, height, width)
    outputs: tuple[Value, ...]
    nodes: int  # number of its operations, at least 1


class _Message:
    """A protobuf message: for each field its values, numbers or bytes, in order."""

    def __init__(self, data: memoryview) -> None:
        self._values: dict[int, list[int | memoryview]] = {}
        place = count = 0
        while place < len(data):
            count += 1
            if count > _MOST_FIELDS:
                raise InputError(f"it has over {_MOST_FIELDS:,} fields in one message")
            key, place = _varint(data, place)
            number, kind = key >> 3, key & 7
            value: int | memoryview
            if kind == _VARINT:
                value, place = _varint(data, place)
            else:
                if kind == _BYTES:
                    length, place = _varint(data, place)
                else:
                    length = _FIXED.get(kind, len(data))  # there is no other kind
                value = data[place : place + length]
                place += length
            if place > len(data):
                raise IndexError("the message ends within a field")
            self._values.setdefault(number, []).append(value)

    def __contains__(self, number: int) -> bool:
        return number in self._values

    def parts(self, *numbers: int) -> list[memoryview]:
        """Return those values of some fields that are bytes."""
        values = [value for number in numbers for value in self._values.get(number, ())]
        return [value for value in values if isinstance(value, memoryview)]

    def messages(self, *numbers: int) -> Iterator[_Message]:
        """Yield the messages in some fields."""
        return map(_Message, self.parts(*numbers))

    def texts(self, number: int) -> list[str]:
        """Return the starts of the texts of a field."""
        return [bytes(value[:1000]).decode() for value in self.parts(number)]

    def text(self, number: int) -> str:
        """Return the text of a field, empty if there is none."""
        return (self.texts(number) or [""])[-1]

    def number(self, number: int) -> int:
        """Return the number of a field, 0 if there is none."""
        return ([value for value in self._values.get(number, ()) if isinstance(value, int)] or [0])[-1]

    def shape(self) -> list[int]:
        """Return the dimensions of a tensor: numbers, or bytes that hold the numbers in sequence."""
        found = list[int]()
        for value in self._values.get(1, ()):
            place = 0
            while isinstance(value, memoryview) and place < len(value) and len(found) < _MOST_AXES:
                one, place = _varint(value, place)
                found.append(one)
            found += [value] if isinstance(value, int) else []
        return found


def read_graph(content: bytes) -> GraphFacts:
    """Read what a graph takes and returns, or say what is wrong with it; errors do not name the file."""
    try:
        model = _Message(memoryview(content))
        if 25 in model:
            raise InputError("it defines its own operators: export it with standard operators")
        if len(graphs := list(model.messages(7))) != 1:
            raise InputError("it is not an ONNX file")
        nodes, weights = _check(graphs[0], 0), set(map(_require_inside, graphs[0].messages(5)))
        inputs, outputs = (list(map(_read_value, graphs[0].messages(number))) for number in (11, 12))
    except (IndexError, UnicodeDecodeError):
        raise InputError("it is not an ONNX file, or is damaged") from None
    image = _require_image([one for one in inputs if one.name not in weights])
    return GraphFacts(image, tuple(outputs), max(1, nodes))


def read_last_weights(content: bytes, width: int) -> FloatArray | None:
    """Read the weights of a graph's last layer that has ``width`` outputs, as ``(width, inputs)``.

    Layers are convolutions and matrix products with weights in single precision; ``None`` if the graph has no
    such layer.
    """
    (graph,) = _Message(memoryview(content)).messages(7)
    weights = {_Message(tensor).text(8): tensor for tensor in graph.parts(5)}
    for node in map(_Message, reversed(graph.parts(1))):
        operator, taken = node.text(4), node.texts(1)
        if operator not in ("Conv", "Gemm", "MatMul") or len(taken) < 2 or taken[1] not in weights:
            continue
        tensor = _Message(weights[taken[1]])
        shape, data = tensor.shape(), (tensor.parts(4, 9) or [memoryview(b"")])[-1]
        if tensor.number(2) == _FLOAT and len(shape) > 1 and len(data) == 4 * math.prod(shape):
            found = np.frombuffer(data, "<f4").reshape(shape)
            transposed = any(about.text(1) == "transB" and about.number(3) for about in node.messages(5))
            rows = found.reshape(shape[0], -1) if operator == "Conv" or transposed else found.T
            if len(rows) == width:
                return rows
    return None


def _require_image(inputs: list[Value]) -> Value:
    """Return the only input, if it is a batch of images."""
    listed = ", ".join(one.name for one in inputs[:5]) or "none"
    if len(inputs) != 1:
        raise InputError(f"its only input must be images, but its inputs are: {listed}")
    image, shape = inputs[0], inputs[0].shape
    batch, channels, height, width = shape if shape and len(shape) == 4 else (None, 0, None, None)
    if image.kind != _FLOAT or channels not in (3, None):
        raise InputError(f"its input {image.name!r} is not a batch (n, 3, height, width) of float32")
    if batch not in (1, None):
        raise InputError(f"it takes {batch} images at a time: export it for any number of images, or for 1")
    if height != width and None not in (height, width):
        raise InputError(f"it takes images of {width} x {height} pixels, but ucds uses square images")
    return image


def _check(graph: _Message, depth: int) -> int:
    """Refuse forbidden contents of a graph and of graphs inside it, and return the number of operations."""
    if depth > _DEEPEST:
        raise InputError("its graphs are nested too deeply")
    if 15 in graph:
        raise InputError(_SPARSE)
    for tensor in graph.messages(5):
        _require_inside(tensor)
    count = 0
    for node in graph.parts(1):
        count += 1
        if count > _MOST_NODES:
            raise InputError(f"it has over {_MOST_NODES:,} operations")
        count += _check_node(_Message(node), depth)
    return count


def _check_node(node: _Message, depth: int) -> int:
    """Refuse an operator that is not allowed; return the number of operations in its attributes."""
    count = 0
    for attribute in node.messages(5):
        if 22 in attribute or 23 in attribute:
            raise InputError(_SPARSE)
        for tensor in attribute.messages(5, 10):
            _require_inside(tensor)
        count += sum(_check(graph, depth + 1) for graph in attribute.messages(6, 11))
    operator, domain = node.text(4), node.text(7)
    if domain not in _STANDARD:
        raise InputError(f"its operator {domain}.{operator} is not one of the ONNX standard")
    if operator in _UNBOUNDED:
        raise InputError(f"its operator {operator} may never end")
    return count


def _require_inside(tensor: _Message) -> str:
    """Return the name of a tensor, after a check that its numbers lie in the file itself."""
    if 13 in tensor or tensor.number(14):
        raise InputError("its weights lie in other files: save it as one file")
    return tensor.text(8)


def _read_value(value: _Message) -> Value:
    """Read the name, type and shape of an input or an output."""
    kind, shape = 0, None
    for tensor in (tensor for types in value.messages(2) for tensor in types.messages(1)):
        kind = tensor.number(1)
        for axes in tensor.messages(2):
            lengths = [axis.number(1) for axis in axes.messages(1)]
            shape = tuple(length if 0 < length < 2**31 else None for length in lengths)
    return Value(value.text(1), kind, shape)


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    """Read a number of up to ten bytes; return the number and the position behind it."""
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
        if shift > 63:
            raise IndexError("a number of more than ten bytes")
