"""Description of an encoder: what it takes, how images are prepared for it, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from pydantic import ConfigDict

from ucds.choices import LARGEST_INPUT, Pooling, require_input_size
from ucds.errors import InputError, brief

IDENTITY = "identity"
FUNCTION = "function"  # of the caller's own, which no name can rebuild
LENGTHS = "lengths"  # of vectors whose lengths count, see :class:`ucds.encoders.encoder.ViewpointEncoder`
VECTORS = frozenset({IDENTITY, LENGTHS})
"""Names of the encoders of vectors, which need neither a graph nor weights."""

PHOTOGRAPHS, EDGES = "ucds/mobilenetv2", "ucds/oriented_edges"
"""Names of the encoders in the package: the default for photographs, and one of fixed edge filters."""

ChannelTriple = tuple[float, float, float]


@dataclass(frozen=True)
class EncoderSpec:
    """Description of an encoder, without its weights.

    Attributes:
        name: name by which the encoder was found, or ``"identity"``, ``"lengths"`` or ``"function"``.
        width: number of features per sample.
        input_size: side of the square crop in pixels; ``None`` when inputs are not images.
        mean: mean of each channel, of pixels in 0..1, that the encoder expects; ``None`` for vectors.
        std: standard deviation of each channel, likewise.
        columns: names of the columns of the training table, in its order; ``None`` without names.
        resize: side in pixels to which images are resized before the crop; ``None`` means 256 for a crop of
            224, and in proportion for other crops.
        output: output of the graph that holds the features; if ``None``, the only output.
        pooling: rule that makes features of a sample from those of its tokens, ``(n, tokens, width)``;
            ``None`` for an output ``(n, width)``.

    Raises:
        InputError: the width is below 1, a size below 1 or above 1,024, the crop is larger
            than the image, there is a wrong number of columns, means or standard deviations, or a standard
            deviation is not above 0.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    name: str
    width: int
    input_size: int | None = None
    mean: ChannelTriple | None = None
    std: ChannelTriple | None = None
    columns: tuple[str, ...] | None = None
    resize: int | None = None
    output: str | None = None
    pooling: Pooling | None = None

    @property
    def called(self) -> str:
        """What users call the encoder, for messages: not all of them have chosen one by a name."""
        if self.name in VECTORS:
            return "the encoder of embeddings"
        if self.name == FUNCTION:
            return "your encoder"
        return "the encoder in the package" if self.name == PHOTOGRAPHS else f"the encoder {brief(self.name)}"

    @property
    def takes(self) -> int:
        """Number of entries of the vectors that an encoder of vectors takes."""
        return self.width - (self.name == LENGTHS)

    @property
    def stored_size(self) -> int:
        """Side in pixels of the decoded images from which the crop is cut."""
        if self.input_size is None:
            raise InputError(f"{self.called} does not take images")
        return self.resize or round(self.input_size * 256 / 224)

    def __post_init__(self) -> None:
        if self.columns is not None and self.name in VECTORS and len(self.columns) != self.takes:
            raise InputError(f"{len(self.columns)} columns do not make {self.takes} features")
        if self.takes < 1:
            raise InputError(f"an encoder returns at least 1 feature, not {self.width}")
        require_input_size(self.input_size)
        if self.resize is not None and not (self.input_size or 1) <= self.resize <= 2 * LARGEST_INPUT:
            raise InputError(
                f"images of {self.resize} pixels are too small or too large for a crop of {self.input_size}"
            )
        for colours in (self.mean, self.std):
            if colours is not None and len(colours) != 3:
                raise InputError(f"mean and standard deviation have 3 numbers, not {len(colours)}")
        if self.std is not None and not all(value > 0 for value in self.std):
            raise InputError(f"an encoder's standard deviations must be above 0, not {self.std}")
        if self.pooling not in (None, *get_args(Pooling)):
            raise InputError(f"pooling is one of {', '.join(get_args(Pooling))}, not {brief(self.pooling)}")
