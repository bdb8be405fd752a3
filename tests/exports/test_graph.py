"""Tests of exported graphs: other programs compute what the model computes, for any number of samples."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from graph_kit import graph_file
from onnx import TensorProto, helper

import ucds
from ucds.encoders.encoder import FunctionEncoder, IdentityEncoder
from ucds.encoders.graphs import GraphEncoder
from ucds.encoders.spec import EncoderSpec
from ucds.errors import InputError, UcdsWarning
from ucds.training.options import Compute, EncoderOptions


def test_a_graph_in_onnx_runs_without_this_package(make_model: Any, tmp_path: Path) -> None:
    model = make_model(EncoderOptions("ucds/oriented_edges").find(Compute("cpu")))
    done = ucds.export(model, tmp_path / "deep" / "m.onnx")
    assert set(done.differences) == {"probabilities", "features", "embeddings"}
    assert max(done.differences.values()) <= 1e-4
    graph = onnx.load(tmp_path / "deep" / "m.onnx")
    onnx.checker.check_model(graph)
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    described = json.loads(session.get_modelmeta().custom_metadata_map["ucds"])
    beside = json.loads((tmp_path / "deep" / "m.onnx.json").read_text())
    assert beside == described | {"largest_difference": done.differences}
    transform = described["transform"]
    assert transform | {"resize": [37, 37], "crop": [32, 32], "offset": [2, 2]} == transform
    pixels = np.random.default_rng(0).integers(256, size=(3, 37, 37, 3), dtype=np.uint8)
    crop = pixels[:, 2:34, 2:34].transpose(0, 3, 1, 2).astype(np.float32) / 255
    mean, std = (np.array(transform[name], np.float32)[:, None, None] for name in ("mean", "std"))
    probabilities, features, embeddings = session.run(None, {"images": (crop - mean) / std})
    np.testing.assert_allclose(probabilities, model.predict_proba(pixels), atol=1e-5)
    np.testing.assert_allclose(features, model.transform(pixels), atol=1e-4)
    assert embeddings.shape == (3, described["outputs"]["embeddings"][1])


def test_a_graph_of_a_model_of_embeddings(make_model: Any, tmp_path: Path) -> None:
    model = make_model(IdentityEncoder(6), unit_features=False)
    done = ucds.export(model, tmp_path / "m.onnx")
    described = json.loads((tmp_path / "m.onnx.json").read_text())
    assert described["input"] == {"embeddings": ["n", 6]}
    assert described["outputs"] == {"probabilities": ["n", 5], "features": ["n", 16]}
    assert (described["transform"], described["model"]) == (None, "clinic")
    assert described["fingerprint"] == model.stored.fingerprint
    vectors = np.random.default_rng(0).normal(size=(9, 6)).astype(np.float32)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    found = session.run(["probabilities"], {"embeddings": vectors})[0]
    np.testing.assert_allclose(found, model.predict_proba(vectors), atol=1e-6)
    assert set(done.differences) == {"probabilities", "features"}


def test_a_file_of_the_same_stem_stays_as_it_is(make_model: Any, tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text("mine")
    ucds.export(make_model(IdentityEncoder(6)), tmp_path / "labels.onnx")
    with pytest.warns(UcdsWarning, match="this is a provider's model"):  # over the first one
        ucds.export(make_model(IdentityEncoder(6), role="source"), tmp_path / "labels.onnx")
    assert (tmp_path / "labels.json").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 3


def tokens(pooling: str | None, *, drawn: bool = False) -> GraphEncoder:
    """A graph that returns three tokens ``(n, 3, 16)`` of images, or random ones, and how to pool them."""
    nodes = [
        helper.make_node("AveragePool", ["images"], ["cells"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["cells"], ["flat"]),
        helper.make_node("Reshape", ["flat", "shape"], ["plain"]),
        helper.make_node("RandomUniformLike", ["plain"], ["noise"]),
        helper.make_node("Add" if drawn else "Max", ["plain", "noise" if drawn else "plain"], ["tokens"]),
    ]
    taken = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, 8, 8])
    given = helper.make_tensor_value_info("tokens", TensorProto.FLOAT, ["n", 3, 16])
    shape = helper.make_tensor("shape", TensorProto.INT64, [3], [0, 3, 16])
    nodes = nodes if drawn else [node for node in nodes if node.op_type != "RandomUniformLike"]
    graph = helper.make_graph(nodes, "tokens", [taken], [given], [shape])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    spec = EncoderSpec("tokens", 16, 8, output="tokens", pooling=pooling)  # type: ignore[arg-type]
    return GraphEncoder(content.SerializeToString(), spec, "file")


@pytest.mark.parametrize("pooling", ["class", "mean"])
def test_tokens_are_pooled_in_the_graph_as_by_the_encoder(
    make_model: Any, tmp_path: Path, pooling: str
) -> None:
    done = ucds.export(make_model(tokens(pooling)), tmp_path / "m.onnx")
    assert max(done.differences.values()) <= 1e-5


def for_one_image(*reshaped: int) -> GraphEncoder:
    """Return an encoder whose graph takes one image at a time, the mean of its colours."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[2, 3], keepdims=0),
        helper.make_node("Reshape", ["mean", "shape"], ["features"]),
    ]
    inputs = {"x": [1, 3, 16, 16]}
    content = graph_file(nodes, {"features": [1, 3]}, {"shape": np.array(reshaped)}, inputs)
    return GraphEncoder(content, EncoderSpec("one.onnx", 3, 16), "given")


def test_a_graph_for_one_image_is_exported_for_any_number_if_it_can_take_them(
    make_model: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = ucds.export(make_model(for_one_image(-1, 3)), tmp_path / "m.onnx")
    assert max(done.differences.values()) <= 1e-6
    with pytest.raises(InputError, match=r"^the encoder 'one.onnx' cannot be written in ONNX: [^\n]*$"):
        ucds.export(make_model(for_one_image(1, 3)), tmp_path / "other.onnx")
    assert not (tmp_path / "other.onnx").exists()
    assert capfd.readouterr() == ("", "")


def test_what_cannot_be_exported_leaves_no_file(make_model: Any, tmp_path: Path) -> None:
    drawing = make_model(tokens("mean", drawn=True))
    with pytest.raises(InputError, match="probabilities that differ by .*: it is not written"):
        ucds.export(drawing, tmp_path / "m.onnx")
    of_ones_own = make_model(FunctionEncoder(np.tanh, 6))
    with pytest.raises(InputError, match="a function of your own, which cannot be written in ONNX") as error:
        ucds.export(of_ones_own, tmp_path / "m.onnx")
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=r"must end in \.onnx"):
        ucds.export(drawing, tmp_path / "m.pt")
    with pytest.raises(InputError, match="name the file to write"):
        ucds.export(drawing)
    assert not list(tmp_path.iterdir())
