"""Makes the encoders that lie in the package, as ONNX graphs, from published weights.

    python tools/make_encoders.py mobilenetv2_100.safetensors [FOLDER]

Needs the extra ``torch``. The files are equal to the byte wherever the versions of PyTorch and onnx are those
of ``constraints.txt``. Prints the SHA-256 of each file, which ``encoders/packaged/origin.toml`` repeats.
"""

from __future__ import annotations

import io
import math
import sys
from pathlib import Path

import numpy as np
import onnx
import timm
import torch
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import load_file

from ucds.files import digest_of

OPSET, IR_VERSION = 17, 8
ORIENTATIONS, GRID = 8, 4


def main(weights: Path, folder: Path) -> None:
    """Write both graphs into a folder."""
    for name, content in (("mobilenetv2", mobilenetv2(weights)), ("oriented_edges", oriented_edges())):
        (folder / f"{name}.onnx").write_bytes(content)
        print(f"{name}.onnx {len(content):,} bytes, sha256 {digest_of(content)}")


def mobilenetv2(weights: Path) -> bytes:
    """Write MobileNetV2 without its classifier, its batch normalisation folded into the convolutions.

    Batches and images may have any size.
    """
    network = timm.create_model("mobilenetv2_100", num_classes=0)
    network.load_state_dict(load_file(weights))
    content, axes = io.BytesIO(), {0: "n", 2: "height", 3: "width"}
    torch.onnx.export(
        network.eval(),
        (torch.zeros(2, 3, 224, 224),),
        content,  # type: ignore[arg-type]  # PyTorch's stubs know no file in memory
        input_names=["images"],
        output_names=["features"],
        dynamic_axes={"images": axes, "features": {0: "n"}},
        opset_version=OPSET,
        dynamo=False,
    )
    return _saved(onnx.load_model_from_string(content.getvalue()).graph, "mobilenetv2")


def oriented_edges() -> bytes:
    """Write the energy of edges in eight directions on a coarse grid, as in histograms of oriented gradients.

    The brightness gradient of each pixel is projected onto eight directions; only its magnitude counts, so
    light strokes on dark and dark strokes on light look alike. It is sharpened, so that an edge counts for
    its own direction more than for its neighbours'. Each cell of a 4 x 4 grid is then averaged and scaled to
    about unit length: an empty cell holds a short vector of noise, and stays short against the picture's mean
    length. Source: Dalal and Triggs, CVPR 2005.
    """
    angles = np.arange(ORIENTATIONS, dtype=np.float32) * np.float32(math.pi / ORIENTATIONS)
    smooth, slope = np.array([1, 2, 1], np.float32), np.array([-1, 0, 1], np.float32)
    horizontal, vertical = np.outer(smooth, slope) / 8, np.outer(slope, smooth) / 8
    filters = np.cos(angles)[:, None, None] * horizontal + np.sin(angles)[:, None, None] * vertical
    constants: dict[str, object] = {
        "filters": filters[:, None].astype(np.float32),
        "frame": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64),
        "grid": np.array([GRID], np.int64),
        "images_and_directions": np.array([0, ORIENTATIONS, GRID], np.int64),
        "least_energy": np.float32(1e-4),
        "half": np.float32(0.5),
        "least_length": np.float32(1e-6),
        "from_three": np.array([3], np.int64),
        "one_axis": np.array([1], np.int64),
        "end": np.array([4], np.int64),
        "rest": np.array([-1], np.int64),
    }
    node = helper.make_node
    nodes = [
        node("ReduceMean", ["images"], ["grey"], axes=[1], keepdims=1),
        node("Pad", ["grey", "frame"], ["framed"], mode="edge"),
        node("Conv", ["framed", "filters"], ["edges"]),
        node("Mul", ["edges", "edges"], ["squares"]),
        node("ReduceSum", ["squares", "one_axis"], ["sums"], keepdims=1),
        node("Sqrt", ["sums"], ["roots"]),
        node("Add", ["roots", "least_energy"], ["strengths"]),
        node("Div", ["squares", "strengths"], ["energy"]),
        # Cells: (n, 8, 4, height / 4, 4, width / 4), whose means are taken.
        node("Shape", ["energy"], ["shape"]),
        node("Slice", ["shape", "from_three", "end"], ["width"]),
        node("Div", ["width", "grid"], ["across"]),
        node("Concat", ["images_and_directions", "rest", "grid", "across"], ["cells_shape"], axis=0),
        node("Reshape", ["energy", "cells_shape"], ["blocks"]),
        node("ReduceMean", ["blocks"], ["cells"], axes=[3, 5], keepdims=0),
        node("Mul", ["cells", "cells"], ["cell_squares"]),
        node("ReduceSum", ["cell_squares", "one_axis"], ["cell_sums"], keepdims=1),
        node("Sqrt", ["cell_sums"], ["lengths"]),
        node("ReduceMean", ["lengths"], ["typical"], axes=[2, 3], keepdims=1),
        node("Mul", ["typical", "half"], ["half_typical"]),
        node("Add", ["lengths", "half_typical"], ["scales"]),
        node("Add", ["scales", "least_length"], ["divisors"]),
        node("Div", ["cells", "divisors"], ["scaled"]),
        node("Flatten", ["scaled"], ["features"], axis=1),
    ]
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, "height", "width"])
    features = helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", ORIENTATIONS * GRID**2])
    return _saved(helper.make_graph(nodes, "oriented_edges", [images], [features], weights), "oriented_edges")


def _saved(graph: onnx.GraphProto, name: str) -> bytes:
    """Return a graph as a file, without what differs from one machine to another."""
    graph.name, graph.doc_string = name, ""
    for node in graph.node:
        node.doc_string = ""
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="ucds")
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    default = Path(__file__).parent.parent / "src/ucds/encoders/packaged"
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else default)
