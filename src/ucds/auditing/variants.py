"""Changed copies of samples, as an attacker makes them: of images by small edits, of vectors by noise."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, pad

Variant = Callable[[Tensor, torch.Generator], Tensor]
"""Makes a changed copy of ``(b, 3, S, S)`` uint8 images or ``(b, d)`` vectors, of the same shape and type."""


def shift(down: int, right: int) -> Variant:
    """Return a variant that moves images by some pixels and repeats their edges."""

    def move(rows: Tensor, generator: torch.Generator) -> Tensor:
        side, reach = rows.shape[-1], max(abs(down), abs(right))
        wide = pad(rows.float(), (reach,) * 4, mode="replicate")
        top, left = reach - down, reach - right
        return wide[..., top : top + side, left : left + side].to(rows.dtype)

    return move


def brighten(factor: float) -> Variant:
    """Return a variant that multiplies all pixels of images."""
    return lambda rows, generator: to_pixels(rows * factor)


def add_noise(deviation: float) -> Variant:
    """Return a variant that adds normal noise of a deviation in the unit of the pixels or vectors."""

    def disturb(rows: Tensor, generator: torch.Generator) -> Tensor:
        noisy = rows + deviation * torch.randn(rows.shape, generator=generator)
        return to_pixels(noisy) if rows.dtype == torch.uint8 else noisy

    return disturb


def flip(rows: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror images left to right."""
    return rows.flip(-1)


def blur(rows: Tensor, generator: torch.Generator) -> Tensor:
    """Average every pixel of images with its eight neighbours."""
    return to_pixels(avg_pool2d(pad(rows.float(), (1, 1, 1, 1), mode="replicate"), 3, 1))


def to_pixels(values: Tensor) -> Tensor:
    """Round and clip values to uint8."""
    return values.round().clamp(0, 255).to(torch.uint8)


_NEXT = (
    flip,
    shift(6, -6),
    brighten(0.7),
    add_noise(12.0),
    blur,
    shift(-10, 10),
    brighten(1.3),
    shift(10, 4),
)


def image_variants(count: int) -> list[Variant]:
    """Return the first ``count`` of a list of edits; beyond its length, stronger noise."""
    return [*_NEXT, *(add_noise(12.0 + 6 * i) for i in range(1, count))][:count]


def vector_variants(count: int, spread: float) -> list[Variant]:
    """Return ``count`` variants of noise between one and sixteen times the spread of vectors.

    Noise falls into all directions, and a model looks at few of them; so much of it is needed.

    Args:
        count: number of variants.
        spread: mean standard deviation of an entry over the samples.
    """
    strengths = torch.logspace(0, 4, count, base=2.0).tolist()
    return [add_noise(spread * strength) for strength in strengths]
