"""Keep the mathematics in single precision or better, whatever the caller's autocast asks for."""

from __future__ import annotations

import torch
from torch import Tensor


def at_least_single(values: Tensor) -> Tensor:
    """Return ``values`` in fp32, or untouched when they are fp32 or fp64 already.

    Entropies and logarithms of small probabilities lose all their digits in half precision.
    """
    return values if values.dtype in (torch.float32, torch.float64) else values.float()
