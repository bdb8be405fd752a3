"""Networks that no graph holds."""

import torch
from torch import Tensor, nn


class Drawing(nn.Module):
    """Gives other features each time."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + torch.rand_like(inputs)


class Untraceable(nn.Module):
    """Runs, but not while its operations are recorded."""

    def forward(self, inputs: Tensor) -> Tensor:
        if torch.jit.is_tracing() or torch.compiler.is_compiling():
            raise NotImplementedError("an operation\nthat no graph holds")
        return inputs
