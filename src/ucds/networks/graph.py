"""Networks by name as ONNX graphs, which are made once and kept in the cache.

This module loads PyTorch only if a graph has to be made, so a graph in the cache is found without a delay.
"""

from __future__ import annotations

import json
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from pydantic import TypeAdapter

from ucds.choices import NO_WEIGHTS
from ucds.encoders.encoder import Encoder
from ucds.encoders.graphs import GraphEncoder
from ucds.encoders.spec import EncoderSpec
from ucds.errors import DamagedFileError, NoSpaceError, warn
from ucds.files import digest_of, make_private, read_sealed, write_sealed

_SEAL = "ucds-graph/3"
_LIBRARIES = ("ucds", "torch", "torchvision", "timm", "onnx", "onnxruntime")
_DESCRIBED = TypeAdapter(tuple[EncoderSpec, str, str])
"""Head of a file: the network, the origin of its weights, and why it has no graph."""


def graph_of(name: str, weights: str, input_size: int | None, cache: Path | None) -> Encoder:
    """Take the graph of a network from a cache, or build the network and make the graph.

    Published weights of a name are taken to stay the same in one version of their library. A graph that
    cannot be kept is used all the same. That a network cannot become a graph is kept like a graph; what
    failed for want of memory or disk space is tried again. Without a ``cache``, nothing is kept. Where no
    graph can be made, a warning says why, and the network itself is returned, which takes more time. Other
    arguments and errors are those of :func:`ucds.networks.build.build_network`.
    """
    given = Path(weights)
    content = digest_of(given.read_bytes()) if weights != NO_WEIGHTS and given.is_file() else ""
    facts = [name, input_size, weights if not content else given.name, content, *map(version, _LIBRARIES)]
    path = cache and cache / f"graph-{digest_of(json.dumps(facts).encode())[:32]}.onnx"
    graph, reason, lasts = b"", "", True
    if path is not None:
        with suppress(FileNotFoundError, DamagedFileError):
            head, _, graph = read_sealed(path, _SEAL).partition(b"\n")
            spec, origin, reason = _DESCRIBED.validate_json(head)
            if not reason:
                return GraphEncoder(graph, spec, origin)
    from ucds.networks.build import build_network
    from ucds.networks.onnx_files import NoGraphError, make_graph

    network = build_network(name, weights=weights, input_size=input_size)
    if not reason:
        try:
            graph = make_graph(network)
        except NoGraphError as error:
            reason, lasts = str(error), error.lasts
        if path is not None and lasts:
            with suppress(NoSpaceError):
                make_private(path.parent)
                head = _DESCRIBED.dump_json((network.spec, network.weights, reason))
                write_sealed(path, _SEAL, head + b"\n" + graph)
    if not reason:
        return GraphEncoder(graph, network.spec, network.weights)
    warn(f"PyTorch computes the features, in more time than ONNX Runtime would take: {reason}")
    return network
