"""One stage of training as a stream of steps.

The loops in ``source`` and ``target`` read like the paper's Algorithm 1 because this module does the rest:
the samples of a step, the schedule, evaluation, logging, checkpoints and resuming.

Every random choice of a step is a function of (seed, stage, step), so a run that was killed at any step and
resumed gives the same result as one that never stopped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ucds.config import PCDSettings
from ucds.data.batches import DomainBalancedSampler
from ucds.data.dataset import Dataset
from ucds.data.samples import Samples
from ucds.errors import InputError, Interrupted, warn
from ucds.gradients.checkpoint import StageProgress
from ucds.gradients.mixing import Mixture, mix
from ucds.gradients.pcd_loss import PCDLoss
from ucds.gradients.prediction import predict, threads_for
from ucds.gradients.session import Session
from ucds.gradients.steps import Batch, Steps, build_optimiser, diverged, set_learning_rate
from ucds.networks.model import ClusteringModel, ModelOutput
from ucds.training.results import StageResult, assess, select


@dataclass(frozen=True)
class Step(Batch):
    """Batch of one step of a stage."""

    progress: float  # share of the stage that is done, in [0, 1)
    predictions: Tensor | None  # (N, K) of the evaluation set, if they were made just before this step


class Stage(Steps):
    """One stage over one set of samples.

    A stage trains the model in place, and leaves it with the weights of the selected evaluation. An epoch has
    as many samples as ``data``, but at most ``most_samples`` of a domain. The ``evaluation`` samples are
    predicted, and select the model; if ``None``, the training samples do.
    """

    def __init__(
        self,
        session: Session[PCDSettings],
        name: str,
        model: ClusteringModel,
        data: Dataset,
        *,
        epochs: int,
        evaluation: Samples | None = None,
    ) -> None:
        self._sampler = make_sampler(data.samples, session)
        total = epochs * steps_of_epoch(data.samples, self._sampler, session.settings.most_samples)
        super().__init__(session, name, model, build_optimiser(model, session.settings), data, total)
        self.model = model
        self.settings = session.settings
        self._evaluated = data if evaluation is None else Dataset(evaluation, data.view)
        self.counts = self._sampler.counts  # rows of each domain in a pooled batch
        n = self.settings.evaluations_per_stage
        self._moments = {-(-total * i // n) for i in range(1, n + 1)}
        self._progress = StageProgress()

    def steps(self, state: PCDLoss) -> Iterator[Step]:
        """Yield the stage's steps, from the end of a checkpoint on; none if the stage is finished.

        Between two steps it evaluates, logs and saves, and ends with all work saved if the run was asked to
        stop. The loop carries the state of its loss from step to step; a resumed run restores it in place.
        """
        self._state = state
        self._resume()
        if self._session.result_of(self._name) is not None:
            return
        progress = self._progress
        batches = self.batches(self._sampler, progress.step, self._total)
        with closing(batches), threads_for(self.model):
            self.model.train()
            if self._session.first:
                self._session.compute.reporter.show(self._name, progress.step, self._total)
            # A resumed stage needs the predictions of an evaluation just before its step once more.
            predictions = self._predict() if progress.step in self._moments else None
            started = saved = time.monotonic()
            for batch in batches:
                yield Step(batch.inputs, batch.index, batch.rng, progress.step / self._total, predictions)
                progress.step += 1
                self._report_losses()
                predictions = self._evaluate() if progress.step in self._moments else None
                now = time.monotonic()
                progress.seconds += now - started
                started = now
                if predictions is not None or now - saved > self._session.checkpoint_seconds:
                    self._save()
                    saved = now
                if self._session.asked_to_stop():
                    self._save()
                    raise Interrupted
            self._finish()

    def forward(self, inputs: Tensor) -> ModelOutput:
        """Compute features and logits of the pooled batch from this process's rows of it."""
        output = self.module(inputs)
        return ModelOutput(self.runtime.pool(output.features), self.runtime.pool(output.logits))

    def update(self, **terms: Tensor) -> None:
        """Take one optimiser step on the sum of the (weighted) loss terms of the pooled batch."""
        set_learning_rate(self.optimiser, self._progress.step / self._total, self.settings)
        super().update(**terms)

    def forward_mixed(self, step: Step) -> tuple[Mixture, Tensor] | None:
        """Mix the pooled batch, and compute the logits of the mixture, for the CutMix term of the loss.

        Pairs are drawn from all domains together, so that the clusters do not separate domains. Nothing is
        mixed when the setting ``mixing_weight`` is zero.
        """
        if self.settings.mixing_weight == 0:
            return None
        mixture = mix(self.runtime.pool(step.inputs), self.settings.mixing_alpha, step.rng)
        return mixture, self.forward(mixture.inputs[self.runtime.share(len(mixture.inputs))]).logits

    def result(self) -> StageResult:
        """Return the result of the finished stage."""
        result = self._session.result_of(self._name)
        if result is None:
            raise RuntimeError(f"stage {self._name} is not finished")
        return result

    def _predict(self) -> Tensor:
        batch_size = self.settings.prediction_batch_size
        return predict(self.model, self._evaluated, self.runtime, batch_size)

    def _report_losses(self) -> None:
        losses = self.read_losses(self._progress.step)
        if losses is None or not self._session.first:
            return
        if self._progress.evaluations:
            last = self._progress.evaluations[-1]
            losses |= {"entropy": last.conditional_entropy, "clusters": last.active_clusters}
        self._session.compute.reporter.show(self._name, self._progress.step, self._total, losses)

    def _evaluate(self) -> Tensor:
        progress, predictions = self._progress, self._predict()
        evaluation = assess(predictions.float().cpu().numpy(), progress.step)
        if not np.isfinite(evaluation.information):
            raise diverged(self._name, progress.step, "predictions")
        progress.evaluations.append(evaluation)
        if select(progress.evaluations) == len(progress.evaluations) - 1:
            progress.kept_model = {name: _copy(t) for name, t in self.model.state_dict().items()}
            progress.kept_proportions = _copy(self._state.proportions)
        names = ("information", "marginal_entropy", "conditional_entropy", "active_clusters")
        figures = {name: getattr(evaluation, name) for name in names}
        self._session.write(self._name, progress.step, "evaluation", figures)
        return predictions

    def _finish(self) -> None:
        progress = self._progress
        self.model.load_state_dict(progress.kept_model)
        selected = select(progress.evaluations)
        assert progress.kept_proportions is not None  # a stage ends with an evaluation
        proportions = progress.kept_proportions.numpy()
        result = StageResult(self._name, progress.evaluations, selected, proportions, progress.seconds)
        self._session.conclude(result, self.model.state_dict())
        if self._session.first:
            for warning in (result.evaluations[selected].warning, self._state.warning):
                if warning is not None:
                    warn(f"stage {self._name}: {warning}")

    def _save(self) -> None:
        self._progress.optimiser = self.optimiser.state_dict()
        self._progress.state = self._state.state_dict()
        self._session.save(self._name, self.model.state_dict(), self._progress)

    def _resume(self) -> None:
        checkpoint = self._session.checkpoint
        if checkpoint is None:
            return
        self._session.restore(self.model)
        if checkpoint.stage != self._name or checkpoint.progress is None:
            return
        self._progress = checkpoint.progress
        self.optimiser.load_state_dict(self._progress.optimiser)
        self._state.load_state_dict(self._progress.state)


def steps_of_epoch(samples: Samples, sampler: DomainBalancedSampler, most: int) -> int:
    """Return the number of batches for all samples, but at most ``most`` of a domain."""
    counted = int(np.minimum(np.bincount(samples.domain), most).sum())
    return min(sampler.steps_per_epoch, -(-counted // sampler.batch_size))


def make_sampler(samples: Samples, session: Session[PCDSettings]) -> DomainBalancedSampler:
    """Make the sampler of a stage's batches, after checking that they can be formed and shared."""
    if len(samples) < 2:
        raise InputError("training needs at least 2 samples, for batch normalisation")
    sampler = DomainBalancedSampler(samples.domain, session.settings.batch_size, session.seed)
    size, processes = sum(sampler.counts), session.runtime.processes
    if size % processes:
        raise InputError(f"a batch of {size} cannot be shared evenly by {processes} processes")
    return sampler


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)
