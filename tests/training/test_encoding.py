"""Tests of frozen encoders: ONNX Runtime gives PyTorch's features, or PyTorch computes and says so."""

from __future__ import annotations

import errno
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import onnxruntime
import pytest
import torch
from odd_networks import Drawing, Untraceable
from torch import nn

import ucds
from ucds.data.columns import Pictures
from ucds.data.content import number_rows
from ucds.data.dataset import Dataset, ImageView
from ucds.data.images import MemoryImages
from ucds.encoders.spec import EncoderSpec
from ucds.errors import NoSpaceError
from ucds.gradients.runtime import Runtime
from ucds.math.arrays import FloatArray
from ucds.networks.build import build_backbone
from ucds.networks.spec import Backbone, identity_backbone
from ucds.training import encoding
from ucds.training.encoding import LARGEST_DIFFERENCE, FrozenEncoder, find_graph, suits_graph
from ucds.training.features import frozen_features
from ucds.training.options import Compute

CPU = torch.device("cpu")


def network(seed: int = 0) -> nn.Module:
    """A small network of images whose batch normalisation tells training from evaluation."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )


def named(module: nn.Module, width: int = 4) -> Backbone:
    return Backbone(
        module, EncoderSpec("small", width, 32, (0.4, 0.5, 0.6), (0.2, 0.3, 0.2)), "none (random)"
    )


def pixels(n: int = 11) -> FloatArray:
    return np.random.default_rng(1).standard_normal((n, 3, 32, 32), np.float32)


def graph_of(
    backbone: Backbone,
    folder: Path,
    inputs: FloatArray | None = None,
    say: Callable[[str], None] = pytest.fail,
) -> bytes | None:
    given = pixels() if inputs is None else inputs
    return find_graph(backbone, lambda count: given[:count], folder, say)


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """The exporter, which counts its calls."""
    export = Mock(wraps=torch.onnx.export)
    monkeypatch.setattr(torch.onnx, "export", export)
    return export


@pytest.mark.parametrize("kind", ["traced", pytest.param("not traced", marks=pytest.mark.slow)])
def test_onnx_runtime_computes_the_features_of_pytorch(
    kind: str, tmp_path: Path, exports: Mock, capfd: pytest.CaptureFixture[str]
) -> None:
    if kind == "traced":
        backbone = named(network())
    else:  # an operation that the exporter which traces does not know
        backbone = build_backbone("ucds/oriented_edges", weights="none", input_size=32)
    backbone.module.train()
    inputs = pixels()
    encode = FrozenEncoder(backbone, CPU, graph_of(backbone, tmp_path))
    assert exports.call_count == (1 if kind == "traced" else 2)
    assert capfd.readouterr().out == ""  # where a command writes its JSON
    plain = FrozenEncoder(backbone, CPU)
    assert (encode.computed_by, plain.computed_by) == ("onnxruntime", "torch on cpu")
    expected = plain(inputs)
    allowed = LARGEST_DIFFERENCE * np.linalg.norm(expected, axis=1)
    for batch in (slice(0, 9), slice(9, 10), slice(0, 11)):  # batches of several lengths
        found = encode(inputs[batch])
        assert found.dtype == np.float32
        assert (np.linalg.norm(found - expected[batch], axis=1) <= allowed[batch]).all()
    assert backbone.module.training  # as it was
    assert torch.is_grad_enabled()
    sent = pickle.dumps(encode)
    assert b"nn.modules" not in sent  # the graph computes elsewhere, without the libraries of networks
    np.testing.assert_array_equal(pickle.loads(sent)(inputs), encode(inputs))


def test_a_graph_is_made_once_for_the_same_weights_and_again_when_it_is_damaged(
    tmp_path: Path, exports: Mock
) -> None:
    graph = graph_of(named(network()), tmp_path, pixels(1))  # one sample is enough to make it
    (path,) = tmp_path.iterdir()  # no temporary file either
    assert graph_of(named(network()), tmp_path) == graph
    assert exports.call_count == 1
    assert graph_of(named(network(1)), tmp_path) != graph  # other weights
    assert exports.call_count == 2
    whole = path.read_bytes()
    path.write_bytes(whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:])
    assert graph_of(named(network()), tmp_path) == graph
    assert path.read_bytes() == whole
    assert exports.call_count == 3


def test_a_graph_that_cannot_be_kept_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "write_sealed", Mock(side_effect=NoSpaceError("the disk is full")))
    graph = graph_of(named(network()), tmp_path)
    assert graph is not None
    assert FrozenEncoder(named(network()), CPU, graph)(pixels()).shape == (11, 4)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (Drawing(), "features of the encoder 'small' differ there by "),
        (Untraceable(), "the encoder 'small' cannot run there ("),
    ],
)
def test_pytorch_computes_what_no_graph_holds_and_says_so_each_time(
    module: nn.Module, reason: str, tmp_path: Path, exports: Mock
) -> None:
    said: list[str] = []
    backbone = named(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), module), 3)
    assert graph_of(backbone, tmp_path, say=said.append) is None
    assert said[0].startswith(
        f"PyTorch computes the features, in more time than ONNX Runtime would take: {reason}"
    )
    assert "\n" not in said[0]
    tried = exports.call_count
    assert graph_of(backbone, tmp_path, say=said.append) is None
    assert said[0] == said[1]
    assert exports.call_count == tried  # the cache knows


def test_a_graph_for_which_there_was_no_room_is_made_the_next_time(tmp_path: Path, exports: Mock) -> None:
    said: list[str] = []
    exports.side_effect = OSError(errno.ENOSPC, "No space left on device")
    assert graph_of(named(network()), tmp_path, say=said.append) is None
    assert said[0].endswith("no graph can be made now ([Errno 28] No space left on device)")
    exports.side_effect = None
    assert graph_of(named(network()), tmp_path) is not None


def test_pytorchs_number_of_threads_holds(
    several_threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Mock(wraps=onnxruntime.InferenceSession)
    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    graph = graph_of(named(network(seed=3)), tmp_path)
    for threads in (several_threads, 1):
        torch.set_num_threads(threads)
        FrozenEncoder(named(network(seed=3)), CPU, graph)(pixels())
        assert session.call_args.args[1].intra_op_num_threads == threads


@pytest.mark.parametrize("with_graph", [True, False])
def test_features_that_are_not_finite_are_refused(with_graph: bool, tmp_path: Path) -> None:
    backbone = named(network())
    graph = graph_of(backbone, tmp_path) if with_graph else None
    with pytest.raises(ucds.InputError, match="features are not finite: are its weights right"):
        FrozenEncoder(backbone, CPU, graph)(np.full((2, 3, 32, 32), np.nan, np.float32))


def test_a_graph_is_for_many_images_on_a_processor() -> None:
    usual = EncoderSpec("resnet18", 512, 224)
    assert suits_graph(usual, 256, CPU)
    assert not suits_graph(usual, 255, CPU)
    assert not suits_graph(usual, 1000, torch.device("cuda", 0))
    assert suits_graph(EncoderSpec("resnet18", 512, 112), 1024, CPU)  # as many pixels
    assert not suits_graph(EncoderSpec("resnet18", 512, 112), 1023, CPU)
    assert not suits_graph(identity_backbone(6).spec, 10**9, CPU)
    assert not suits_graph(EncoderSpec("function", 4, 224), 10**9, CPU)


def test_features_of_the_two_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    squares = np.random.default_rng(0).integers(256, size=(6, 40, 40, 3), dtype=np.uint8)
    data = Dataset(
        MemoryImages(Pictures(squares, number_rows(6), np.zeros(6, np.int64), ("images",)), 37),
        ImageView(crop=32),
    )

    def compute(folder: Path | None) -> Dataset:
        return frozen_features(named(network()), data, Runtime(Compute("cpu", cache=folder)), batch_size=4)

    by_torch = compute(tmp_path)
    stores = set(tmp_path.iterdir())
    monkeypatch.setattr(encoding, "FEWEST_PIXELS", 1)
    by_onnx = compute(tmp_path)
    assert {path.suffix for path in set(tmp_path.iterdir()) - stores} == {"", ".onnx"}
    assert by_torch.samples.fingerprint != by_onnx.samples.fingerprint
    everything = np.arange(len(data.samples))
    rows = [result.samples.read(everything) for result in (by_torch, by_onnx, compute(tmp_path))]
    np.testing.assert_allclose(*rows[:2], rtol=0, atol=1e-5)
    assert np.array_equal(rows[1], rows[2])
    assert np.array_equal(compute(None).samples.read(everything), rows[0])  # nothing is kept: PyTorch


def test_a_run_takes_its_features_from_the_graph_that_an_earlier_one_made(
    tmp_path: Path, run: Any, write_images: Any, monkeypatch: pytest.MonkeyPatch, exports: Mock
) -> None:
    write_images(tmp_path / "images", [f"{number}.png" for number in range(12)])
    monkeypatch.setattr(encoding, "FEWEST_PIXELS", 1)
    encoder = ("--backbone", "test_resnet", "--weights", "none", "--image-size", 32)
    train = ("train-target", tmp_path / "images", "--clusters", 2, *encoder, "--accelerator", "cpu")
    train += ("--set", "starts=1")
    assert run(*train, "--out", tmp_path / "first") == 0
    assert run(*train, "--out", tmp_path / "second") == 0
    assert run("predict", tmp_path / "first", tmp_path / "images", "--out", tmp_path / "clusters.csv") == 0
    assert exports.call_count == 1
    models = [ucds.load(tmp_path / name).stored.model.state_dict() for name in ("first", "second")]
    assert all(torch.equal(weight, models[1][name]) for name, weight in models[0].items())
