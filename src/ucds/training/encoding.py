"""Computes the features of frozen encoders: the one place for training, prediction and bulk work.

On a processor ONNX Runtime computes them, in less time than PyTorch (``benchmarks/speed.md``); the graph
that it runs is kept in the cache. A few images go through PyTorch, because they take less time than the
graph takes to be made. Features of the two differ by rounding, and are kept apart.
"""

from __future__ import annotations

import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ucds.encoders.spec import FUNCTION, IDENTITY, EncoderSpec
from ucds.errors import DamagedFileError, InputError, NoSpaceError, one_line
from ucds.files import digest_of, read_sealed, write_sealed, write_text_atomically
from ucds.math.arrays import FloatArray
from ucds.networks.build import StoredBackbone
from ucds.networks.spec import Backbone
from ucds.training.options import Compute

LARGEST_DIFFERENCE = 1e-4
"""Bound on the difference between features of a graph and of its encoder, relative to their norm."""

FEWEST_PIXELS = 256 * 224**2
"""Pixels of all images together from which on a graph is made: those of 256 images of the usual size."""

_COMPARED = 8  # inputs on which a graph is compared with its encoder
_SEAL = "ucds-graph/1"
_PACKAGES = ("ucds", "torch", "onnx", "onnxruntime")


def describe_encoder(backbone: Backbone) -> dict[str, Any]:
    """Describe an encoder for JSON; encoders of equal descriptions give equal features."""
    return {"backbone": asdict(backbone.spec), "weights": backbone.digest}


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Switch a model to evaluation without gradients, and afterwards back to its former mode."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


@dataclass
class FrozenEncoder:
    """Function from inputs of a frozen encoder to their features, which can be pickled.

    Attributes:
        backbone: encoder, which is moved to ``device`` if PyTorch computes.
        device: device on which PyTorch computes.
        graph: ONNX graph of the encoder that :func:`find_graph` has found; PyTorch computes if ``None``.
        autocast: whether PyTorch computes in bfloat16 where that is enough.
    """

    backbone: Backbone
    device: torch.device
    graph: bytes | None = None
    autocast: bool = False

    @property
    def computed_by(self) -> str:
        """What computes the features: those of equal words, encoders and inputs are equal."""
        if self.graph is not None:
            return "onnxruntime"
        return f"torch on {self.device.type}{' in bfloat16' if self.autocast else ''}"

    def __getstate__(self) -> dict[str, Any]:
        """Leave the network to this process where the graph computes."""
        if self.graph is None:
            return self.__dict__
        backbone = StoredBackbone(self.backbone.spec, self.backbone.weights, {}, Path())
        return self.__dict__ | {"backbone": backbone}

    def __call__(self, inputs: FloatArray) -> FloatArray:
        """Compute features ``(n, width)`` fp32 of inputs ``(n, ...)``, in evaluation mode.

        Raises:
            InputError: a feature is not finite.
        """
        if self.graph is not None:
            features = run_onnx(self.graph, inputs)[0]
        else:
            module = self.backbone.module.to(self.device)
            enabled = torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast)
            with evaluation_mode(module), enabled:
                features = module(torch.from_numpy(inputs).to(self.device)).float().cpu().numpy()
        if not np.isfinite(features).all():
            raise InputError("the backbone's features are not finite: are its weights right?")
        return features


def suits_graph(spec: EncoderSpec, n_samples: int, device: torch.device) -> bool:
    """Return whether ONNX Runtime is to compute the features of so many samples on a device, if it can.

    The answer does not depend on what the cache holds: so the same samples get the same features. An encoder
    of the caller's own stays in PyTorch.
    """
    if device.type != "cpu" or spec.input_size is None or spec.name in (IDENTITY, FUNCTION):
        return False
    return n_samples * spec.input_size**2 >= FEWEST_PIXELS


def choose_encoder(
    backbone: Backbone,
    device: torch.device,
    n_samples: int,
    example: Callable[[int], FloatArray],
    compute: Compute,
    once: Callable[[Callable[[], bytes | None]], bytes | None] = lambda work: work(),
) -> FrozenEncoder:
    """Choose what computes the features of so many images, in training and in bulk alike.

    The function ``example`` is that of :func:`find_graph`; ``once`` does work in one process, and returns
    the result in all.
    """
    cache, graph = compute.cache, None
    if cache is not None and suits_graph(backbone.spec, n_samples, device):
        graph = once(lambda: find_graph(backbone, example, cache, compute.reporter.say))
    autocast = device.type == "cuda" and compute.precision == "bf16-mixed"
    return FrozenEncoder(backbone, device, graph, autocast)


def find_graph(
    backbone: Backbone, example: Callable[[int], FloatArray], folder: Path, say: Callable[[str], None]
) -> bytes | None:
    """Take the graph of an encoder, an ONNX file, from the folder of a cache, or make it and keep it there.

    The function ``example`` returns the first inputs, at most as many as it is asked for; the features of a
    new graph are compared on them with those of the encoder. Where it has other features or none, ``say`` is
    told the reason, and the answer is ``None``; so it is where this machine has no room to make a graph now,
    which is tried again the next time. A graph that cannot be kept is used all the same.
    """
    facts = describe_encoder(backbone) | {name: version(name) for name in _PACKAGES}
    path = folder / f"graph-{digest_of(json.dumps(facts, sort_keys=True).encode())[:32]}.onnx"
    refusal = path.with_suffix(".txt")
    with suppress(FileNotFoundError, DamagedFileError):
        return read_sealed(path, _SEAL)
    if refusal.exists():
        content, reason = None, refusal.read_text(encoding="utf-8")
    else:
        inputs = example(_COMPARED)
        try:
            content, reason = _make_graph(backbone, inputs)
        except (MemoryError, OSError) as error:  # of this machine, and not of the encoder
            content, reason = None, f"no graph can be made now ({one_line(error)})"
        else:
            with suppress(NoSpaceError):  # it is made again the next time
                if content is None:
                    write_text_atomically(refusal, reason)
                else:
                    write_sealed(path, _SEAL, content)
    if content is None:
        say(f"PyTorch computes the features, in more time than ONNX Runtime would take: {reason}")
    return content


def _make_graph(backbone: Backbone, inputs: FloatArray) -> tuple[bytes | None, str]:
    """Write an encoder as a graph; return it, or ``None`` and the reason why it cannot be used."""
    expected = FrozenEncoder(backbone, torch.device("cpu"))(inputs)
    example = torch.from_numpy(inputs[:2] if len(inputs) > 1 else np.concatenate([inputs, inputs]))
    try:
        with evaluation_mode(backbone.module):
            content = write_onnx(backbone.module, example)
            found = run_onnx(content, inputs)[0]
    except (MemoryError, OSError):
        raise
    except Exception as error:  # exporters raise nearly anything over an operation that they do not know
        return None, f"the encoder {backbone.spec.name!r} cannot run there ({one_line(error)})"
    norms = np.maximum(np.linalg.norm(expected, axis=1), np.finfo(np.float32).tiny)
    apart = float((np.linalg.norm(found - expected, axis=1) / norms).max())
    if not apart <= LARGEST_DIFFERENCE:
        name, allowed = backbone.spec.name, f"{LARGEST_DIFFERENCE:g} is allowed"
        return None, f"features of the encoder {name!r} differ there by {apart:.2g} of their norm ({allowed})"
    return content, ""


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


def run_onnx(content: bytes, batch: FloatArray) -> tuple[FloatArray, ...]:
    """Compute the outputs of an ONNX graph, which has one input, on the processor, in PyTorch's threads."""
    session = _open_session(content, torch.get_num_threads())
    return tuple(session.run(None, {session.get_inputs()[0].name: batch}))


@lru_cache(maxsize=2)
def _open_session(content: bytes, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


# Threads do not live on after a fork, and a child would wait for them for ever. So sessions are closed before
# one, and opened anew where they are used again.
os.register_at_fork(before=_open_session.cache_clear, after_in_child=partial(torch.set_num_threads, 1))
