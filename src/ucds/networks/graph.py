"""Networks by name as ONNX graphs, which are made once and kept in the cache.

This module loads PyTorch only where a graph has to be made: what finds it in the cache does not wait for
seconds.
"""

from __future__ import annotations

import json
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from ucds.choices import NO_WEIGHTS
from ucds.encoders.encoder import Encoder
from ucds.encoders.graphs import GraphEncoder
from ucds.encoders.spec import EncoderSpec
from ucds.errors import DamagedFileError, NoSpaceError
from ucds.files import digest_of, make_private, read_sealed, write_sealed

if TYPE_CHECKING:
    from ucds.networks.encoder import NetworkEncoder

_SEAL = "ucds-graph/2"
_LIBRARIES = ("ucds", "torch", "torchvision", "timm", "onnx", "onnxruntime")
_DESCRIBED = TypeAdapter(tuple[EncoderSpec, str])  # with the origin of the weights


def graph_of(name: str, weights: str, input_size: int | None, cache: Path | None) -> Encoder:
    """Take the graph of a network from a cache, or build the network and make its graph.

    Published weights of a name are taken to stay the same in one version of their library. A graph that
    cannot be kept is used all the same.

    Args:
        name: name of the network, see :func:`ucds.networks.build.build_network`.
        weights: word or file, as there.
        input_size: side of the square crop in pixels; the network's own if ``None``.
        cache: folder of the cache; ``None`` keeps nothing.

    Returns:
        The graph; the network itself, which takes more time, where no graph of it can be made.

    Raises:
        InputError: the name is unknown, or the weights cannot be had or do not fit.

    Warns:
        UcdsWarning: no graph can be made, and why.
    """
    given = Path(weights)
    content = digest_of(given.read_bytes()) if weights != NO_WEIGHTS and given.is_file() else ""
    facts = [name, input_size, weights if not content else given.name, content, *map(version, _LIBRARIES)]
    path = cache and cache / f"graph-{digest_of(json.dumps(facts).encode())[:32]}.onnx"
    if path is not None:
        with suppress(FileNotFoundError, DamagedFileError):
            head, _, graph = read_sealed(path, _SEAL).partition(b"\n")
            return GraphEncoder(graph, *_DESCRIBED.validate_json(head))
    from ucds.networks.build import build_network
    from ucds.networks.onnx_files import make_graph

    network = build_network(name, weights=weights, input_size=input_size)
    made = make_graph(network)
    if path is not None and made is not None:
        with suppress(NoSpaceError):
            make_private(path.parent)
            head = _DESCRIBED.dump_json((network.spec, network.weights))
            write_sealed(path, _SEAL, head + b"\n" + made)
    return network if made is None else GraphEncoder(made, network.spec, network.weights)


def network_of(name: str, weights: str, input_size: int | None) -> NetworkEncoder:
    """Build a network that is to be trained, or that a GPU computes; arguments and errors as above."""
    from ucds.networks.build import build_network

    return build_network(name, weights=weights, input_size=input_size)
