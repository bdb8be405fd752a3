"""Runs every method of the paper on one task, both sides of the wall in one process.

A method is a list of stages. Methods that begin with the same stages share their computation; that
changes no result, because a stage is a function of its inputs and the seed.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ucds.backbones import Backbone
from ucds.choices import Accelerator, Precision
from ucds.config import Config
from ucds.errors import UserError
from ucds.experiments.kmeans import frozen_kmeans
from ucds.labels.cluster_labels import ClusterLabels
from ucds.models import ClusteringModel
from ucds.source.train import train_source
from ucds.target.cluster import cluster_target
from ucds.target.refine import refine_target
from ucds.training.features import frozen_features
from ucds.training.prediction import predict
from ucds.training.prepare import Training, prepare
from ucds.training.progress import Reporter
from ucds.training.runtime import Runtime
from ucds.training.session import Session, StageResult
from ucds.training.stage import TrainingData

METHODS: dict[str, tuple[int, ...]] = {
    "kmeans": (),
    "po": (),
    "so": (1,),
    "to": (3,),
    "ao": (1, 2),
    "pcd": (1, 2, 3),
}
"""Stages of each method: pre-trained only, source only, target only, adaptation only, and all three."""


Ask = Callable[[ClusteringModel, Session], NDArray[np.int64]]
"""Gives the source model's labels of the target samples ``(n,)``, in their order."""


@dataclass(frozen=True)
class Task:
    """One target domain and the source domains that help it.

    Attributes:
        source: samples and views of the source owner.
        target: samples and views of the target owner, one domain.
        backbone: makes the pre-trained encoder, anew for every model.
        n_clusters: the paper's ``K``.
    """

    source: TrainingData
    target: TrainingData
    backbone: Callable[[], Backbone]
    n_clusters: int


@dataclass(frozen=True)
class Setting:
    """How to run a task.

    Attributes:
        config: the method's settings.
        seed: of every random choice.
        accelerator: "auto", "cpu" or "cuda".
        precision: of forward passes.
        cache: folder for frozen features.
        reporter: whom to tell.
    """

    config: Config
    seed: int
    accelerator: Accelerator = "auto"
    precision: Precision = "32-true"
    cache: Path | None = None
    reporter: Reporter | None = None

    def session(self) -> Session:
        """A session that keeps nothing on disk."""
        runtime = Runtime(
            accelerator=self.accelerator, precision=self.precision, seed=self.seed, reporter=self.reporter
        )
        return Session(runtime, self.config)


@dataclass(frozen=True)
class Outcome:
    """What a method makes of the target.

    Attributes:
        method: its name.
        labels: ``(n,)`` cluster of each target sample.
        seconds: of its stages, or of the clustering; cached features are not counted.
        stages: results of its stages.
        model: what was trained, as it was then; ``None`` for k-means.
        data: the inputs that ``model`` takes.
    """

    method: str
    labels: NDArray[np.int64]
    seconds: float
    stages: tuple[StageResult, ...]
    model: ClusteringModel | None
    data: TrainingData


def run_methods(
    task: Task, setting: Setting, methods: Sequence[str] = tuple(METHODS), ask: Ask | None = None
) -> Iterator[Outcome]:
    """Run methods on a task, and yield what each makes of the target as soon as it is known.

    Ground truth has no part in it: who wants scores holds the labels against it afterwards.

    Args:
        task: the data.
        setting: how to run.
        methods: names from :data:`METHODS`, in any order; those that need no source come first.
        ask: how the target owner gets its labels; straight from the model if ``None``.

    Raises:
        UserError: a method is unknown.
    """
    unknown = sorted(set(methods) - METHODS.keys())
    if unknown:
        raise UserError(f"unknown methods {', '.join(unknown)}; known: {', '.join(METHODS)}")
    if "kmeans" in methods:
        yield _kmeans(task, setting)
    if {"po", "to"} & set(methods):
        yield from _without_source(task, setting, methods)
    if {"so", "ao", "pcd"} & set(methods):
        yield from _with_source(task, setting, methods, ask)


def _kmeans(task: Task, setting: Setting) -> Outcome:
    runtime = setting.session().runtime
    features = _as_vectors(task, runtime, setting)
    start = time.monotonic()
    labels = frozen_kmeans(features.samples, task.n_clusters, setting.seed)
    return Outcome("kmeans", labels, time.monotonic() - start, (), None, features)


def _as_vectors(task: Task, runtime: Runtime, setting: Setting) -> TrainingData:
    if len(task.target.view.input_shape) == 1:
        return task.target
    backbone = task.backbone()
    backbone.module.to(runtime.device)
    batch_size = setting.config.prediction_batch_size
    return frozen_features(backbone, task.target, runtime, setting.cache, batch_size=batch_size)


def _without_source(task: Task, setting: Setting, methods: Sequence[str]) -> Iterator[Outcome]:
    session = setting.session()
    target = _target_training(task, setting, session)
    if "po" in methods:
        yield _outcome("po", session, target)
    if "to" in methods:
        refine_target(session, target.trained, target.data)
        yield _outcome("to", session, target)


def _with_source(task: Task, setting: Setting, methods: Sequence[str], ask: Ask | None) -> Iterator[Outcome]:
    provider = setting.session()
    model = train_source(provider, task.backbone(), task.source, task.n_clusters, cache=setting.cache)
    answered = _answer(task, setting, model, provider, ask)
    if "so" in methods:
        yield answered
    if not {"ao", "pcd"} & set(methods):
        return
    client = setting.session()
    target = _target_training(task, setting, client)
    labels = ClusterLabels(target.data.samples.ids, answered.labels, task.n_clusters, "source")
    cluster_target(client, target.trained, target.data, labels)
    if "ao" in methods:
        yield _outcome("ao", client, target, provider.results)
    if "pcd" in methods:
        refine_target(client, target.trained, target.data)
        yield _outcome("pcd", client, target, provider.results)


def _answer(
    task: Task, setting: Setting, model: ClusteringModel, provider: Session, ask: Ask | None
) -> Outcome:
    """What the source model says of the target's samples, which it sees through its own backbone."""
    frozen = setting.config.tune == "head"
    queries = _as_vectors(task, provider.runtime, setting) if frozen else task.target
    outcome = _outcome("so", provider, Training(model, model.head() if frozen else model, queries))
    return outcome if ask is None else replace(outcome, labels=ask(model, provider))


def _target_training(task: Task, setting: Setting, session: Session) -> Training:
    return prepare(session, task.backbone(), task.target, task.n_clusters, side="target", cache=setting.cache)


def _outcome(
    method: str, session: Session, training: Training, earlier: Sequence[StageResult] = ()
) -> Outcome:
    data, config = training.data, session.config
    probabilities = predict(
        training.trained, data.samples, data.view, session.runtime, config.prediction_batch_size
    )
    stages = (*earlier, *session.results)
    return Outcome(
        method,
        probabilities.argmax(-1).cpu().numpy(),
        sum((stage.seconds for stage in stages), 0.0),
        stages,
        copy.deepcopy(training.trained),
        data,
    )
