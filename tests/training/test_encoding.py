"""Tests of frozen encoders in ONNX Runtime: the features of PyTorch, kept apart from them, or a refusal."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import ucds
from ucds.backbones import Backbone, BackboneSpec, build_backbone, identity_backbone, module_backbone
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.data.views import VectorView
from ucds.models import ClusteringModel
from ucds.training.devices import require_runtime
from ucds.training.encoding import LARGEST_DIFFERENCE, FrozenEncoder
from ucds.training.features import frozen_features
from ucds.training.loaded import Model, load
from ucds.training.model_file import ModelCard, StoredModel
from ucds.training.runtime import Runtime

GENERATOR = torch.Generator().manual_seed(0)
VECTORS = torch.randn(11, 6, generator=GENERATOR)


def network(seed: int = 0) -> nn.Module:
    """A small network of images whose batch normalisation tells training from evaluation."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(3, 4, 3, stride=2),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )


def linear(seed: int = 0) -> Backbone:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Backbone(nn.Linear(6, 3), BackboneSpec("linear", 3), "given")


def pixels(side: int, n: int = 11) -> Tensor:
    return torch.randn(n, 3, side, side, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "kind",
    [pytest.param("edges", marks=pytest.mark.slow), "one"],
)
def test_onnx_runtime_computes_the_features_of_pytorch(kind: str) -> None:
    if kind == "edges":
        backbone = build_backbone("ucds/oriented_edges", weights="none", input_size=32)
    else:
        backbone = module_backbone(network(), 4, input_size=32)
    backbone.module.train()
    inputs, encode = pixels(32), FrozenEncoder(backbone, "onnx")
    expected = FrozenEncoder(backbone, "torch")(inputs)
    largest = np.abs(expected).max()
    for batch in (slice(0, 9), slice(9, 10), slice(0, 11)):  # batches of several lengths
        found = encode(inputs[batch])
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected[batch], rtol=0, atol=LARGEST_DIFFERENCE * largest)
    assert backbone.module.training  # as it was
    assert torch.is_grad_enabled()
    assert all(weight.requires_grad for weight in backbone.module.parameters())


@pytest.mark.slow
def test_a_graph_is_made_once_for_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    export = torch.onnx.export

    def counting(*given: Any, **named: Any) -> Any:
        made.append(1)
        return export(*given, **named)

    monkeypatch.setattr(torch.onnx, "export", counting)
    backbone = linear()
    first = FrozenEncoder(backbone, "onnx")(VECTORS[:1])  # one sample is enough to make it
    np.testing.assert_array_equal(FrozenEncoder(backbone, "onnx")(VECTORS)[:1], first)
    assert len(made) == 1
    encode = FrozenEncoder(backbone, "onnx")
    found = encode(VECTORS)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(encode))(VECTORS), found)  # another process
    assert len(made) == 2
    with torch.no_grad():
        backbone.module.weight.mul_(2)
    other = FrozenEncoder(backbone, "onnx")(VECTORS)
    np.testing.assert_allclose(other, FrozenEncoder(backbone, "torch")(VECTORS), atol=1e-6)
    assert len(made) == 3


@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_pytorchs_number_of_threads_holds(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    session = onnxruntime.InferenceSession

    def watching(content: bytes, options: Any, **named: Any) -> Any:
        seen.append(options.intra_op_num_threads)
        return session(content, options, **named)

    monkeypatch.setattr(onnxruntime, "InferenceSession", watching)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        FrozenEncoder(linear(), "onnx")(VECTORS)
    finally:
        torch.set_num_threads(before)
    assert seen == [threads]


def test_features_of_the_two_are_kept_apart(tmp_path: Path) -> None:
    data = Dataset(VectorSamples(VECTORS.numpy()), VectorView())
    by_torch, by_onnx = (Runtime(accelerator="cpu", encoder_runtime=one) for one in ("torch", "onnx"))
    backbone = linear()
    first = frozen_features(backbone, data, by_torch, tmp_path, batch_size=4)
    (only,) = tmp_path.iterdir()
    second = frozen_features(backbone, data, by_onnx, tmp_path, batch_size=4)
    assert len(list(tmp_path.iterdir())) == 2
    assert first.samples.fingerprint != second.samples.fingerprint
    everything = np.arange(len(VECTORS))
    rows = [result.samples.read(everything) for result in (first, second)]
    torch.testing.assert_close(*rows, rtol=0, atol=1e-5)
    again = frozen_features(linear(), data, by_onnx, tmp_path, batch_size=4)
    assert torch.equal(again.samples.read(everything), rows[1])
    in_memory = frozen_features(backbone, data, by_onnx, None, batch_size=4)
    torch.testing.assert_close(in_memory.samples.read(everything), rows[1], rtol=0, atol=1e-6)
    assert only.exists()


class Drawing(nn.Module):
    """Gives other features each time."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + torch.rand_like(inputs)


class Branching(nn.Module):
    """Decides by the values of its inputs, which no graph can hold."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs if inputs.sum() > 0 else -inputs


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Drawing(), "features that differ by .* of the encoder 'module', and 0.0001 is allowed"),
        (Branching(), "the encoder 'module' cannot run in ONNX Runtime: .*; leave out --encoder-runtime"),
    ],
)
def test_an_encoder_that_no_graph_holds_is_refused_in_one_line(module: nn.Module, message: str) -> None:
    with pytest.raises(ucds.InputError, match=message) as error:
        FrozenEncoder(module_backbone(module, 6), "onnx")(VECTORS)
    assert "\n" not in str(error.value)


def test_features_that_are_not_finite_are_refused() -> None:
    backbone = linear()
    with torch.no_grad():
        backbone.module.weight.fill_(float("nan"))
    with pytest.raises(ucds.InputError, match="features are not finite"):
        FrozenEncoder(backbone, "onnx")(VECTORS)


def test_without_the_packages_nothing_is_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    onnx = ("--encoder-runtime", "onnx", "--accelerator", "cpu")
    target = ("train-target", tmp_path / "no-images", "--clusters", 3, "--out", tmp_path / "run")
    assert run(*target, *onnx) == 2
    assert capfd.readouterr().err == "error: ONNX needs further packages: pip install 'ucds[export]'\n"
    assert not list(tmp_path.iterdir())
    require_runtime("torch", "cpu")


def test_only_the_processor_has_onnx_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for accelerator in ("cuda", "auto"):
        with pytest.raises(ucds.InputError, match="not on cuda: give --accelerator cpu as well"):
            require_runtime("onnx", accelerator)
    require_runtime("onnx", "cpu")


def test_an_encoder_that_is_trained_is_refused(tmp_path: Path) -> None:
    options = ucds.RunOptions(accelerator="cpu", encoder_runtime="onnx")
    for train in (ucds.train_source, ucds.train_target):
        with pytest.raises(ucds.InputError, match="for frozen encoders"):
            train(
                tmp_path / "none",
                tmp_path / "run",
                n_clusters=3,
                options=options,
                settings=ucds.PCDSettings(tune="full"),
            )
    with pytest.raises(ucds.InputError, match="for frozen encoders"):
        ucds.SourceClustering(3, method="pcd", encoder_runtime="onnx").fit(VECTORS.numpy())


def test_embeddings_are_refused(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    how: dict[str, Any] = {"accelerator": "cpu", "encoder_runtime": "onnx"}
    with pytest.raises(ucds.InputError, match="for images, not for embeddings"):
        ucds.train_target(vectors, tmp_path / "run", n_clusters=3, options=ucds.RunOptions(**how))
    with pytest.raises(ucds.InputError, match="for images, not for embeddings"):
        ucds.SourceClustering(3, **how).fit(vectors)
    made(identity_backbone(6)).save(tmp_path)
    with pytest.raises(ucds.InputError, match="for images, not for embeddings"):
        load(tmp_path, **how)


def made(backbone: Backbone, **card: Any) -> Model:
    """Make a model with random weights, as if it had been trained."""
    generator = torch.Generator().manual_seed(0)
    model = ClusteringModel(backbone, 3, bottleneck_width=7, unit_features=True, generator=generator).eval()
    values: dict[str, Any] = {"role": "target", "tune": "head"} | card
    described = ModelCard(
        name="run",
        n_clusters=3,
        bottleneck_width=7,
        backbone=backbone.spec,
        weights=backbone.weights,
        domains=("a",),
        stages=("learn",),
        unit_features=True,
        **values,
    )
    return Model(StoredModel(described, model, torch.full((1, 3), 1 / 3)), "cpu")


def test_a_model_predicts_with_onnx_runtime(tmp_path: Path) -> None:
    edges = build_backbone("ucds/oriented_edges", weights="none", input_size=28)
    made(edges).save(tmp_path / "head")
    made(edges, tune="full").save(tmp_path / "full")
    images = np.random.default_rng(0).integers(256, size=(4, 40, 40, 3), dtype=np.uint8)
    by_torch = load(tmp_path / "head", accelerator="cpu")
    by_onnx = load(tmp_path / "head", accelerator="cpu", encoder_runtime="onnx")
    by_onnx.predict(images[:1])  # makes the graph, and compares it with the encoder
    with torch.no_grad():
        for name in ("predict_proba", "transform", "confidence"):
            found, expected = (getattr(model, name)(images) for model in (by_onnx, by_torch))
            np.testing.assert_allclose(found, expected, atol=1e-5)
    by_onnx.stored.model.encoder.backbone.forward = None  # type: ignore[assignment]
    np.testing.assert_array_equal(by_onnx.predict(images), by_torch.predict(images))
    with pytest.raises(ucds.InputError, match="for frozen encoders"):
        load(tmp_path / "full", accelerator="cpu", encoder_runtime="onnx")


@pytest.mark.slow
def test_a_run_names_its_runtime_and_keeps_it(tmp_path: Path, run: Any) -> None:
    generator = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    for number in range(12):
        coarse = generator.integers(0, 256, (4, 6, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((48, 40), Image.Resampling.BICUBIC)
        image.save(tmp_path / "images" / f"{number}.png")
    encoder = ("--backbone", "ucds/oriented_edges", "--weights", "none", "--image-size", 32)
    train = ("train-target", tmp_path / "images", "--out", tmp_path / "run", "--clusters", 2, *encoder)
    train += ("--set", "starts=1", "--accelerator", "cpu")
    assert run(*train, "--encoder-runtime", "onnx") == 0  # the report too reads features of ONNX Runtime
    described = json.loads((tmp_path / "run" / "run.json").read_text())
    assert described["encoder_runtime"] == "onnx"
    with pytest.raises(ucds.InputError, match="its encoder_runtime is 'onnx', not None"):
        ucds.train_target(
            tmp_path / "images",
            tmp_path / "run",
            n_clusters=2,
            encoder=ucds.EncoderOptions("ucds/oriented_edges", "none", 32),
            settings=ucds.ConsensusSettings(starts=1),
            options=ucds.RunOptions(accelerator="cpu", resume=True),
        )
