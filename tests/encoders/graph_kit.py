"""ONNX graphs for tests of encoders, and the layout of a repository that holds one."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

Shape = list[int | str]
IMAGES: Shape = ["n", 3, "height", "width"]


def graph_file(
    nodes: list[Any],
    outputs: dict[str, Shape],
    weights: dict[str, np.ndarray] | None = None,
    inputs: dict[str, Shape] | None = None,
    *,
    kind: int = TensorProto.FLOAT,
    opsets: dict[str, int] | None = None,
    **more: Any,
) -> bytes:
    """Return the content of an ONNX file."""
    graph = helper.make_graph(
        nodes,
        "test",
        [
            helper.make_tensor_value_info(name, kind, shape)
            for name, shape in ({"x": IMAGES} if inputs is None else inputs).items()
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()],
        **more,
    )
    versions = [helper.make_opsetid(domain, version) for domain, version in (opsets or {"": 17}).items()]
    return bytes(helper.make_model(graph, opset_imports=versions, ir_version=8).SerializeToString())


def means(*, batch: int | str = "n", size: int | str = "size", name: str = "features") -> bytes:
    """Return a graph of the mean of each channel and of its square: six features."""
    return graph_file(
        [
            helper.make_node("Mul", ["x", "x"], ["squares"]),
            helper.make_node("Concat", ["x", "squares"], ["both"], axis=1),
            helper.make_node("ReduceMean", ["both"], [name], axes=[2, 3], keepdims=0),
        ],
        {name: [batch, 6]},
        inputs={"x": [batch, 3, size, size]},
    )


def transformer(*outputs: str, size: int | str = "size") -> bytes:
    """Return a graph with the outputs of a vision transformer: tokens ``(n, 5, 3)`` and rows ``(n, 3)``.

    The first token is the mean of the image, and the others are twice that.
    """
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[2, 3], keepdims=0),
        helper.make_node("Unsqueeze", ["mean", "one"], ["class"]),
        helper.make_node("Add", ["mean", "mean"], ["twice"]),
        helper.make_node("Unsqueeze", ["twice", "one"], ["patch"]),
        helper.make_node(
            "Concat", ["class", "patch", "patch", "patch", "patch"], ["last_hidden_state"], axis=1
        ),
        helper.make_node("Neg", ["mean"], ["pooler_output"]),
        helper.make_node("Add", ["mean", "half"], ["image_embeds"]),
    ]
    shapes: dict[str, Shape] = {
        "last_hidden_state": ["n", 5, 3],
        "pooler_output": ["n", 3],
        "image_embeds": ["n", 3],
    }
    return graph_file(
        nodes,
        {name: shapes[name] for name in outputs},
        {"one": np.array([1]), "half": np.float32(0.5)},
        {"x": ["n", 3, size, size]},
    )


def repository(folder: Path, graph: bytes, preprocessor: dict[str, Any], **config: Any) -> Path:
    """Write the files of an encoder into a folder, as a repository of the hub holds them."""
    (folder / "onnx").mkdir(parents=True)
    (folder / "onnx/model.onnx").write_bytes(graph)
    (folder / "preprocessor_config.json").write_text(json.dumps(preprocessor))
    (folder / "config.json").write_text(json.dumps(config))
    return folder
