"""The training loop of a baseline, with epochs of steps, updates and progress, and its result.

The original methods train for a given number of epochs and take the last model. So unlike a
:class:`ucds.gradients.stage.Stage`, a loop does not evaluate and select models, and cannot be resumed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ucds.config import Settings
from ucds.data.batches import DomainBalancedSampler
from ucds.data.dataset import Dataset
from ucds.errors import InputError, Interrupted, warn
from ucds.gradients.session import Session
from ucds.gradients.steps import Batch, Steps
from ucds.math.arrays import IntArray
from ucds.training.results import assess


@dataclass(frozen=True, eq=False)
class Clustering:
    """A clustering of the target samples, and its cost."""

    labels: IntArray  # (n,) cluster of each sample
    seconds: float  # of training and clustering; frozen features are not counted
    images_seen: int  # samples that passed through the network in training, every view counted
    model: nn.Module  # what was trained, in evaluation mode: the whole network, or its head
    information: float | None = None  # mutual, of two views; of methods that maximise it
    parameters: int = 0  # of the whole network in training, its frozen part included


class Loop(Steps):
    """Steps over one set of samples, epoch by epoch; every random choice is a function of (seed, name, step).

    The ``name`` of the baseline or of its stage is for logs; ``total`` is the number of steps of all epochs.
    """

    def __init__(
        self,
        session: Session[Settings],
        name: str,
        module: nn.Module,
        optimiser: Optimizer,
        data: Dataset,
        total: int,
    ) -> None:
        if session.runtime.processes > 1:
            raise InputError("baselines run on one device: leave out `devices`")
        if len(data.samples) < 2:
            raise InputError("training needs at least 2 samples, for batch normalisation")
        super().__init__(session, name, module, optimiser, data, total)
        self._step, self._begun = 0, time.monotonic()
        self.images_seen = 0  # inputs that went through the network in training
        self._session.compute.reporter.show(name, 0, total)

    @property
    def seconds(self) -> float:
        """Seconds since the loop was made."""
        return time.monotonic() - self._begun

    def epoch(self, sampler: DomainBalancedSampler) -> Iterator[Batch]:
        """Yield the batches of one epoch; the caller ends every step with :meth:`update`."""
        end = self._step + sampler.steps_per_epoch
        self.module.train()
        with closing(self.batches(sampler, self._step, end)) as batches, _denormals_as_zero():
            for batch in batches:
                yield batch
                self._step += 1
                losses = self.read_losses(self._step)
                if losses is not None:
                    self._session.compute.reporter.show(self._name, self._step, self._total, losses)
                if self._session.asked_to_stop():
                    raise Interrupted

    def forward(self, inputs: Tensor, *arguments: Any) -> Any:
        """Compute the module's output for a batch of inputs, in the run's precision."""
        self.images_seen += len(inputs)
        return self.module(inputs, *arguments)

    def finish(self, probabilities: Tensor) -> IntArray:
        """Log the final ``(n, K)`` probabilities, and return the most probable cluster of each sample."""
        evaluation = assess(probabilities.float().cpu().numpy(), self._step)
        figures = {"information": evaluation.information, "active_clusters": evaluation.active_clusters}
        self._session.write(self._name, self._step, "evaluation", figures)
        if evaluation.warning is not None:
            warn(f"{self._name}: {evaluation.warning}")
        return evaluation.labels


@contextmanager
def _denormals_as_zero() -> Iterator[None]:
    """Treat denormal floats as zero: confident predictions give such gradients, which slow a CPU tenfold."""
    before = not bool(torch.tensor([1e-39]) * 0.5)  # PyTorch has no function that tells
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
