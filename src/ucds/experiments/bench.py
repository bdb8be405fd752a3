"""The bench on which methods are tried: a task, how to run it, and the stages that several of them share.

A stage is a function of its inputs and the seed, so that sharing its computation changes no result.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ucds.backbones import Backbone
from ucds.choices import Accelerator, Precision
from ucds.config import Config
from ucds.labels.cluster_labels import ClusterLabels
from ucds.models import ClusteringModel
from ucds.source.recipe import train_source_by_transport
from ucds.source.train import train_source
from ucds.target.cluster import cluster_target
from ucds.training.features import frozen_features
from ucds.training.prediction import predict
from ucds.training.prepare import Training, prepare
from ucds.training.progress import Reporter
from ucds.training.run_folder import RunFolder
from ucds.training.runtime import Runtime
from ucds.training.session import Session, StageResult
from ucds.training.stage import TrainingData

Start = Literal["pre-trained", "source weights"]
"""What the target's model starts from: a pre-trained encoder, or (no model privacy) the source model."""

Ask = Callable[[ClusteringModel, Session], NDArray[np.int64]]
"""Gives the source model's labels of the target samples ``(n,)``, in their order."""


@dataclass(frozen=True)
class Task:
    """One target domain and the source domains that help it.

    Attributes:
        source: samples and views of the source owner.
        target: samples and views of the target owner, one domain.
        backbone: makes the target's pre-trained encoder, anew for every model.
        n_clusters: the paper's ``K``.
        source_clusters: the provider's ``K`` in the recipe ``ucds``; ``n_clusters`` if ``None``.
        source_backbone: makes the source's encoder; the target's if ``None``.
        queries: the target's samples as the source's encoder takes them; ``target`` if ``None``.
    """

    source: TrainingData
    target: TrainingData
    backbone: Callable[[], Backbone]
    n_clusters: int
    source_clusters: int | None = None
    source_backbone: Callable[[], Backbone] | None = None
    queries: TrainingData | None = None

    @property
    def seen_by_source(self) -> TrainingData:
        """The target's samples as the source's encoder takes them."""
        return self.queries or self.target

    def make_source_backbone(self) -> Backbone:
        """The source's pre-trained encoder, anew."""
        return (self.source_backbone or self.backbone)()


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
        start: what the target's model starts from.
        baselines: settings of baselines, by their section.
        checkpoints: folder for the state of unfinished stages; ``None`` keeps none, and a run that is killed
            starts anew.
    """

    config: Config
    seed: int
    accelerator: Accelerator = "auto"
    precision: Precision = "32-true"
    cache: Path | None = None
    reporter: Reporter | None = None
    start: Start = "pre-trained"
    baselines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    checkpoints: Path | None = None

    def session(self, unfinished: str | None = None) -> Session:
        """A session; it keeps its state, if any is kept, under the name ``unfinished``."""
        folder = None
        if self.checkpoints is not None and unfinished is not None:
            folder = RunFolder(self.checkpoints / unfinished)
            folder.open({"config": self.config.model_dump(mode="json"), "seed": self.seed}, resume=True)
        runtime = Runtime(
            accelerator=self.accelerator,
            precision=self.precision,
            seed=self.seed,
            folder=folder,
            reporter=self.reporter,
        )
        return Session(runtime, self.config)


@dataclass(frozen=True)
class Outcome:
    """What a method makes of the target.

    Attributes:
        method: its name.
        labels: ``(n,)`` cluster of each target sample.
        seconds: of its stages, or of the clustering; cached features are not counted.
        stages: results of its stages, if it is made of ours.
        model: what was trained, as it was then; ``None`` for k-means and for baselines.
        data: the inputs that ``model`` takes.
        parameters: of the whole network, its frozen part included.
        images: passed through training, each as often as it was; 0 where nobody counted.
    """

    method: str
    labels: NDArray[np.int64]
    seconds: float
    stages: tuple[StageResult, ...]
    model: ClusteringModel | None
    data: TrainingData
    parameters: int = 0
    images: int = 0


@dataclass(frozen=True)
class Learned:
    """Stages done so far: the model they ended with, and their results."""

    training: Training
    stages: tuple[StageResult, ...]
    images: int

    def copied(self) -> Learned:
        """The same with a model of its own, to train further without touching this one."""
        model = copy.deepcopy(self.training.model)
        frozen = self.training.trained is not self.training.model
        training = Training(model, model.head() if frozen else model, self.training.data)
        return Learned(training, self.stages, self.images)


@dataclass(frozen=True)
class LearnedSource:
    """The source owner's model, and its answers about the target's samples ``(n,)``."""

    learned: Learned
    answers: NDArray[np.int64]


@dataclass(frozen=True)
class Sources:
    """Source models that several benches share; who shares them answers for the same source data.

    Attributes:
        learned: by how they were learned and the settings that this looks at.
        checkpoints: folder for the state of unfinished ones, if it is kept.
    """

    learned: dict[str, LearnedSource] = field(default_factory=dict)
    checkpoints: Path | None = None


class Bench:
    """Gives methods the stages they are made of, each computed once, when it is first asked for.

    Args:
        task: the data.
        setting: how to run.
        ask: how the target owner gets its labels; straight from the model if ``None``.
        sources: stage 1 is taken from there, or put there.
    """

    def __init__(
        self,
        task: Task,
        setting: Setting,
        ask: Ask | None = None,
        sources: Sources | None = None,
    ) -> None:
        self.task = task
        self.setting = setting
        self._ask = ask
        self._sources = sources or Sources(checkpoints=setting.checkpoints)

    @property
    def source(self) -> LearnedSource:
        """Stage 1: the source model."""
        return self._learn_source("learn-source", train_source, self.task.n_clusters)

    @property
    def transported(self) -> LearnedSource:
        """The source model of the recipe ``ucds``."""
        n_clusters = self.task.source_clusters or self.task.n_clusters
        return self._learn_source("cluster-domains", train_source_by_transport, n_clusters)

    @cached_property
    def adapted(self) -> Learned:
        """Stage 2: a target model that has learned from the source model's answers."""
        source, session = self.source, self.setting.session("cluster-target")
        training = self.new_target(session)
        if self.setting.start == "source weights":
            training.model.load_state_dict(source.learned.training.model.state_dict())
        samples = training.data.samples
        labels = ClusterLabels(samples.ids, source.answers, self.task.n_clusters, "source")
        cluster_target(session, training.trained, training.data, labels)
        return self.extended(source.learned, training, session, training.data)

    def new_target(self, session: Session) -> Training:
        """A fresh model of the target owner."""
        task = self.task
        return prepare(
            session,
            task.backbone(),
            task.target,
            task.n_clusters,
            side="target",
            cache=self.setting.cache,
        )

    def extended(
        self, before: Learned | None, training: Training, session: Session, trained_on: TrainingData
    ) -> Learned:
        """What was learned before, and the stages of a session after it."""
        n = min(self.setting.config.batch_size, len(trained_on.samples))
        images = sum(stage.evaluations[-1].step * n for stage in session.results)
        earlier, earlier_images = (before.stages, before.images) if before is not None else ((), 0)
        return Learned(training, (*earlier, *session.results), earlier_images + images)

    def _answered(self, model: ClusteringModel, session: Session) -> LearnedSource:
        """A source model, just learned in ``session``, with its answers about the target's samples."""
        task, frozen = self.task, self.setting.config.tune == "head"
        queries = (
            self._vectors(task.seen_by_source, task.make_source_backbone) if frozen else task.seen_by_source
        )
        training = Training(model, model.head() if frozen else model, queries)
        learned = self.extended(None, training, session, task.source)
        answers = self._predict(training) if self._ask is None else self._ask(model, session)
        return LearnedSource(learned, answers)

    def target_vectors(self) -> TrainingData:
        """The target's samples as vectors: themselves, or their features under the frozen encoder."""
        return self._vectors(self.task.target, self.task.backbone)

    def outcome(self, method: str, learned: Learned, labels: NDArray[np.int64] | None = None) -> Outcome:
        """What the model of the latest stage makes of its data."""
        training = learned.training
        return Outcome(
            method,
            self._predict(training) if labels is None else labels,
            sum((stage.seconds for stage in learned.stages), 0.0),
            learned.stages,
            copy.deepcopy(training.trained),
            training.data,
            training.model.count_parameters(),
            learned.images,
        )

    def _learn_source(
        self, name: str, train: Callable[..., ClusteringModel], n_clusters: int
    ) -> LearnedSource:
        # As the source owner sees it: its model and checkpoint must not depend on settings of the target.
        config = source_settings(self.setting.config)
        key = f"{name}-{config.hash}"
        if key not in self._sources.learned:
            session = replace(self.setting, config=config, checkpoints=self._sources.checkpoints).session(key)
            backbone = self.task.make_source_backbone()
            model = train(session, backbone, self.task.source, n_clusters, cache=self.setting.cache)
            self._sources.learned[key] = self._answered(model, session)
        return self._sources.learned[key]

    def _vectors(self, data: TrainingData, make_backbone: Callable[[], Backbone]) -> TrainingData:
        if len(data.view.input_shape) == 1:
            return data
        runtime = self.setting.session().runtime
        backbone = make_backbone()
        backbone.module.to(runtime.device)
        batch_size = self.setting.config.prediction_batch_size
        return frozen_features(backbone, data, runtime, self.setting.cache, batch_size=batch_size)

    def _predict(self, training: Training) -> NDArray[np.int64]:
        runtime, data = self.setting.session().runtime, training.data
        batch_size = self.setting.config.prediction_batch_size
        found = predict(training.trained, data.samples, data.view, runtime, batch_size)
        labels: NDArray[np.int64] = found.argmax(-1).cpu().numpy()
        return labels


TARGET_SETTINGS = frozenset(
    {
        *("distillation_weight", "target_proportion_momentum", "label_smoothing", "ensemble_momentum"),
        *("clustering_epochs", "refinement_epochs"),
        *("spaces", "space_width", "whitening", "neighbours", "diffusion_rounds", "space_partitions"),
        *("transfer", "trusted_agreement", "least_agreement"),
    }
)
"""Settings that the source owner does not look at, in either recipe."""


def source_settings(config: Config) -> Config:
    """A configuration with all that the source owner does not look at brought to its default."""
    return config.model_copy(update={name: Config.model_fields[name].default for name in TARGET_SETTINGS})
