"""Device, precision and processes of a run. The only module that imports Fabric.

Fabric places models that are trained, computes in other precisions and joins several processes. It takes
seconds to load, so a single process loads it only for one of these purposes.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import DistError
from torch.optim import Optimizer

from ucds.errors import InputError
from ucds.networks.devices import check_devices, choose_device
from ucds.training.options import Compute
from ucds.training.processes import Processes, started_by_torchrun

if TYPE_CHECKING:
    from lightning_fabric import Fabric

T = TypeVar("T")


class Runtime:
    """Device and processes of a run: one process a device, or those that torchrun has started.

    Raises:
        InputError: the machine has no such accelerator, or fewer devices; torchrun has started another number
            of processes.
    """

    def __init__(self, compute: Compute, devices: int = 1) -> None:
        started = started_by_torchrun() or Processes(devices, 1)
        if devices not in (1, started.on_machine):
            raise InputError(
                f"`devices={devices}`, but torchrun has started {started.on_machine} processes on this "
                "machine: leave `devices` out"
            )
        check_devices(compute.accelerator, started.on_machine, compute.precision)
        self._started = started
        self.compute = compute

    @cached_property
    def _fabric(self) -> Fabric:
        from lightning_fabric import Fabric
        from lightning_fabric.strategies.ddp import DDPStrategy

        logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
        # Batch statistics are those of all processes already, and broadcasting them would overwrite buffers
        # between the two forward passes of a step.
        return Fabric(
            accelerator=self.compute.accelerator,
            devices=self._started.on_machine,
            num_nodes=self._started.machines,
            precision=self.compute.precision,
            strategy="auto" if self._alone else DDPStrategy(broadcast_buffers=False),
        )

    @property
    def _alone(self) -> bool:
        return self._started == Processes(1, 1)

    def launch(self) -> None:
        """Start the other processes of a run on several devices."""
        if not self._alone:
            self._fabric.launch()

    @property
    def device(self) -> torch.device:
        """Device of this process."""
        return choose_device(self.compute.accelerator) if self._alone else self._fabric.device

    @property
    def processes(self) -> int:
        """Number of processes that share every batch."""
        return 1 if self._alone else self._fabric.world_size

    @property
    def rank(self) -> int:
        """Position of this process among all; the process at 0 writes files and messages."""
        return 0 if self._alone else self._fabric.global_rank

    def place(self, model: nn.Module, optimiser: Optimizer) -> tuple[Any, Optimizer]:
        """Move a model and its optimiser to the device, and make training steps span all processes."""
        if self.processes > 1:
            _synchronise_batch_norm(model)
        module, placed = self._fabric.setup(model, optimiser)
        return module, placed

    def seed_layers(self, seed: int) -> None:
        """Seed the global generators of this device, from which stochastic layers draw."""
        # torch.manual_seed would queue a call, with a stack trace, every time CUDA has not been started.
        torch.default_generator.manual_seed(seed)
        if self.device.type != "cpu":
            torch.get_device_module(self.device).manual_seed(seed)

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context in which forward passes have the run's precision."""
        return nullcontext() if self.compute.precision == "32-true" else self._fabric.autocast()

    def any_of(self, asked: bool) -> bool:
        """Return in all processes whether a condition holds in any of them."""
        if self.processes == 1:
            return asked
        return bool(self._fabric.all_reduce(torch.tensor(float(asked), device=self.device), reduce_op="sum"))

    def broadcast(self, given: T) -> T:
        """Return the first process's value in all processes."""
        return given if self._alone else self._fabric.broadcast(given)

    def has_lost_others(self, error: Exception) -> bool:
        """Return whether an error says that another process of the run has ended."""
        if self.processes == 1 or not isinstance(error, RuntimeError):
            return False
        # NCCL raises an error class of its own; gloo's errors are told by the place that they name.
        return isinstance(error, DistError) or "gloo" in str(error).lower()

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients of a loss, in the run's precision."""
        self._fabric.backward(loss)

    def share(self, n: int) -> slice:
        """Return this process's rows of a pooled batch of ``n``."""
        size = n // self.processes
        return slice(self.rank * size, (self.rank + 1) * size)

    def pool(self, rows: Tensor) -> Tensor:
        """Concatenate the rows of all processes, in order of rank; gradients flow back to each process.

        Every process then computes the same loss of the pooled batch. The gradient of the loss arrives once
        from each process and is then averaged over them, so it counts once.
        """
        if self.processes == 1:
            return rows
        return _stack_over_processes(rows).flatten(0, 1)


def _stack_over_processes(own: Tensor) -> Tensor:
    stacked: Tensor = _StackOverProcesses.apply(own.contiguous())
    return stacked


class _StackOverProcesses(torch.autograd.Function):
    """Stacks one tensor of each process, of equal shapes; the gradients of all processes add up."""

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        everyone = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, own)
        return torch.stack(everyone)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total[dist.get_rank()]


def _synchronise_batch_norm(module: nn.Module) -> None:
    """Make every batch normalisation use the statistics of all processes, in place; names and values stay."""
    from timm.layers.norm_act import BatchNormAct2d, SyncBatchNormAct  # they take seconds

    plain = nn.modules.batchnorm._BatchNorm
    known = [kind.forward for kind in (plain, nn.SyncBatchNorm, BatchNormAct2d, SyncBatchNormAct)]
    for child in module.modules():
        if isinstance(child, plain) and not isinstance(child, _Synchronised):
            kind = type(child)
            if kind.forward not in known:
                raise InputError(
                    f"several processes cannot train the layer {kind.__name__}, a batch normalisation with a "
                    "forward pass of its own: leave `devices` out"
                )
            # A layer of its own kind with the same parameters, whatever wrapped or replaced it before.
            child.__class__ = type(f"Synchronised{kind.__name__}", (_Synchronised, kind), {})


class _Synchronised(nn.modules.batchnorm._BatchNorm):
    """Class that replaces the class of a batch normalisation; it adds no state.

    PyTorch's own synchronised layer runs on accelerators only. This one is plain arithmetic around a
    differentiable gathering, so that a test can compare two CPU processes of 32 samples with one of 64.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training or not dist.is_initialized():
            own: Tensor = super().forward(inputs)
            return own
        x = inputs.float() if inputs.dtype in (torch.bfloat16, torch.float16) else inputs
        axes = [0, *range(2, x.ndim)]
        count = x.new_tensor(x.numel() / x.shape[1])
        # Two rounds, mean first: E[x^2] - E[x]^2 would cancel in fp32.
        totals = _stack_over_processes(torch.cat([x.sum(axes), count.unsqueeze(0)])).sum(0)
        total = totals[-1]
        shape = [1, -1, *[1] * (x.ndim - 2)]
        mean = totals[:-1] / total
        centred = x - mean.view(shape)
        variance = _stack_over_processes(centred.square().sum(axes)).sum(0) / total
        self._track(mean.detach(), (variance * total / (total - 1)).detach())
        normal = centred * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            normal = normal * self.weight.view(shape) + self.bias.view(shape)
        normal = normal.to(inputs.dtype)
        # timm's BatchNormAct2d is a batch normalisation that drops units and activates besides.
        for name in ("drop", "act"):
            if name in self._modules:
                normal = getattr(self, name)(normal)
        return normal

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
