"""Batch normalisation over the samples of all processes, on every device.

PyTorch's own synchronised layer runs on accelerators only. This one is plain arithmetic around a
differentiable all-reduce, so that a test can compare two CPU processes of 32 samples with one of 64.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce


def synchronise_batch_norm(module: nn.Module) -> None:
    """Make every batch normalisation in ``module`` use the statistics of all processes, in place.

    Parameters, buffers and their names stay as they are, so checkpoints stay valid.
    """
    for child in module.modules():
        if isinstance(child, nn.modules.batchnorm._BatchNorm) and not isinstance(child, _Synchronised):
            # A layer of its own kind with the same parameters, whatever wrapped or replaced it before.
            child.__class__ = type(f"Synchronised{type(child).__name__}", (_Synchronised, type(child)), {})


class _Synchronised(nn.modules.batchnorm._BatchNorm):
    """Class that replaces the class of a batch normalisation; it adds no state."""

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training or not dist.is_initialized():
            own: Tensor = super().forward(inputs)
            return own
        x = inputs.float() if inputs.dtype in (torch.bfloat16, torch.float16) else inputs
        axes = [0, *range(2, x.ndim)]
        count = x.new_tensor(x.numel() / x.shape[1])
        # Two rounds, mean first: E[x^2] - E[x]^2 would cancel in fp32.
        totals = _sum_over_processes(torch.cat([x.sum(axes), count.unsqueeze(0)]))
        total = totals[-1]
        shape = [1, -1, *[1] * (x.ndim - 2)]
        mean = totals[:-1] / total
        centred = x - mean.view(shape)
        variance = _sum_over_processes(centred.square().sum(axes)) / total
        self._track(mean.detach(), (variance * total / (total - 1)).detach())
        normal = centred * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            normal = normal * self.weight.view(shape) + self.bias.view(shape)
        return normal.to(inputs.dtype)

    def _track(self, mean: Tensor, variance: Tensor) -> None:
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        momentum = self.momentum
        if momentum is None:
            momentum = 1.0 / float(self.num_batches_tracked)  # type: ignore[arg-type]
        self.running_mean.lerp_(mean.to(self.running_mean), momentum)
        self.running_var.lerp_(variance.to(self.running_var), momentum)


def _sum_over_processes(values: Tensor) -> Tensor:
    """Sum a tensor over all processes; the gradient is summed likewise."""
    total: Tensor = all_reduce(values)  # type: ignore[no-untyped-call]
    return total
