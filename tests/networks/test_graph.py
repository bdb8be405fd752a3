"""Tests of networks as graphs: made once, compared with the network, and kept in the cache."""

import errno
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from ucds.encoders.graphs import GraphEncoder
from ucds.encoders.spec import EncoderSpec
from ucds.errors import InputError, UcdsWarning
from ucds.networks.build import build_network
from ucds.networks.encoder import NetworkEncoder
from ucds.networks.graph import graph_of
from ucds.networks.onnx_files import LARGEST_DIFFERENCE, NoGraphError, make_graph

sys.path.append(str(Path(__file__).parent))  # for `odd_networks`
from odd_networks import Drawing, Untraceable

pytestmark = pytest.mark.torch

SMALL = "test_resnet"


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """The exporter, which counts its calls."""
    export = Mock(wraps=torch.onnx.export)
    monkeypatch.setattr(torch.onnx, "export", export)
    return export


def images(size: int = 32, n: int = 11) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).standard_normal((n, 3, size, size), np.float32)


def small(module: nn.Module, width: int = 3) -> NetworkEncoder:
    whole = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), module)
    return NetworkEncoder(whole, EncoderSpec("small", width, 32), "none (random)")


def test_a_graph_has_the_features_of_its_network(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
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


def test_a_graph_is_made_once_for_the_same_weights_and_again_when_it_is_damaged(
    tmp_path: Path, exports: Mock
) -> None:
    cache, weights = tmp_path / "cache", tmp_path / "weights.safetensors"

    def write(seed: int) -> None:
        network = build_network(SMALL, weights="none", input_size=32, seed=seed)
        save_file({name: tensor.contiguous() for name, tensor in network.state().items()}, weights)

    write(1)
    graph = graph_of(SMALL, str(weights), 32, cache)
    assert cache.stat().st_mode & 0o077 == 0
    (path,) = cache.iterdir()  # no temporary file either
    assert graph_of(SMALL, str(weights), 32, cache).digest == graph.digest
    assert exports.call_count == 1
    whole = path.read_bytes()
    path.write_bytes(whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:])
    assert graph_of(SMALL, str(weights), 32, cache).digest == graph.digest
    assert path.read_bytes() == whole
    assert exports.call_count == 2
    write(2)
    others = [graph_of(SMALL, str(weights), 32, cache), graph_of(SMALL, str(weights), 64, cache)]
    assert len({graph.digest, *(other.digest for other in others)}) >= 2
    assert others[1].spec.input_size == 64


def test_a_known_graph_needs_no_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph_of(SMALL, "none", 32, tmp_path)
    for name in ("ucds.networks.build", "ucds.networks.onnx_files"):
        monkeypatch.setitem(sys.modules, name, None)
    assert isinstance(graph_of(SMALL, "none", 32, tmp_path), GraphEncoder)


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder is to be")
    with pytest.raises(InputError, match="cannot create the folder .*deeper"):
        graph_of(SMALL, "none", 32, tmp_path / "cache" / "deeper")
    assert isinstance(graph_of(SMALL, "none", 32, None), GraphEncoder)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (Drawing(), r"the graph of the network 'small' gives other features: they differ by "),
        (Untraceable(), r"the network 'small' cannot be written in ONNX \("),
    ],
)
def test_what_no_graph_holds_is_said(module: nn.Module, reason: str) -> None:
    with pytest.raises(NoGraphError, match=f"^{reason}[^\n]*$") as told:
        make_graph(small(module))
    assert told.value.lasts


WANTS = [
    OSError(errno.ENOSPC, "No space left on device"),
    MemoryError(),
    RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
    RuntimeError("std::bad_alloc"),
    RuntimeError("cannot write: No space left on device"),
]
"""Errors of the machine, as the libraries raise them."""
LASTING = [NotImplementedError("an operation"), RuntimeError("contiguous(memory_format=...) is not known")]


@pytest.mark.parametrize(
    ("error", "tries"), [*((want, 2) for want in WANTS), *((lasting, 1) for lasting in LASTING)]
)
def test_a_network_without_a_graph_is_tried_again_only_if_the_machine_lacked_something(
    tmp_path: Path, exports: Mock, error: Exception, tries: int
) -> None:
    exports.side_effect = error
    told = "^PyTorch computes the features, in more time than ONNX Runtime would take: "
    calls = []
    for _ in range(2):
        with pytest.warns(UcdsWarning, match=told):
            assert isinstance(graph_of(SMALL, "none", 32, tmp_path), NetworkEncoder)
        calls.append(exports.call_count)
    assert (calls[1] > calls[0]) == (tries == 2)
    exports.side_effect = None
    if tries == 2:
        assert isinstance(graph_of(SMALL, "none", 32, tmp_path), GraphEncoder)
