"""Computes the features of frozen encoders: the one place for training, prediction and bulk work.

An encoder runs in PyTorch, or as a graph in ONNX Runtime, which takes less time on a processor
(``benchmarks/encoder.md``). Features of the two differ by rounding.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from ucds.backbones import Backbone
from ucds.choices import EncoderRuntime
from ucds.errors import InputError, one_line
from ucds.math.arrays import FloatArray
from ucds.models import state_digest
from ucds.training.onnx_graph import open_onnx, write_onnx
from ucds.training.prediction import evaluation_mode

LARGEST_DIFFERENCE = 1e-4
"""Bound on the difference between features of ONNX Runtime and of PyTorch, relative to the largest one."""

_COMPARED = 8  # inputs at most on which a graph is compared with its encoder

Encode = Callable[[Tensor], FloatArray]


def describe_runtime(runtime: EncoderRuntime) -> dict[str, str]:
    """Return the entry of a runtime in a description of features; none of PyTorch.

    Features of equal descriptions may be mixed, and descriptions older than this choice stay as they are.
    """
    return {} if runtime == "torch" else {"encoder_runtime": runtime}


class FrozenEncoder:
    """Function from inputs of a frozen encoder to their features, which can be pickled.

    For ONNX Runtime a graph is written when the first inputs come, and compared with the encoder on them. A
    process keeps it as long as the encoder, for the same weights and number of threads.

    Args:
        backbone: encoder, on the device of the inputs.
        runtime: library that computes; :func:`ucds.training.devices.require_runtime` has found that it can.
    """

    def __init__(self, backbone: Backbone, runtime: EncoderRuntime) -> None:
        self._backbone, self._runtime = backbone, runtime
        self._graph: Encode | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the graph to its process."""
        return {**self.__dict__, "_graph": None}

    def __call__(self, inputs: Tensor) -> FloatArray:
        """Compute features ``(n, width)`` fp32 of inputs ``(n, ...)``, in evaluation mode.

        Raises:
            InputError: a feature is not finite, the encoder cannot be written as a graph, or the graph gives
                other features.
        """
        if self._runtime == "torch":
            return _in_torch(self._backbone, inputs)
        if self._graph is None:
            self._graph = _graph_of(self._backbone, inputs)
        return _finite(self._graph(inputs))


def _in_torch(backbone: Backbone, inputs: Tensor) -> FloatArray:
    with evaluation_mode(backbone.module):
        return _finite(backbone.module(inputs).float().cpu().numpy())


def _finite(features: FloatArray) -> FloatArray:
    if not np.isfinite(features).all():
        raise InputError("the backbone's features are not finite: are its weights right?")
    return features


class _Graph(NamedTuple):
    """A graph in ONNX Runtime, and the weights and number of threads that it was made with."""

    weights: str
    threads: int
    encode: Encode


_GRAPHS: WeakKeyDictionary[nn.Module, _Graph] = WeakKeyDictionary()


def _graph_of(backbone: Backbone, inputs: Tensor) -> Encode:
    made_with = state_digest(backbone.module), torch.get_num_threads()
    known = _GRAPHS.get(backbone.module)
    if known is None or known[:2] != made_with:
        known = _GRAPHS[backbone.module] = _Graph(*made_with, _make_graph(backbone, inputs[:_COMPARED]))
    return known.encode


def _make_graph(backbone: Backbone, inputs: Tensor) -> Encode:
    """Write an encoder as a graph, and compare the features of inputs ``(m, ...)`` with the encoder's own."""
    expected = _in_torch(backbone, inputs)
    example = inputs[:2] if len(inputs) > 1 else inputs.repeat(2, *[1] * (inputs.ndim - 1))
    try:
        with evaluation_mode(backbone.module), warnings.catch_warnings(action="ignore"):
            run = open_onnx(write_onnx(backbone.module, example))
            found = run(inputs)
    except Exception as error:  # exporters raise nearly anything over an operation that they do not know
        name, reason = backbone.spec.name, one_line(error)
        raise InputError(
            f"the encoder {name!r} cannot run in ONNX Runtime: {reason}; leave out --encoder-runtime"
        ) from error
    apart = np.abs(found[0] - expected).max() / max(float(np.abs(expected).max()), 1e-30)
    if not apart <= LARGEST_DIFFERENCE:
        raise InputError(
            f"ONNX Runtime gives features that differ by {apart:.2g} of the largest one from those of the "
            f"encoder {backbone.spec.name!r}, and {LARGEST_DIFFERENCE:g} is allowed: leave out "
            "--encoder-runtime"
        )
    return lambda batch: run(batch)[0]
