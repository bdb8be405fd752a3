"""What a trained baseline leaves behind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn


@dataclass(frozen=True, eq=False)
class Clustering:
    """A clustering of the target's samples, and what it cost.

    Attributes:
        labels: ``(n,)`` cluster of each sample, in their order.
        seconds: of the training and of the clustering; frozen features are not counted.
        images_seen: samples that went through the network in training steps, every view counted.
        model: the whole network, in evaluation mode.
    """

    labels: NDArray[np.int64]
    seconds: float
    images_seen: int
    model: nn.Module
