"""Writes networks as ONNX graphs, and compares both."""

from __future__ import annotations

import io
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ucds.encoders.graphs import run_graph
from ucds.errors import one_line, warn
from ucds.networks.encoder import NetworkEncoder, evaluation_mode

LARGEST_DIFFERENCE = 1e-4
"""Bound on the difference between features of a graph and of its network, relative to their norm."""

_COMPARED = 8  # images on which a graph is compared with its network


def make_graph(network: NetworkEncoder) -> bytes | None:
    """Write a network of images as a graph, and compare their features.

    Returns:
        The content of an ONNX file; ``None`` where the graph has other features or none.

    Warns:
        UcdsWarning: there is no graph, and why.
    """
    try:
        content, apart = _written(network)
    except (MemoryError, OSError) as error:  # of this machine, and not of the network
        reason = f"no graph can be made now ({one_line(error)})"
    except Exception as error:  # exporters raise nearly anything over an operation that they do not know
        reason = f"the network {network.spec.name!r} cannot run there ({one_line(error)})"
    else:
        if apart <= LARGEST_DIFFERENCE:
            return content
        reason = (
            f"features of the network {network.spec.name!r} differ there by {apart:.2g} of their norm "
            f"({LARGEST_DIFFERENCE:g} is allowed)"
        )
    warn(f"PyTorch computes the features, in more time than ONNX Runtime would take: {reason}")
    return None


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
        content = write_onnx(network.module, torch.from_numpy(images[:2]))
    found = run_graph(content, images)[0]
    norms = np.maximum(np.linalg.norm(expected, axis=1), np.finfo(np.float32).tiny)
    apart = float((np.linalg.norm(found - expected, axis=1) / norms).max())
    return content, apart if np.isfinite(apart) else float("inf")


def write_onnx(
    module: nn.Module,
    example: Tensor,
    *,
    input_name: str = "inputs",
    outputs: Sequence[str] = ("features",),
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """Return the contents of an ONNX file of a network that takes any number of samples.

    PyTorch has two exporters. The one that traces takes a tenth of the time of the other one, which knows
    more operations and is asked where the first one fails. Both raise nearly any error over an operation
    that they do not know, and a graph has to be compared with its network.

    The network is in evaluation mode on the CPU, and the example a batch of at least two inputs ``(n, ...)``.
    The file holds the texts of ``metadata`` besides, by name.
    """
    import onnx  # it takes a second, which a command with a known graph need not wait for

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    named: dict[str, Any] = {"input_names": [input_name], "output_names": list(outputs)}
    content = io.BytesIO()
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        try:
            axes = {name: {0: "n"} for name in (input_name, *outputs)}
            # PyTorch's stubs know no file in memory.
            traced: dict[str, Any] = {"f": content, "dynamo": False, "dynamic_axes": axes}
            with _silent_stdout():
                torch.onnx.export(module, (example,), **traced, **named)
            model = onnx.load_model_from_string(content.getvalue())
        except (MemoryError, OSError):
            raise
        except Exception:  # of an operation that this exporter does not know
            shapes = ({0: torch.export.Dim("n", min=1)},)
            program = torch.onnx.export(module, (example,), dynamic_shapes=shapes, verbose=False, **named)
            assert program is not None
            model = program.model_proto
    for name, text in (metadata or {}).items():
        model.metadata_props.add(key=name, value=text)
    written: bytes = model.SerializeToString()
    return written


@contextmanager
def _silent_stdout() -> Iterator[None]:
    """Drop what is written to file descriptor 1: of a graph that fails, PyTorch prints all operations."""
    kept = os.dup(1)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
