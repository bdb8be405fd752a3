"""Tests of networks as graphs: made once, compared with the network, and kept in the cache."""

import errno
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ucds.encoders.graphs import GraphEncoder
from ucds.encoders.spec import EncoderSpec
from ucds.errors import InputError, UcdsWarning
from ucds.networks.build import build_network
from ucds.networks.encoder import NetworkEncoder
from ucds.networks.graph import graph_of
from ucds.networks.onnx_files import LARGEST_DIFFERENCE, NoGraphError, make_graph

pytestmark = pytest.mark.torch

SMALL = "test_resnet"
NOW, EVER = "no graph can be made now", "the network 'small' cannot be written in ONNX"


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """The exporter, which can be made to fail."""
    export = Mock(wraps=torch.onnx.export)
    monkeypatch.setattr(torch.onnx, "export", export)
    return export


class Drawing(nn.Module):
    """Gives other features each time."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + torch.rand_like(inputs)


def images(size: int = 32, n: int = 11) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).standard_normal((n, 3, size, size), np.float32)


def small(module: nn.Module, width: int = 3) -> NetworkEncoder:
    whole = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), module)
    return NetworkEncoder(whole, EncoderSpec("small", width, 32), "none (random)")


def test_a_graph_has_the_features_of_its_network_and_then_needs_no_pytorch(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = build_network(SMALL, weights="none", input_size=32)
    graph = graph_of(SMALL, "none", 32, tmp_path)
    assert isinstance(graph, GraphEncoder)
    assert capfd.readouterr().out == ""  # where a command writes its JSON
    assert (graph.spec, graph.weights) == (network.spec, network.weights)
    expected = network(images())
    allowed = LARGEST_DIFFERENCE * np.linalg.norm(expected, axis=1)
    for batch in (slice(0, 9), slice(9, 10), slice(0, 11)):  # batches of several lengths
        apart = np.linalg.norm(graph(images()[batch]) - expected[batch], axis=1)
        assert (apart <= allowed[batch]).all()
    for name in ("ucds.networks.build", "ucds.networks.onnx_files"):
        monkeypatch.setitem(sys.modules, name, None)
    known = graph_of(SMALL, "none", 32, tmp_path)
    assert (known.spec, known.weights, known.digest) == (graph.spec, graph.weights, graph.digest)


def test_a_graph_is_made_again_for_other_weights_or_sizes_and_when_it_is_damaged(tmp_path: Path) -> None:
    cache, weights = tmp_path / "cache", tmp_path / "weights.safetensors"

    def write(seed: int) -> None:
        network = build_network(SMALL, weights="none", input_size=32, seed=seed)
        save_file({name: tensor.contiguous() for name, tensor in network.state().items()}, weights)

    write(1)
    graph = graph_of(SMALL, str(weights), 32, cache)
    assert cache.stat().st_mode & 0o077 == 0
    (path,) = cache.iterdir()  # no temporary file either
    whole = path.read_bytes()
    path.write_bytes(whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:])
    assert graph_of(SMALL, str(weights), 32, cache).digest == graph.digest
    assert path.read_bytes() == whole
    assert graph_of(SMALL, str(weights), 64, cache).spec.input_size == 64
    write(2)
    assert graph_of(SMALL, str(weights), 32, cache).digest != graph.digest


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder is to be")
    with pytest.raises(InputError, match="cannot create the folder .*deeper"):
        graph_of(SMALL, "none", 32, tmp_path / "cache" / "deeper")
    assert isinstance(graph_of(SMALL, "none", 32, None), GraphEncoder)


def test_a_graph_with_other_features_than_its_network_is_refused() -> None:
    reason = "^the graph of the network 'small' gives other features: "
    with pytest.raises(NoGraphError, match=reason) as told:
        make_graph(small(Drawing()))
    assert told.value.lasts


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), NOW),
        (MemoryError(), NOW),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes"), NOW),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), NOW),
        (RuntimeError("std::bad_alloc"), NOW),
        (RuntimeError("cannot write: No space left on device"), NOW),
        (NotImplementedError("an operation\nthat no graph holds"), EVER),
        (RuntimeError("contiguous(memory_format=...) is not known"), EVER),
    ],
)
def test_what_the_machine_lacked_is_told_from_what_no_graph_holds(
    exports: Mock, error: Exception, reason: str
) -> None:
    exports.side_effect = error
    with pytest.raises(NoGraphError, match=f"^{reason} \\([^\n]*\\)$") as told:
        make_graph(small(nn.Identity()))
    assert told.value.lasts == (reason == EVER)


@pytest.mark.parametrize(("error", "again"), [(MemoryError(), True), (NotImplementedError("what"), False)])
def test_a_network_without_a_graph_is_tried_again_only_if_the_machine_lacked_something(
    tmp_path: Path, exports: Mock, error: Exception, again: bool
) -> None:
    exports.side_effect = error
    told = "^PyTorch computes the features, in more time than ONNX Runtime would take: "
    with pytest.warns(UcdsWarning, match=told):
        assert isinstance(graph_of(SMALL, "none", 32, tmp_path), NetworkEncoder)
    exports.side_effect = None
    with nullcontext() if again else pytest.warns(UcdsWarning, match=told):
        assert isinstance(graph_of(SMALL, "none", 32, tmp_path), GraphEncoder) == again
