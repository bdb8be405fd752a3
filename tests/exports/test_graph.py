"""Tests of exported graphs: other programs compute what the model computes, for any number of samples."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from odd_networks import Drawing, Untraceable

import ucds
from ucds.errors import InputError, UcdsWarning
from ucds.networks.build import build_backbone
from ucds.networks.spec import identity_backbone, module_backbone
from ucds.training.loaded import Model

MakeModel = Callable[..., Model]


def test_a_graph_in_onnx_runs_without_this_package(make_model: MakeModel, tmp_path: Path) -> None:
    model = make_model(build_backbone("ucds/oriented_edges", weights="none", input_size=32))
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


def test_a_graph_of_a_model_of_embeddings(make_model: MakeModel, tmp_path: Path) -> None:
    model = make_model(identity_backbone(6), unit_features=False)
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


def test_a_file_of_the_same_stem_stays_as_it_is(make_model: MakeModel, tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text("mine")
    for _ in range(2):  # the second one over the first
        ucds.export(make_model(identity_backbone(6)), tmp_path / "labels.onnx")
    assert (tmp_path / "labels.json").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 3


def test_what_cannot_be_exported_leaves_no_file(make_model: MakeModel, tmp_path: Path) -> None:
    drawing = make_model(module_backbone(Drawing(), 6))
    with pytest.raises(InputError, match="probabilities that differ by .*: it is not written"):
        ucds.export(drawing, tmp_path / "m.onnx")
    untraceable = make_model(module_backbone(Untraceable(), 6))
    with pytest.raises(InputError, match="'module' cannot be written in ONNX: ") as error:
        ucds.export(untraceable, tmp_path / "m.onnx")
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=r"must end in \.onnx"):
        ucds.export(drawing, tmp_path / "m.pt")
    with pytest.raises(InputError, match="name the file to write"):
        ucds.export(drawing)
    assert not list(tmp_path.iterdir())


def test_a_providers_model_leaves_with_a_warning(make_model: MakeModel, tmp_path: Path) -> None:
    with pytest.warns(UcdsWarning, match="this is a provider's model"):
        ucds.export(make_model(identity_backbone(6), role="source"), tmp_path / "m.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "mobilenetv2_050", "vit_tiny_patch16_224"])
def test_networks_of_three_families_are_the_same_outside(
    make_model: MakeModel, tmp_path: Path, name: str
) -> None:
    model = make_model(build_backbone(name, weights="none", input_size=96))
    done = ucds.export(model, tmp_path / "m.onnx")
    assert max(done.differences.values()) <= 1e-4
    assert (tmp_path / "m.onnx").stat().st_size > 1e6
