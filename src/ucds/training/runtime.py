"""Where a run happens: device, precision, processes, folder. The only importer of Fabric."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, nn
from torch.optim import Optimizer

from ucds.choices import Accelerator, Precision
from ucds.errors import InputError
from ucds.training.batch_norm import synchronise_batch_norm
from ucds.training.progress import Quiet, Reporter
from ucds.training.run_folder import RunFolder

T = TypeVar("T")


class Runtime:
    """Everything the stages share that is not the method.

    Args:
        accelerator: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        devices: processes, one a device.
        precision: ``"32-true"`` or ``"bf16-mixed"``; the transport stays in fp32 in both.
        seed: of every random choice of the run.
        folder: where to keep checkpoints, log and result; ``None`` keeps nothing.
        reporter: whom to tell.
        checkpoint_seconds: at most so many seconds of work are lost to a crash.

    Raises:
        UserError: the machine has no such accelerator, or fewer devices.
    """

    def __init__(
        self,
        *,
        accelerator: Accelerator = "auto",
        devices: int = 1,
        precision: Precision = "32-true",
        seed: int = 0,
        folder: RunFolder | None = None,
        reporter: Reporter | None = None,
        checkpoint_seconds: float = 60.0,
    ) -> None:
        _check_devices(accelerator, devices)
        logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
        # Batch statistics are already those of all processes, so broadcasting them is waste; and the
        # broadcast would overwrite buffers between the two forward passes of a step.
        strategy: Any = DDPStrategy(broadcast_buffers=False) if devices > 1 else "auto"
        self._fabric = Fabric(
            accelerator=accelerator, devices=devices, precision=precision, strategy=strategy
        )
        self.seed = seed
        self.folder = folder
        self.reporter: Reporter = reporter or Quiet()
        self.checkpoint_seconds = checkpoint_seconds
        self.stop_requested = False

    def launch(self) -> None:
        """Start the other processes of a run on several devices; nothing to do for one."""
        self._fabric.launch()

    @property
    def device(self) -> torch.device:
        """The device of this process."""
        return self._fabric.device

    @property
    def processes(self) -> int:
        """Number of processes that share every batch."""
        return self._fabric.world_size

    @property
    def rank(self) -> int:
        """This process's place among them; the one at 0 writes and speaks."""
        return self._fabric.global_rank

    def place(self, model: nn.Module, optimiser: Optimizer) -> tuple[Any, Optimizer]:
        """Move a model to the device and make its training steps span all processes."""
        if self.processes > 1:
            synchronise_batch_norm(model)
        module, placed = self._fabric.setup(model, optimiser)
        return module, placed

    def seed_layers(self, seed: int) -> None:
        """Seed the global generators that stochastic layers draw from on this device.

        ``torch.manual_seed`` would do, but where CUDA has not been started it queues a call, with a
        stack trace, every time.
        """
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision of forward passes."""
        return self._fabric.autocast()

    def asked_to_stop(self) -> bool:
        """Whether any process was asked to stop; all of them learn it at the same step."""
        if self.processes == 1:
            return self.stop_requested
        asked = torch.tensor(float(self.stop_requested), device=self.device)
        return bool(self._fabric.all_reduce(asked, reduce_op="sum"))

    def broadcast(self, value: T) -> T:
        """Give every process the value that the first one has."""
        given: T = self._fabric.broadcast(value)
        return given

    def wait_for_all(self) -> None:
        """Go on only when every process has come here."""
        self._fabric.barrier()

    def backward(self, loss: Tensor) -> None:
        """Compute gradients, in the run's precision."""
        self._fabric.backward(loss)

    def share(self, n: int) -> slice:
        """Rows of a pooled batch of ``n`` that this process works on."""
        size = n // self.processes
        return slice(self.rank * size, (self.rank + 1) * size)

    def pool(self, rows: Tensor) -> Tensor:
        """Put every process's rows together, in order of rank, and let gradients flow back to each.

        Every process then computes the same loss of the pooled batch. Its gradient arrives once from
        each of them and is averaged over them afterwards, so it counts once.
        """
        if self.processes == 1:
            return rows
        gathered = self._fabric.all_gather(rows, sync_grads=rows.requires_grad)
        assert isinstance(gathered, Tensor)
        return gathered.flatten(0, 1)


def _check_devices(accelerator: Accelerator, devices: int) -> None:
    if devices < 1:
        raise InputError(f"the number of devices must be at least 1, not {devices}")
    available = torch.cuda.device_count()
    if accelerator == "cuda" and not available:
        raise InputError("no CUDA device found: use --accelerator cpu")
    if accelerator != "cpu" and 0 < available < devices:
        raise InputError(f"asked for {devices} CUDA devices, but this machine has {available}")
