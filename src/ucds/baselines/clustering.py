"""The result of a baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn


@dataclass(frozen=True, eq=False)
class Clustering:
    """A clustering of the target samples, and its cost.

    Attributes:
        labels: ``(n,)`` cluster of each sample.
        seconds: seconds of training and clustering; frozen features are not counted.
        images_seen: number of samples that passed through the network in training, every view counted.
        model: whole network, in evaluation mode.
        information: mutual information of the clusters of two views, of methods that maximise it.
    """

    labels: NDArray[np.int64]
    seconds: float
    images_seen: int
    model: nn.Module
    information: float | None = None
