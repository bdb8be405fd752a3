"""Writes networks as ONNX graphs, and compares each graph with its network."""

from __future__ import annotations

import io
import logging
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ucds.encoders.graphs import GraphEncoder
from ucds.errors import InputError, one_line
from ucds.networks.encoder import NetworkEncoder, evaluation_mode

LARGEST_DIFFERENCE = 1e-4
"""Largest allowed difference between features of a graph and its network, relative to their norm."""

_WANT = re.compile("(not enough|out of|allocate) memory|bad_alloc|no space left", re.IGNORECASE)
_COMPARED = 8  # images on which a graph is compared with its network


class NoGraphError(InputError):
    """A network cannot be made into a graph."""

    def __init__(self, reason: str, *, lasts: bool = True) -> None:
        super().__init__(reason)
        self.lasts = lasts  # at every try, as it is not for want of memory or disk space


def make_graph(network: NetworkEncoder) -> bytes:
    """Write a network of images as a graph, the content of an ONNX file, if both have the same features."""
    name = network.spec.name
    try:
        content, apart = _written(network)
    except Exception as error:  # exporters raise nearly anything over an operation that they do not know
        if _is_want(error):
            raise NoGraphError(f"no graph can be made now ({one_line(error)})", lasts=False) from None
        raise NoGraphError(f"the network {name!r} cannot be written in ONNX ({one_line(error)})") from None
    if apart > LARGEST_DIFFERENCE:
        raise NoGraphError(
            f"the graph of the network {name!r} gives other features: they differ by {apart:.2g} of their "
            f"norm ({LARGEST_DIFFERENCE:g} is allowed)"
        )
    return content


def _is_want(error: BaseException | None) -> bool:
    """Return whether this machine lacked memory or disk space, by the text of the error."""
    while error is not None:
        if isinstance(error, MemoryError | OSError) or _WANT.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _written(network: NetworkEncoder) -> tuple[bytes, float]:
    """Return a graph, and the largest difference between its features and the network's."""
    size = network.spec.input_size
    assert size is not None  # a network of images
    # Smooth noise of several scales, with the mean and the spread that a network expects.
    rng = np.random.default_rng(0)
    images = rng.normal(size=(_COMPARED, 3, size, size)).astype(np.float32)
    images[::2] = images[::2].cumsum(2).cumsum(3) / size
    expected = network(images)
    with evaluation_mode(network.module):
        content = _write_onnx(network.module, torch.from_numpy(images[:2]))
    found = GraphEncoder(content, network.spec, network.weights)(images)
    norms = np.maximum(np.linalg.norm(expected, axis=1), np.finfo(np.float32).tiny)
    apart = float((np.linalg.norm(found - expected, axis=1) / norms).max())
    return content, apart if np.isfinite(apart) else float("inf")


def _write_onnx(module: nn.Module, example: Tensor) -> bytes:
    """Return the contents of an ONNX file of a network that takes any number of samples.

    PyTorch has two exporters. The tracing one takes a tenth of the time of the other, which knows more
    operations and is tried if the first fails. Both may raise nearly any error for an unknown operation, and
    a graph has to be compared with its network.

    The network is in evaluation mode on the CPU, and the example a batch of at least two inputs ``(n, ...)``.
    """
    import onnx  # it takes a second, which a command with a known graph need not wait for

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    named: dict[str, Any] = {"input_names": ["inputs"], "output_names": ["features"]}
    content = io.BytesIO()
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        try:
            axes = {name: {0: "n"} for name in ("inputs", "features")}
            # PyTorch's stubs know no file in memory.
            traced: dict[str, Any] = {"f": content, "dynamo": False, "dynamic_axes": axes}
            with _silent_stdout():
                torch.onnx.export(module, (example,), **traced, **named)
            model = onnx.load_model_from_string(content.getvalue())
        except Exception as error:  # of an operation that this exporter does not know
            if _is_want(error):
                raise
            shapes = ({0: torch.export.Dim("n", min=1)},)
            program = torch.onnx.export(module, (example,), dynamic_shapes=shapes, verbose=False, **named)
            assert program is not None
            model = program.model_proto
    written: bytes = model.SerializeToString()
    return written


@contextmanager
def _silent_stdout() -> Iterator[None]:
    """Drop what is written to file descriptor 1: for a graph that fails, PyTorch prints all operations."""
    kept = os.dup(1)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
