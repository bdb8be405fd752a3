"""Encoders that are ONNX graphs, which ONNX Runtime computes on the processor.

A graph may come from anybody. So its operators, files and sizes are checked whenever it is opened, and its
computation has bounded memory: a graph that names larger sizes is refused before memory is taken.
"""

from __future__ import annotations

import math
import os
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ucds.encoders.encoder import Encoder
from ucds.encoders.onnx_files import GraphFacts, read_graph
from ucds.encoders.spec import EncoderSpec
from ucds.errors import InputError, brief, one_line, printable
from ucds.files import digest_of
from ucds.math.arrays import FloatArray, processors

MOST_MEMORY = 4 * 2**30
"""Largest memory in bytes for the computations of all graphs in a process."""

_AT_ONCE, _PIXELS_AT_ONCE = 8, 8 * 518**2  # images of a batch, fewer where they are large
_REFUSED = "cannot be used as an encoder"


class GraphEncoder(Encoder):
    """Computes the features of images by an ONNX graph, whose content is checked when it is first used."""

    computed_by = "onnxruntime"

    def __init__(self, content: bytes, spec: EncoderSpec, weights: str) -> None:
        self.content, self.spec, self.weights = content, spec, weights

    @property
    def digest(self) -> str:
        """Hexadecimal digest of the graph."""
        return digest_of(self.content)

    def saved(self) -> dict[str, NDArray[Any]]:
        """Return the graph as an array."""
        return {"graph": np.frombuffer(self.content, np.uint8)}

    def as_graph(self) -> GraphEncoder:
        """Return the encoder itself."""
        return self

    def compute(self, inputs: FloatArray) -> NDArray[Any]:
        """Compute features in batches of one size, so that those of an image do not depend on the others."""
        session = open_session(self.content, self.spec.name)
        pixels = max(1, math.prod(inputs.shape[2:]))
        at_once = fixed_batch(session) or max(1, min(_AT_ONCE, _PIXELS_AT_ONCE // pixels))
        found = [np.empty((0, self.spec.width), np.float32)]
        for start in range(0, len(inputs), at_once):
            batch = np.zeros((at_once, *inputs.shape[1:]), np.float32)
            batch[: len(inputs) - start] = inputs[start : start + at_once]
            rows = pool(run_output(session, self.spec.output, batch, self.spec.name), self.spec.pooling)
            if rows.shape[1:] != (self.spec.width,):
                wrong = f"returns features of shape {rows.shape[1:]}, not {self.spec.width} as described"
                raise InputError(f"{self.spec.called} {wrong}")
            found.append(rows[: len(inputs) - start])
        return np.concatenate(found)

    def rest(self) -> None:
        """Compute one image, after which ONNX Runtime releases all memory except the weights."""
        from onnxruntime import RunOptions

        options, session = RunOptions(), open_session(self.content, self.spec.name)
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        size = self.spec.input_size or 1
        image = np.zeros((fixed_batch(session) or 1, 3, size, size), np.float32)
        session.run(None, {session.get_inputs()[0].name: image}, options)


def fixed_batch(session: Any) -> int | None:
    """Return the number of images that a graph takes at a time; ``None`` if it takes any number."""
    count = session.get_inputs()[0].shape[0]
    return count if isinstance(count, int) else None


def run_output(session: Any, output: str | None, batch: FloatArray, name: str) -> NDArray[Any]:
    """Compute one output of a graph (the first if ``None``): floating-point numbers for each input.

    It is refused if it does not take the inputs, needs too much memory, or returns something else.
    """
    chosen = output or session.get_outputs()[0].name
    try:
        found = session.run([chosen], {session.get_inputs()[0].name: batch})[0]
    except Exception as error:  # the library's errors have no class in common but this
        raise InputError(f"encoder '{name}': {_reason(error)}") from None
    array = found if isinstance(found, np.ndarray) else np.array(None)  # a sequence, or nothing
    if not np.issubdtype(array.dtype, np.floating) or array.ndim < 2 or len(array) != len(batch):
        what = f"{array.dtype} of shape {array.shape} for {len(batch)} images"
        raise InputError(f"{name} must return features per image, but its output {brief(chosen)} is {what}")
    return array


def pool(features: NDArray[Any], pooling: str | None) -> NDArray[Any]:
    """Turn features of tokens ``(n, tokens, width)`` or maps ``(n, width, h, w)`` into rows ``(n, width)``.

    Without ``pooling``, only trailing axes of length 1 are dropped.
    """
    if pooling == "class" and features.ndim == 3:
        return features[:, 0]
    if pooling == "mean" and features.ndim in (3, 4):
        means: NDArray[Any] = features.mean(axis=1 if features.ndim == 3 else (2, 3), dtype=np.float32)
        return means
    while features.ndim > 2 and features.shape[-1] == 1:
        features = features[..., 0]
    return features


def check_graph(content: bytes, name: str) -> GraphFacts:
    """Read what a graph takes and returns, after a check that nothing in it can do harm."""
    try:
        return read_graph(content)
    except InputError as error:
        raise InputError(printable(f"{name} {_REFUSED}: {error}")) from None


def open_session(content: bytes, name: str) -> Any:
    """Open a graph that passes :func:`check_graph`, or take the session of one that was opened lately."""
    return _open_session(content, name, _threads())


@lru_cache(maxsize=2)
def _open_session(content: bytes, name: str, threads: int) -> Any:
    import onnxruntime  # it takes a tenth of a second, which a command with known features need not wait for

    facts = check_graph(content, name)
    _bound_memory()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # what it would print becomes an error
    options.add_session_config_entry("session.use_env_allocators", "1")
    # What is computed when a graph is opened lies beside the bounded memory.
    each = str(MOST_MEMORY // 4 // facts.nodes)
    options.add_session_config_entry("optimization.constant_folding_max_output_size_in_bytes", each)
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library's errors have no class in common but this
        raise InputError(f"{name} {_REFUSED}: {_reason(error)}") from None


@cache
def _bound_memory() -> None:
    """Give all sessions of this process one bounded pool of memory."""
    import onnxruntime as runtime

    arena = runtime.OrtArenaCfg({"max_mem": MOST_MEMORY, "arena_extend_strategy": 1})
    kind = runtime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    place = runtime.OrtMemoryInfo("Cpu", kind, 0, runtime.OrtMemType.DEFAULT)
    runtime.create_and_register_allocator(place, arena)


def _reason(error: Exception) -> str:
    if "Available memory" in str(error) or isinstance(error, MemoryError):
        return f"it needs more than {MOST_MEMORY >> 30} GiB of memory"
    return f"ONNX Runtime cannot compute it ({printable(one_line(error))})"


def _threads() -> int:
    """Return the number of threads that compute: OMP_NUM_THREADS, or one per processor."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    return int(said) if said.isdecimal() and int(said) > 0 else processors()


# Threads do not live on after a fork, and a child would wait for them for ever. So sessions are closed before
# one, and opened anew where they are used again.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_open_session.cache_clear)
