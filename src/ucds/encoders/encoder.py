"""Encoders: functions from inputs to features, which stay fixed while a head is learned on the features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ucds.arguments import checked
from ucds.choices import Accelerator, Precision
from ucds.encoders.spec import FUNCTION, IDENTITY, LENGTHS, ChannelTriple, EncoderSpec
from ucds.errors import InputError
from ucds.files import digest_of
from ucds.math.arrays import DoubleArray, FloatArray

if TYPE_CHECKING:
    from ucds.encoders.graphs import GraphEncoder

NO_WEIGHTS = "none (identity)"
_SMALLEST = 1e-150  # length of a vector that has a direction


class Encoder(ABC):
    """A function from inputs ``(n, ...)`` float32 to features ``(n, width)`` float32, which can be pickled.

    Attributes:
        spec: description of the encoder.
        weights: origin of the weights, for logs and records: ``"package: ..."``, ``"hub: ..."``,
            ``"file: ..."`` with the start of its SHA-256, ``"none (identity)"`` or ``"given"``.
        computed_by: program that computes the features; equal programs give equal features for equal inputs.
    """

    spec: EncoderSpec
    weights: str = NO_WEIGHTS
    computed_by: str = "numpy"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.spec.name!r}, width={self.spec.width}, {self.weights!r})"

    @property
    def digest(self) -> str:
        """Hexadecimal digest of the weights; empty if nothing identifies what the encoder computes."""
        return digest_of(b"")

    @abstractmethod
    def compute(self, inputs: FloatArray) -> NDArray[Any]:
        """Compute the features of inputs; callers call the encoder itself, which checks the features."""

    def __call__(self, inputs: FloatArray) -> FloatArray:
        """Compute features ``(n, width)`` float32 of inputs ``(n, ...)``.

        Raises:
            InputError: the encoder does not return one row of finite features per input.
        """
        features = np.asarray(self.compute(inputs))
        expected = (len(inputs), self.spec.width)
        if features.shape != expected or not np.issubdtype(features.dtype, np.floating):
            raise InputError(
                f"{self.spec.called} must return one row of features per input, floating-point "
                f"numbers of shape {expected}, but returned {features.dtype} of shape {features.shape}"
            )
        features = features.astype(np.float32, copy=False)
        if not np.isfinite(features).all():
            raise InputError("the encoder's features are not finite: check its weights")
        return features

    def on(self, accelerator: Accelerator, precision: Precision, *, elsewhere: bool = False) -> Encoder:
        """Return the encoder for a device; with ``elsewhere``, for one of another machine.

        An encoder that PyTorch does not compute returns itself.
        """
        return self

    def rest(self) -> None:
        """Release the memory that computing took, before other work."""
        return

    def saved(self) -> dict[str, NDArray[Any]]:
        """Return the arrays from which, with the description, the encoder can be made again."""
        return {}

    def as_graph(self) -> GraphEncoder:
        """Return the encoder as a graph, to which an export adds the head; refuse if it cannot be one."""
        raise InputError(f"{self.spec.called} cannot be written in ONNX")

    def describe(self) -> dict[str, Any]:
        """Describe the encoder for JSON; encoders of equal descriptions give equal features."""
        return {"encoder": asdict(self.spec), "weights": self.digest}


class IdentityEncoder(Encoder):
    """Takes inputs that are features already, such as a table's columns: ``(n, width)`` in, the same out."""

    def __init__(self, width: int, columns: tuple[str, ...] | None = None) -> None:
        self.spec = EncoderSpec(IDENTITY, width, columns=columns)

    def compute(self, inputs: FloatArray) -> NDArray[Any]:
        """Return the inputs."""
        return inputs


class ViewpointEncoder(Encoder):
    """Turns ``(n, d)`` vectors into ``(n, d + 1)`` unit vectors: directions from a point outside their plane.

    From there, vectors of equal direction and different length lie in different directions. Far ones, of
    which a table may have a few, come close to each other. The ``(d + 1,)`` point is subtracted in double
    precision from the vectors, whose last entry is zero: far from zero, single precision loses differences.
    """

    def __init__(self, point: DoubleArray, columns: tuple[str, ...] | None = None) -> None:
        self.point = np.asarray(point, np.float64)
        self.spec = EncoderSpec(LENGTHS, len(self.point), columns=columns)

    @property
    def digest(self) -> str:
        """Hexadecimal digest of the point."""
        return digest_of(self.point.tobytes())

    def saved(self) -> dict[str, NDArray[Any]]:
        """Return the point."""
        return {"point": self.point}

    def compute(self, inputs: FloatArray) -> NDArray[Any]:
        """Return the directions of vectors from the point."""
        apart = np.pad(inputs.astype(np.float64), ((0, 0), (0, 1))) - self.point
        lengths = np.linalg.norm(apart, axis=1, keepdims=True)
        seen: DoubleArray = apart / np.maximum(lengths, _SMALLEST)
        return seen


class FunctionEncoder(Encoder):
    """Takes any function from a batch of inputs to features as an encoder.

    The cache does not keep its features, because no digest identifies what a function computes.

    Args:
        function: maps inputs ``(n, ...)`` float32 to features ``(n, width)``: if ``input_size`` is given,
            cropped and normalised images ``(n, 3, S, S)``; otherwise vectors ``(n, d)``.
        width: number of features that the function returns; if ``None``, found by a call on ``example``.
        example: batch of at least one input; zeros of ``input_size`` pixels if ``None``.
        input_size: side S of the square crop in pixels, if inputs are images.
        mean: mean of each channel that the function expects, if inputs are images; ImageNet's if ``None``.
        std: standard deviation of each channel, likewise.

    Raises:
        InputError: the width is not given and cannot be found.
    """

    weights = "given"
    computed_by = "function"

    @checked
    def __init__(
        self,
        function: Callable[[FloatArray], Any],
        width: int | None = None,
        *,
        example: FloatArray | None = None,
        input_size: int | None = None,
        mean: ChannelTriple | None = None,
        std: ChannelTriple | None = None,
    ) -> None:
        self.function = function
        if width is None:
            if example is None and input_size is not None:
                example = np.zeros((1, 3, input_size, input_size), np.float32)
            if example is None:
                raise InputError("give the width of the function's features, or an example to find it with")
            found = np.asarray(self.compute(np.asarray(example, np.float32)))
            if found.ndim != 2:
                raise InputError(f"the function must return features (n, width), not of shape {found.shape}")
            width = found.shape[1]
        self.spec = EncoderSpec(FUNCTION, width, input_size, mean, std)

    @property
    def digest(self) -> str:
        """Empty, so that features of one function are never taken for those of another."""
        return ""

    def compute(self, inputs: FloatArray) -> NDArray[Any]:
        """Call the function."""
        return np.asarray(self.function(inputs))
