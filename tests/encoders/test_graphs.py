"""Tests of encoders that are ONNX graphs: what they compute, and which graphs of others are refused."""

import pickle
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graph_kit import IMAGES, graph_file, means, transformer
from onnx import TensorProto, helper

import ucds
from ucds.encoders.find import find_graph
from ucds.encoders.graphs import GraphEncoder, check_graph
from ucds.encoders.onnx_files import read_last_weights
from ucds.encoders.spec import EncoderSpec
from ucds.errors import InputError
from ucds.training.model_file import save_model

SIX = EncoderSpec("means", 6, 16)
node = helper.make_node
MEAN = node("ReduceMean", ["x"], ["y"], axes=[2, 3], keepdims=0)


def images(count: int, size: int = 16) -> np.ndarray:
    return np.random.default_rng(count).normal(size=(count, 3, size, size)).astype(np.float32)


def expected(inputs: np.ndarray) -> np.ndarray:
    return np.concatenate([inputs.mean((2, 3)), np.square(inputs).mean((2, 3))], 1)


@pytest.mark.parametrize("batch", ["n", 1])
@pytest.mark.parametrize("count", [0, 1, 8, 19])
def test_features_of_an_image_are_the_same_to_the_bit_in_any_company(batch: Any, count: int) -> None:
    encoder, inputs = GraphEncoder(means(batch=batch), SIX, "given"), images(count)
    found = encoder(inputs)
    np.testing.assert_allclose(found, expected(inputs), rtol=1e-5, atol=1e-6)
    for i in range(count):
        np.testing.assert_array_equal(encoder(inputs[i : i + 1])[0], found[i])


@pytest.mark.parametrize(
    ("output", "pooling", "factor"),
    [
        ("last_hidden_state", "class", 1),
        ("last_hidden_state", "mean", 1.8),
        ("pooler_output", None, -1),
    ],
)
def test_an_output_is_chosen_and_its_tokens_are_pooled(output: str, pooling: Any, factor: float) -> None:
    spec = EncoderSpec("t", 3, 16, output=output, pooling=pooling)
    encoder = GraphEncoder(transformer("pooler_output", "last_hidden_state"), spec, "given")
    inputs = images(5)
    np.testing.assert_allclose(encoder(inputs), factor * inputs.mean((2, 3)), rtol=1e-5, atol=1e-6)


def test_graphs_go_to_other_processes_and_have_digests_of_their_content() -> None:
    encoder = GraphEncoder(means(), SIX, "given")
    copy = pickle.loads(pickle.dumps(encoder))
    np.testing.assert_array_equal(copy(images(3)), encoder(images(3)))
    assert copy.describe() == encoder.describe()
    assert encoder.saved()["graph"].tobytes() == encoder.content
    assert encoder.digest != GraphEncoder(means(name="other"), SIX, "given").digest


@pytest.mark.parametrize("kind", ["Conv", "Gemm", "Gemm transposed", "MatMul"])
def test_the_last_weights_have_one_row_a_feature(kind: str) -> None:
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    operator, _, transposed = kind.partition(" ")
    weights = {"w": rows[..., None, None] if kind == "Conv" else rows if transposed else rows.T}
    flat = node("ReduceMean", ["x"], ["flat"], axes=[2, 3], keepdims=0)
    named = {"transB": int(bool(transposed))} if operator == "Gemm" else {}
    layer = node(operator, ["x" if kind == "Conv" else "flat", "w"], ["y"], **named)
    graph = graph_file(
        [layer] if kind == "Conv" else [flat, layer, node("Relu", ["y"], ["z"])], {"y": ["n", 4]}, weights
    )
    found = read_last_weights(graph, 4)
    np.testing.assert_array_equal(found, rows)
    assert read_last_weights(graph, 5) is None


def external() -> bytes:
    model = onnx.load_model_from_string(
        graph_file([node("Add", ["x", "w"], ["y"])], {"y": IMAGES}, {"w": np.ones(1)})
    )
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    return bytes(model.SerializeToString())


def external_constant() -> bytes:
    tensor = onnx.load_model_from_string(external()).graph.initializer[0]
    return graph_file(
        [node("Constant", [], ["w"], value=tensor), node("Add", ["x", "w"], ["y"])], {"y": IMAGES}
    )


def sparse(*, constant: bool) -> bytes:
    values = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    positions = helper.make_tensor("i", TensorProto.INT64, [1], [0])
    tensor = helper.make_sparse_tensor(values, positions, [2**40])
    if constant:
        return graph_file([node("Constant", [], ["w"], sparse_value=tensor), MEAN], {"y": ["n", 3]})
    return graph_file([MEAN], {"y": ["n", 3]}, sparse_initializer=[tensor])


def branch(operator: Any, depth: int = 1) -> bytes:
    inner = [operator]
    for level in range(depth):
        graphs = {
            side: helper.make_graph(inner, side, [], [helper.make_tensor_value_info(f"o{level}", 1, None)])
            for side in ("then_branch", "else_branch")
        }
        inner = [node("If", ["flag"], [f"o{level + 1}"], **graphs)]
    return graph_file([*inner, MEAN], {"y": ["n", 3]}, {"flag": np.array(True)})


def functions() -> bytes:
    model = onnx.load_model_from_string(graph_file([MEAN], {"y": ["n", 3]}))
    opset = [helper.make_opsetid("", 17)]
    model.functions.append(
        helper.make_function("own", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])], opset)
    )
    return bytes(model.SerializeToString())


def takes(inputs: dict[str, Any], kind: int = TensorProto.FLOAT) -> bytes:
    return graph_file(
        [node("Identity", [next(iter(inputs))], ["y"])], {"y": ["n", 3]}, inputs=inputs, kind=kind
    )


FOREIGN = node("Gelu", ["x"], ["o0"], domain="com.microsoft")
REFUSED: dict[str, tuple[bytes, str]] = {
    "weights in other files": (external(), "its weights lie in other files"),
    "constants in other files": (external_constant(), "its weights lie in other files"),
    "sparse weights": (sparse(constant=False), "sparse tensors"),
    "sparse constants": (sparse(constant=True), "sparse tensors"),
    "an operator of a vendor": (graph_file([FOREIGN], {"o0": IMAGES}), "com.microsoft.Gelu is not one of"),
    "an operator whose name steers terminals": (
        graph_file([node("A\x1b[2J\nB", ["x"], ["o0"], domain="own")], {"o0": IMAGES}),
        r"own.A\\x1b\[2J\\nB is not one of",
    ),
    "an operator of a vendor in a branch": (branch(FOREIGN), "com.microsoft.Gelu is not one of"),
    "graphs in graphs in graphs": (branch(node("Relu", ["x"], ["o0"]), 12), "too deep"),
    "an endless loop": (branch(node("Loop", ["m", "c"], ["o0"])), "Loop may never end"),
    "operators of its own": (functions(), "its own operators"),
    "texts and images": (takes({"x": IMAGES, "input_ids": ["n", "t"]}), "its inputs are: x, input_ids"),
    "texts": (takes({"input_ids": ["n", "t"]}, TensorProto.INT64), "not a batch"),
    "bytes": (takes({"x": IMAGES}, TensorProto.UINT8), "not a batch"),
    "half precision": (takes({"x": IMAGES}, TensorProto.FLOAT16), "not a batch"),
    "colours last": (takes({"x": ["n", 224, 224, 3]}), "not a batch"),
    "grey images": (takes({"x": ["n", 1, 224, 224]}), "not a batch"),
    "vectors": (takes({"x": ["n", 12]}), "not a batch"),
    "a number of images other than one": (takes({"x": [4, 3, 8, 8]}), "takes 4 images at a time"),
    "images that are no squares": (takes({"x": ["n", 3, 224, 320]}), "320 x 224 pixels"),
    "nothing": (
        graph_file([node("Constant", [], ["y"], value_float=1.0)], {"y": []}, inputs={}),
        "are: none",
    ),
    "an empty file": (b"", "not an ONNX file"),
    "a text": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "not an ONNX file"),
    "half a file": (means()[:-40], "not an ONNX file"),
    "a field that is longer than the file": (b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "not an ONNX file"),
    "a number without end": (b"\x08" + b"\xff" * 100, "not an ONNX file"),
    "two graphs": (means() * 2, "not an ONNX file"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_graph_of_others_is_refused_in_one_line_before_it_is_opened(what: str) -> None:
    content, reason = REFUSED[what]
    with pytest.raises(InputError, match=f"^their.onnx cannot be used as an encoder: .*{reason}") as refusal:
        check_graph(content, "their.onnx")
    assert "\n" not in str(refusal.value)
    with pytest.raises(InputError, match=reason):
        GraphEncoder(content, EncoderSpec("their.onnx", 6, 8), "given")(images(2, 8))


def test_damaged_bytes_end_in_the_error_of_this_package_or_in_a_graph() -> None:
    content = bytearray(means())
    generator = np.random.default_rng(0)
    for _ in range(2000):
        damaged = content.copy()
        for place in generator.integers(0, len(damaged), 3):
            damaged[place] = generator.integers(0, 256)
        with suppress(InputError):
            check_graph(bytes(damaged), "x")


def giant(*middle: Any) -> bytes:
    """Return a graph that makes a tensor of 256 GB, and takes its mean."""
    last = [node("ReduceMean", ["big"], ["m"], keepdims=0), MEAN, node("Add", ["y", "m"], ["z"])]
    sizes = {
        "sizes": np.array([2**18, 2**18]),
        "roots": np.array([2.0**9, 2.0**9], np.float32),
        "two": np.float32(2),
    }
    return graph_file([*middle, *last], {"z": ["n", 3]}, sizes)


GIANTS = {
    "a constant": giant(node("ConstantOfShape", ["sizes"], ["big"])),
    "a constant whose size is computed": giant(
        node("Pow", ["roots", "two"], ["squares"]),
        node("Cast", ["squares"], ["shape"], to=TensorProto.INT64),
        node("ConstantOfShape", ["shape"], ["big"]),
    ),
    "an image laid out again and again": giant(
        node("ReduceMean", ["x"], ["one"], keepdims=0), node("Expand", ["one", "sizes"], ["big"])
    ),
}


@pytest.mark.parametrize("what", GIANTS)
def test_memory_that_a_graph_names_is_refused_before_it_is_taken(what: str) -> None:
    with pytest.raises(InputError, match="it needs more than 4 GiB of memory"):
        GraphEncoder(GIANTS[what], EncoderSpec("giant.onnx", 3, 8), "given")(images(2, 8))


def test_many_constants_that_are_computed_when_a_graph_is_opened_take_bounded_memory_together() -> None:
    count, rows = 200, np.array([2**24])  # 64 MiB each
    made = [node("ConstantOfShape", ["rows"], [f"c{i}"]) for i in range(count)]
    used = [node("ReduceMax", [f"c{i}"], [f"m{i}"], keepdims=0) for i in range(count)]
    total = node("Sum", [f"m{i}" for i in range(count)], ["total"])
    graph = graph_file(
        [*made, *used, total, MEAN, node("Add", ["y", "total"], ["z"])], {"z": ["n", 3]}, {"rows": rows}
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    GraphEncoder(graph, EncoderSpec("x", 3, 8), "given")(images(2, 8))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 3 * 2**20  # KiB


def test_the_memory_that_features_were_computed_in_is_given_back() -> None:
    def held() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    encoder = find_graph(None)
    assert encoder is not None
    encoder(images(8, 224))
    before = held()
    encoder.rest()
    assert before - held() > 50 * 2**20


@pytest.mark.parametrize(
    ("content", "spec", "reason"),
    [
        (means(), EncoderSpec("another width", 7, 16), "returns features of shape"),
        (means(), EncoderSpec("another output", 6, 16, output="y"), "cannot compute it"),
        (means(size=24), SIX, "cannot compute it"),
        (transformer("last_hidden_state"), EncoderSpec("tokens", 3, 16), "returns features of shape"),
    ],
)
def test_a_graph_that_does_not_fit_its_description_is_refused(
    content: bytes, spec: EncoderSpec, reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        GraphEncoder(content, spec, "given")(images(2))


def test_a_graph_in_a_run_computes_unless_it_was_changed(
    stored_model: Callable[..., Any], tmp_path: Path
) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (5, 20, 20, 3), dtype=np.uint8)
    save_model(tmp_path, stored_model(GraphEncoder(means(), SIX, "given"), 3, 4))
    assert ucds.load(tmp_path, compute=ucds.Compute(cache=None)).predict(pictures).shape == (5,)
    vendor = REFUSED["an operator of a vendor"][0]
    save_model(tmp_path, stored_model(GraphEncoder(vendor, SIX, "given"), 3, 4))
    with pytest.raises(ucds.UserError, match=r"not one of the ONNX standard[^\n]*$"):
        ucds.load(tmp_path, compute=ucds.Compute(cache=None)).predict(pictures)
