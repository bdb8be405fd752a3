"""Steps of a training loop: batches read ahead, optimiser, updates and losses; also for baselines."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ucds.config import PCDSettings, Settings
from ucds.data.batches import DomainBalancedSampler
from ucds.data.dataset import Dataset
from ucds.data.image_files import map_ahead
from ucds.errors import InputError
from ucds.gradients.prepare import torch_generator
from ucds.gradients.session import Session
from ucds.gradients.views import in_training
from ucds.math.arrays import IntArray
from ucds.networks.model import ClusteringModel
from ucds.training.seeds import derive

LOG_STEPS = 20
"""Number of steps between two readings of the losses; each reading waits for the device."""


@dataclass(frozen=True)
class Batch:
    """A batch of training views."""

    inputs: Tensor  # this process's rows of the batch, on the device
    index: Tensor  # (n,) positions of the pooled batch in the samples, on the device
    rng: np.random.Generator  # of the step's other random choices, alike in all processes


class Steps:
    """Draws batches and updates a module in place; every random choice is a function of (seed, name, step).

    The name is that of the stage or baseline, in logs and messages; ``total`` is the number of all steps. The
    module and its optimiser are prepared for training steps that span all processes.
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
        self._session, self._name, self._data, self._total = session, name, data, total
        self.runtime, self._view = session.runtime, in_training(data.view)
        self.module, self.optimiser = self.runtime.place(module, optimiser)
        self._terms: dict[str, Tensor] = {}

    def batches(self, sampler: DomainBalancedSampler, start: int, end: int) -> Generator[Batch]:
        """Yield the batches of the steps from ``start`` up to ``end``; images are read one step ahead."""
        runtime, samples = self.runtime, self._data.samples
        share, cuda = runtime.share(sum(sampler.counts)), runtime.device.type == "cuda"

        def read(step: int) -> tuple[int, IntArray, Tensor]:
            index = sampler.batch(step)
            raw = torch.from_numpy(samples.read(index[share]))
            # A CUDA device reads page-locked memory asynchronously.
            return step, index, raw.pin_memory() if cuda else raw

        with ThreadPoolExecutor(1) as pool, torch.random.fork_rng(devices=[runtime.device] if cuda else []):
            steps = range(start, end)
            # A batch of vectors is read in less time than it takes to wake a thread.
            ahead = samples.kind == "images"
            for loaded in map_ahead(pool, read, steps, 2) if ahead else map(read, steps):
                yield self._batch(*loaded)

    def update(self, **terms: Tensor) -> None:
        """Take one optimiser step on the sum of the (weighted) loss terms of the pooled batch, by name."""
        self.optimiser.zero_grad(set_to_none=True)
        self.runtime.backward(torch.stack(list(terms.values())).sum())
        self.optimiser.step()
        self._terms = {name: term.detach() for name, term in terms.items()}

    def read_losses(self, step: int) -> dict[str, float] | None:
        """Log and return the losses of the latest update, after every twentieth one and after the last one.

        A loss that is no longer finite ends the run.
        """
        if step % LOG_STEPS and step != self._total:
            return None
        losses = {name: float(term) for name, term in self._terms.items()}
        if not np.isfinite(list(losses.values())).all():
            raise diverged(self._name, step, f"loss {losses}")
        self._session.write(self._name, step, "losses", losses)
        return losses

    def _batch(self, step: int, index: IntArray, raw: Tensor) -> Batch:
        runtime = self.runtime
        augmentation, other, layers = derive(self._session.seed, self._name, step).spawn(3)
        # Stochastic layers of a backbone (dropout, stochastic depth) draw from the global generator.
        runtime.seed_layers(int(layers.generate_state(1)[0]) + runtime.rank)
        draws = self._view.draw(len(index), torch_generator(augmentation))[runtime.share(len(index))]
        raw, rng = raw.to(runtime.device, non_blocking=True), np.random.default_rng(other)
        return Batch(self._view.train(raw, draws), torch.from_numpy(index).to(runtime.device), rng)


def diverged(name: str, step: int, what: str) -> InputError:
    """Return the error for a stage whose numbers are no longer finite."""
    return InputError(f"{name} is no longer finite at step {step} ({what}): lower the learning rate")


def build_optimiser(model: ClusteringModel, settings: PCDSettings) -> Optimizer:
    """Make SGD with one learning rate for pre-trained layers and a larger one for new layers."""
    backbone, bottleneck = model.encoder
    new = (*bottleneck.parameters(), model.prototypes)
    rated = [(backbone.parameters(), settings.learning_rate), (new, settings.new_layer_learning_rate)]
    trained = [([weight for weight in weights if weight.requires_grad], rate) for weights, rate in rated]
    return torch.optim.SGD(
        [{"params": params, "lr": rate, "initial_lr": rate} for params, rate in trained if params],
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        nesterov=settings.nesterov and settings.momentum > 0,
    )


def set_learning_rate(optimiser: Optimizer, progress: float, settings: PCDSettings) -> None:
    """Set ``eta = eta_0 (1 + a p)^-b`` in every group, where p is the share of the stage done, in [0, 1]."""
    factor = (1.0 + settings.decay_rate * progress) ** -settings.decay_power
    for group in optimiser.param_groups:
        group["lr"] = group["initial_lr"] * factor
