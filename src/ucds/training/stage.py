"""One stage of training as a stream of steps, with everything around a step taken care of.

The loops in ``source`` and ``target`` read like the paper's Algorithm 1 because this module owns the
rest: which samples a step sees, the schedule, evaluation, logging, checkpoints and resuming.

Every random choice of a step is a function of (seed, stage, step), so a run that was killed and
resumed at any step goes on exactly as if it had never stopped.
"""

from __future__ import annotations

import time
import warnings
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ucds.backbones.spec import IDENTITY
from ucds.data.sampler import DomainBalancedSampler
from ucds.data.samples import Samples
from ucds.data.views import View
from ucds.domains import sample_weights
from ucds.errors import Interrupted, UcdsWarning, UserError
from ucds.models import ClusteringModel, ModelOutput
from ucds.training.health import Evaluation, assess, select
from ucds.training.optimiser import build_optimiser, set_learning_rate
from ucds.training.prediction import predict
from ucds.training.reader import Reader
from ucds.training.session import Session, StageResult

_LOG_STEPS = 20
"""Steps between two looks at the losses; each look waits for the device."""


class StageState(Protocol):
    """What a stage's loop carries from step to step besides the model."""

    def tensors(self) -> dict[str, Tensor]:
        """Its tensors by name."""

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take over tensors that :meth:`tensors` gave before."""

    @property
    def warning(self) -> str | None:
        """One sentence about what went wrong on the way, at the end of the stage."""


@dataclass(frozen=True)
class TrainingData:
    """Samples and the views of them that a model trains on and is tested with."""

    samples: Samples
    view: View


@dataclass(frozen=True)
class Step:
    """What one step of a stage works on.

    Attributes:
        progress: share of the stage that is done, in [0, 1).
        inputs: this process's rows of the augmented batch, on the device.
        index: ``(n,)`` positions of the pooled batch in the stage's samples, on the device.
        rng: source of the step's further random choices, alike in all processes.
        predictions: ``(N, K)`` fresh evaluation-mode predictions of the evaluation set, when there are
            any since the step before.
    """

    progress: float
    inputs: Tensor
    index: Tensor
    rng: np.random.Generator
    predictions: Tensor | None


@dataclass
class _Record:
    """The part of a stage that checkpoints keep beside model and optimiser."""

    step: int = 0
    seconds: float = 0.0
    evaluations: list[Evaluation] = field(default_factory=list)
    kept_model: dict[str, Tensor] = field(default_factory=dict)
    kept_state: dict[str, Tensor] = field(default_factory=dict)


class Stage:
    """One stage over one set of samples.

    Args:
        name: of the stage, in logs and checkpoints.
        model: trained in place; ends with the weights of the selected evaluation.
        data: the samples to train on.
        evaluation: the samples to predict and to select the model with; the training samples if ``None``.
        epochs: passes over as many samples as ``data`` holds.
        state: what the loop carries; resumed in place.
        session: the run this stage is part of.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        model: ClusteringModel,
        data: TrainingData,
        state: StageState,
        *,
        epochs: int,
        evaluation: Samples | None = None,
    ) -> None:
        self.name = name
        self.model = model
        self.runtime = session.runtime
        self.config = session.config
        self._session = session
        self._data = data
        self._evaluation = data.samples if evaluation is None else evaluation
        self._state = state
        samples = data.samples
        self._sampler = make_sampler(samples, session)
        self.counts = self._sampler.counts
        self.weights = sample_weights(self.counts, self.runtime.device)
        self._total = epochs * self._sampler.steps_per_epoch
        n = self.config.evaluations_per_stage
        self._moments = {-(-self._total * i // n) for i in range(1, n + 1)}
        self._module, self._optimiser = self.runtime.place(model, build_optimiser(model, self.config))
        self._record = _Record()
        self._terms: dict[str, Tensor] = {}

    def steps(self) -> Iterator[Step]:
        """Yield the stage's steps, from the one a checkpoint ends at; none when the stage is finished.

        Between two steps it evaluates, logs and saves.

        Raises:
            Interrupted: the run was asked to stop; its work is saved.
            UserError: the loss is no longer finite.
        """
        self._resume()
        if self._session.result_of(self.name) is not None:
            return
        with self._reader() as reader, self._own_random_state(), _threads_for(self.model):
            self._begin()
            predictions = self._predict_again()
            started = saved = time.monotonic()
            while self._record.step < self._total:
                yield self._draw(reader, predictions)
                self._record.step += 1
                self._look()
                predictions = self._evaluate() if self._record.step in self._moments else None
                now = time.monotonic()
                self._record.seconds += now - started
                started = now
                if predictions is not None or now - saved > self.runtime.checkpoint_seconds:
                    self._save()
                    saved = now
                self._heed_stop()
            self._finish()

    def forward(self, inputs: Tensor) -> ModelOutput:
        """Features and logits of the pooled batch, from this process's rows of it."""
        output = self._module(inputs)
        return ModelOutput(self.runtime.pool(output.features), self.runtime.pool(output.logits))

    def pool(self, inputs: Tensor) -> Tensor:
        """The pooled batch, from this process's rows of it."""
        return self.runtime.pool(inputs)

    def share(self, inputs: Tensor) -> Tensor:
        """This process's rows of a pooled batch."""
        return inputs[self.runtime.share(len(inputs))]

    def update(self, **terms: Tensor) -> None:
        """Take one optimiser step on the sum of the (weighted) loss terms of the pooled batch."""
        set_learning_rate(self._optimiser, self._record.step / self._total, self.config)
        self._optimiser.zero_grad(set_to_none=True)
        self.runtime.fabric.backward(torch.stack(list(terms.values())).sum())
        self._optimiser.step()
        self._terms = {name: term.detach() for name, term in terms.items()}

    def result(self) -> StageResult:
        """What the finished stage leaves behind.

        Raises:
            RuntimeError: the stage is not finished.
        """
        result = self._session.result_of(self.name)
        if result is None:
            raise RuntimeError(f"stage {self.name} is not finished")
        return result

    def _reader(self) -> Reader:
        samples, runtime = self._data.samples, self.runtime
        share = runtime.share(sum(self.counts))
        return Reader(samples, self._sampler, share, self._total, pin=runtime.device.type == "cuda")

    def _own_random_state(self) -> AbstractContextManager[None]:
        device = self.runtime.device
        return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])

    def _begin(self) -> None:
        self.model.train()
        if self.runtime.rank == 0:
            self.runtime.reporter.begin(self.name, self._total, self._record.step)

    def _predict_again(self) -> Tensor | None:
        """Predictions that the evaluation just before a resumed step had already made."""
        return self._predict() if self._record.step in self._moments else None

    def _predict(self) -> Tensor:
        batch_size = self.config.prediction_batch_size
        return predict(self.model, self._evaluation, self._data.view, self.runtime, batch_size)

    def _draw(self, reader: Reader, predictions: Tensor | None) -> Step:
        number = self._record.step
        seeds = np.random.SeedSequence([self.runtime.seed, zlib.crc32(self.name.encode()), number])
        augmentation, other, layers = seeds.spawn(3)
        # Stochastic layers of a backbone (dropout, stochastic depth) draw from the global generator.
        self.runtime.seed_layers(int(layers.generate_state(1)[0]) + self.runtime.rank)
        index, raw = reader.take(number)
        generator = torch.Generator().manual_seed(int(augmentation.generate_state(1)[0]))
        draws = self._data.view.draw(len(index), generator)[self.runtime.share(len(index))]
        return Step(
            progress=number / self._total,
            inputs=self._data.view.train(raw.to(self.runtime.device, non_blocking=True), draws),
            index=torch.from_numpy(index).to(self.runtime.device),
            rng=np.random.default_rng(other),
            predictions=predictions,
        )

    def _look(self) -> None:
        step = self._record.step
        if step % _LOG_STEPS and step != self._total:
            return
        losses = self._finite_losses()
        self._session.write(self.name, step, "losses", losses)
        if self.runtime.rank == 0:
            self.runtime.reporter.advance(step, losses | self._vital_signs())

    def _finite_losses(self) -> dict[str, float]:
        losses = {name: float(term) for name, term in self._terms.items()}
        if not np.isfinite(list(losses.values())).all():
            raise self._diverged(f"loss {losses}")
        return losses

    def _diverged(self, what: str) -> UserError:
        return UserError(
            f"stage {self.name} is no longer finite at step {self._record.step} ({what}): "
            "lower the learning rate"
        )

    def _vital_signs(self) -> dict[str, float]:
        if not self._record.evaluations:
            return {}
        last = self._record.evaluations[-1]
        return {"entropy": last.conditional_entropy, "clusters": last.active_clusters}

    def _evaluate(self) -> Tensor:
        predictions = self._predict()
        evaluation = assess(predictions, self._record.step)
        if not np.isfinite(evaluation.information):
            raise self._diverged("predictions")
        self._record.evaluations.append(evaluation)
        if select(self._record.evaluations) == len(self._record.evaluations) - 1:
            self._record.kept_model = _copy(self.model.state_dict())
            self._record.kept_state = _copy(self._state.tensors())
        figures = {
            "information": evaluation.information,
            "marginal_entropy": evaluation.marginal_entropy,
            "conditional_entropy": evaluation.conditional_entropy,
            "active_clusters": evaluation.active_clusters,
        }
        self._session.write(self.name, self._record.step, "evaluation", figures)
        return predictions

    def _heed_stop(self) -> None:
        if self.runtime.asked_to_stop():
            self._save()
            raise Interrupted

    def _finish(self) -> None:
        record = self._record
        self.model.load_state_dict(record.kept_model)
        selected = select(record.evaluations)
        result = StageResult(self.name, record.evaluations, selected, record.kept_state, record.seconds)
        self._session.conclude(result, self.model.state_dict())
        if self.runtime.rank == 0:
            self.runtime.reporter.end()
            for warning in (result.evaluations[selected].warning, self._state.warning):
                if warning is not None:
                    warnings.warn(f"stage {self.name}: {warning}", UcdsWarning, stacklevel=3)

    def _save(self) -> None:
        record = asdict(self._record)
        progress = record | {"optimiser": self._optimiser.state_dict(), "state": self._state.tensors()}
        self._session.save(self.name, self.model.state_dict(), progress)

    def _resume(self) -> None:
        checkpoint = self._session.take_checkpoint()
        if checkpoint is None:
            return
        self.model.load_state_dict(checkpoint["model"])
        progress: dict[str, Any] = dict(checkpoint["progress"])
        if checkpoint["stage"] != self.name or not progress:
            return
        self._optimiser.load_state_dict(progress.pop("optimiser"))
        self._state.load(progress.pop("state"))
        evaluations = [Evaluation(**evaluation) for evaluation in progress.pop("evaluations")]
        self._record = _Record(evaluations=evaluations, **progress)


def make_sampler(samples: Samples, session: Session) -> DomainBalancedSampler:
    """Draw the batches of a stage.

    Raises:
        UserError: there are too few samples, or batches cannot be formed or shared.
    """
    if len(samples) < 2:
        raise UserError("training needs at least 2 samples, for batch normalisation")
    sampler = DomainBalancedSampler(samples.domain, session.config.batch_size, session.runtime.seed)
    size, processes = sum(sampler.counts), session.runtime.processes
    if size % processes:
        raise UserError(f"a batch of {size} cannot be shared evenly by {processes} processes")
    return sampler


@contextmanager
def _threads_for(model: ClusteringModel) -> Iterator[None]:
    """One thread for a model without a network of its own.

    Its matrices are so small that handing them to further threads takes longer than multiplying them,
    and many times longer on a machine that is busy.
    """
    before = torch.get_num_threads()
    if model.spec.name == IDENTITY:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _copy(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
