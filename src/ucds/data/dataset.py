"""A data set as a model takes it: samples, and the view of them that an encoder sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ucds.choices import IMAGENET_MEAN, IMAGENET_STD
from ucds.data.samples import Samples
from ucds.math.arrays import FloatArray


class View:
    """Turns raw samples into model inputs; this base class returns vectors unchanged."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one model input, without the batch; -1 stands for any length."""
        return (-1,)

    def test(self, raw: NDArray[Any]) -> FloatArray:
        """Make the views ``(b, *input_shape)`` float32 of raw samples, without randomness."""
        return np.asarray(raw, np.float32)


@dataclass(frozen=True)
class Dataset:
    """Unlabelled samples of one or several domains, with the view that turns them into model inputs."""

    samples: Samples
    view: View = field(default_factory=View)


class ImageView(View):
    """Centre crop of images, normalised.

    The ``crop`` is a side in pixels. Mean and standard deviation are those of each colour, of pixel values
    between 0 and 1; ImageNet's by default.
    """

    def __init__(
        self, crop: int = 224, mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD
    ) -> None:
        self.crop, self.mean, self.std = crop, tuple(mean), tuple(std)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Shape of a view: ``(3, crop, crop)``."""
        return 3, self.crop, self.crop

    @property
    def affine(self) -> tuple[FloatArray, FloatArray]:
        """Scale and shift ``(3, 1, 1)`` that normalise pixel values between 0 and 255."""
        scales = [1 / (255 * s) for s in self.std]
        shifts = [-m / s for m, s in zip(self.mean, self.std, strict=True)]
        scale, shift = (np.array(values, np.float32).reshape(3, 1, 1) for values in (scales, shifts))
        return scale, shift

    def test(self, raw: NDArray[Any]) -> FloatArray:
        """Cut out the centre ``(b, 3, crop, crop)`` of ``(b, 3, S, S)`` uint8 images, and normalise."""
        self.check(raw.shape)
        top, left = ((side - self.crop) // 2 for side in raw.shape[2:])
        scale, shift = self.affine
        images = raw[..., top : top + self.crop, left : left + self.crop].astype(np.float32)
        images *= scale
        images += shift
        return images

    def check(self, shape: tuple[int, ...]) -> None:
        """Make sure that images of a shape can be cropped; a ValueError says that they cannot."""
        if len(shape) != 4 or shape[1] != 3 or min(shape[2:]) < self.crop:
            raise ValueError(f"images of shape {tuple(shape)} cannot be cropped to {self.input_shape}")
