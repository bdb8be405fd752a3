"""A fixed bank of edge filters: a network that needs no training, for demonstrations and tests.

It takes the place of a pre-trained network: it gives everybody the same features.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from ucds.networks.encoder import NetworkEncoder, image_network

NAME = "ucds/oriented_edges"
ORIENTATIONS = 8
GRID = 4


class OrientedEdges(nn.Module):
    """Energy of edges in eight directions on a coarse grid, as in histograms of oriented gradients.

    The brightness gradient of each pixel is projected onto eight directions; only its magnitude counts,
    so light strokes on dark and dark strokes on light look alike. Each cell of a 4 x 4 grid is then
    averaged and scaled to about unit length. Source: Dalal and Triggs, CVPR 2005.
    """

    def __init__(self) -> None:
        super().__init__()
        angles = torch.arange(ORIENTATIONS) * math.pi / ORIENTATIONS
        smooth = torch.tensor([1.0, 2.0, 1.0])
        slope = torch.tensor([-1.0, 0.0, 1.0])
        horizontal, vertical = torch.outer(smooth, slope) / 8, torch.outer(slope, smooth) / 8
        filters = angles.cos()[:, None, None] * horizontal + angles.sin()[:, None, None] * vertical
        self.register_buffer("filters", filters.unsqueeze(1))
        self.filters: Tensor

    def forward(self, images: Tensor) -> Tensor:
        """Turn images ``(n, 3, h, w)`` into features ``(n, 128)``."""
        grey = images.float().mean(1, keepdim=True)
        edges = functional.conv2d(functional.pad(grey, (1, 1, 1, 1), mode="replicate"), self.filters)
        # Sharpened, so that an edge counts for its own direction more than for its neighbours'.
        energy = edges.abs() ** 2 / (edges.square().sum(1, keepdim=True).sqrt() + 1e-4)
        cells = functional.adaptive_avg_pool2d(energy, GRID)
        length = cells.square().sum(1, keepdim=True).sqrt()
        # An empty cell holds a short vector of noise; against the picture's mean length it stays short.
        typical = length.mean((2, 3), keepdim=True)
        return (cells / (length + 0.5 * typical + 1e-6)).flatten(1)


def create(*, input_size: int | None = None) -> NetworkEncoder:
    """Build the filter bank as a network for pictures of 32 pixels, or of ``input_size``."""
    centre, spread = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
    return image_network(
        NAME, OrientedEdges().eval(), input_size or 32, centre, spread, "none (fixed filters)"
    )
