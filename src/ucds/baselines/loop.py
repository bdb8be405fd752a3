"""The training steps of a baseline: what they see, their randomness, their updates, their progress.

The originals train for a given number of epochs and take the last model. So, unlike a
:class:`ucds.training.stage.Stage`, a loop neither evaluates and selects on the way nor can be resumed.
"""

from __future__ import annotations

import time
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from ucds.data.sampler import DomainBalancedSampler
from ucds.errors import Interrupted, UcdsWarning, UserError
from ucds.training.health import assess
from ucds.training.reader import Reader
from ucds.training.session import Session
from ucds.training.stage import TrainingData

_LOG_STEPS = 20
"""Steps between two looks at the losses; each look waits for the device."""


@dataclass(frozen=True)
class Batch:
    """What one step works on.

    Attributes:
        inputs: training views of the batch, on the device.
        index: ``(n,)`` positions of the batch in the samples, on the device.
    """

    inputs: Tensor
    index: Tensor


class Loop:
    """Steps over one set of samples; every random choice is a function of (seed, name, step).

    Args:
        session: the run.
        name: of the baseline or of its stage, in logs.
        module: trained in place.
        optimiser: of its parameters.
        data: samples and views to train on.
        total: steps of all epochs.

    Attributes:
        images_seen: inputs that went through the network in training so far.
        seconds: since the loop was made.

    Raises:
        UserError: there are several processes, or fewer than 2 samples.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        module: nn.Module,
        optimiser: Optimizer,
        data: TrainingData,
        total: int,
    ) -> None:
        self._session, self._name, self._data, self._total = session, name, data, total
        self._runtime = session.runtime
        if self._runtime.processes > 1:
            raise UserError("baselines run on one device")
        if len(data.samples) < 2:
            raise UserError("training needs at least 2 samples, for batch normalisation")
        self._module, self._optimiser = self._runtime.place(module, optimiser)
        self._step = 0
        self._terms: dict[str, Tensor] = {}
        self._begun = time.monotonic()
        self.images_seen = 0
        self._runtime.reporter.begin(name, total)

    @property
    def seconds(self) -> float:  # noqa: D102  (described above)
        return time.monotonic() - self._begun

    def epoch(self, sampler: DomainBalancedSampler) -> Iterator[Batch]:
        """Yield the batches of one epoch; the loop's body is to end with :meth:`update`.

        Raises:
            Interrupted: the run was asked to stop.
            UserError: the loss is no longer finite.
        """
        end, device = self._step + sampler.steps_per_epoch, self._runtime.device
        cuda = device.type == "cuda"
        self._module.train()
        with (
            Reader(self._data.samples, sampler, slice(None), end, pin=cuda) as reader,
            torch.random.fork_rng(devices=[device] if cuda else []),
            _denormals_as_zero(),
        ):
            while self._step < end:
                yield self._draw(reader)
                self._step += 1
                self._look()
                if self._runtime.asked_to_stop():
                    raise Interrupted

    def forward(self, inputs: Tensor, *arguments: Any) -> Any:
        """The module's output for a batch of inputs, in the run's precision."""
        self.images_seen += len(inputs)
        return self._module(inputs, *arguments)

    def update(self, **terms: Tensor) -> None:
        """Take one optimiser step on the sum of the (weighted) loss terms."""
        self._optimiser.zero_grad(set_to_none=True)
        self._runtime.fabric.backward(torch.stack(list(terms.values())).sum())
        self._optimiser.step()
        self._terms = {name: term.detach() for name, term in terms.items()}

    def finish(self, probabilities: Tensor) -> NDArray[np.int64]:
        """Sum up what the trained network says of all samples, ``(n, K)``.

        Returns:
            ``(n,)`` most probable cluster of each sample.

        Warns:
            UcdsWarning: the clustering has collapsed, or clusters are empty.
        """
        evaluation = assess(probabilities, self._step)
        figures = {"information": evaluation.information, "active_clusters": evaluation.active_clusters}
        self._session.write(self._name, self._step, "evaluation", figures)
        self._runtime.reporter.end()
        if evaluation.warning is not None:
            warnings.warn(f"{self._name}: {evaluation.warning}", UcdsWarning, stacklevel=3)
        labels: NDArray[np.int64] = evaluation.labels.numpy()
        return labels

    def _draw(self, reader: Reader) -> Batch:
        augmentation, layers = seeds_of(self._runtime.seed, self._name, self._step).spawn(2)
        self._runtime.seed_layers(int(layers.generate_state(1)[0]))
        index, raw = reader.take(self._step)
        draws = self._data.view.draw(len(index), generator_of(augmentation))
        raw = raw.to(self._runtime.device, non_blocking=True)
        return Batch(self._data.view.train(raw, draws), torch.from_numpy(index).to(raw.device))

    def _look(self) -> None:
        if self._step % _LOG_STEPS and self._step != self._total:
            return
        losses = {name: float(term) for name, term in self._terms.items()}
        if not np.isfinite(list(losses.values())).all():
            raise UserError(
                f"{self._name} is no longer finite at step {self._step} (loss {losses}): "
                "lower the learning rate"
            )
        self._session.write(self._name, self._step, "losses", losses)
        self._runtime.reporter.advance(self._step, losses)


@contextmanager
def _denormals_as_zero() -> Iterator[None]:
    """Sure predictions leave gradients too small for normal floats, with which a CPU is ten times as slow."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def seeds_of(seed: int, *what: str | int) -> np.random.SeedSequence:
    """The random numbers of one thing in a run, named by words and numbers."""
    return np.random.SeedSequence(
        [seed, *(zlib.crc32(w.encode()) if isinstance(w, str) else w for w in what)]
    )


def generator_of(seeds: np.random.SeedSequence) -> torch.Generator:
    """PyTorch's generator, on the CPU, of these random numbers."""
    return torch.Generator().manual_seed(int(seeds.generate_state(1)[0]))
