"""The parts of methods: a task, its options, and the stages that several methods share.

A stage is a function of its inputs and the seed, so sharing its result changes no other result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar, cast

from ucds.choices import Tune
from ucds.config import ConsensusSettings, MethodSettings, PCDSettings, Settings, for_source
from ucds.data.dataset import Dataset
from ucds.encoders.encoder import Encoder
from ucds.gradients.prediction import predict
from ucds.gradients.prepare import Learning, features_of, prepare
from ucds.gradients.session import Session
from ucds.gradients.source_stage import learn_source_model
from ucds.gradients.target_stages import cluster_target
from ucds.heads import Head
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.arrays import IntArray
from ucds.networks.stored import count_parameters
from ucds.source.train import fit_source
from ucds.training.fitting import encode
from ucds.training.loaded import recentre
from ucds.training.options import Compute
from ucds.training.prepare import Training
from ucds.training.results import StageResult
from ucds.training.run_folder import RunFolder

Start = Literal["pre-trained", "source weights"]
"""Start of the target's model: a pre-trained encoder, or (without model privacy) the source model."""

S = TypeVar("S", bound=Settings)


@dataclass(frozen=True)
class Task:
    """One target domain and the source domains that help it.

    Each call of a function makes a pre-trained encoder anew: frozen ("head") or to be trained ("full").
    """

    source: Dataset  # of the provider
    target: Dataset  # of the client, one domain
    queries: Dataset  # target samples as the provider's encoder takes them
    source_encoder: Callable[[Tune], Encoder]
    encoder: Callable[[Tune], Encoder]  # of the client
    source_clusters: int  # of the provider's consensus
    n_clusters: int  # of all other clusterings, K


@dataclass(frozen=True)
class TaskOptions:
    """Settings, seed and device of a run."""

    settings: tuple[Settings, ...]  # of the methods to run, one entry for each settings class
    seed: int
    compute: Compute = field(default_factory=lambda: Compute(cache=None))
    start: Start = "pre-trained"  # of the target's model
    checkpoints: Path | None = None  # of the state of unfinished stages; None keeps no state

    def settings_of(self, kind: type[S]) -> S:
        """Return the settings of one class; its defaults if none were given."""
        return next((given for given in self.settings if type(given) is kind), None) or kind()

    def session(self, settings: S, unfinished: str | None = None) -> Session[S]:
        """Make a session; if checkpoints are kept, its state goes into the folder ``unfinished``."""
        if self.checkpoints is None or unfinished is None:
            return Session(settings, self.compute, seed=self.seed)
        session = Session(
            settings, self.compute, seed=self.seed, folder=RunFolder(self.checkpoints / unfinished)
        )
        session.open({"settings": settings.model_dump(mode="json"), "seed": self.seed}, resume=True)
        return session


@dataclass(frozen=True)
class Outcome:
    """The result of a method or of some of its stages: a clustering of the target samples."""

    labels: IntArray  # (n,) cluster of each target sample
    seconds: float  # in its stages, or in the clustering; cached features are not counted
    stages: tuple[StageResult, ...] = ()  # if it is made of this package's stages
    model: Learning | Training | None = None  # after these stages; none of plain clusterings and baselines
    parameters: int = 0  # of the whole network, its frozen part included
    images: int = 0  # passed through training, every pass counted; 0 if unknown
    method: str = ""  # name, which run_methods fills in


@dataclass(frozen=True)
class Sources:
    """Source models that several pipelines share; all these pipelines must have the same source data."""

    learned: dict[str, Outcome] = field(default_factory=dict)  # by method and settings of the source
    checkpoints: Path | None = None  # of the state of unfinished ones; `None` keeps no state


class Pipeline:
    """Gives methods their stages; each stage is computed once, at its first use.

    A source model is taken from ``sources`` if it is there, and otherwise put there.
    """

    def __init__(self, task: Task, options: TaskOptions, sources: Sources | None = None) -> None:
        self.task, self.options = task, options
        self._sources = sources or Sources(checkpoints=options.checkpoints)

    @property
    def source(self) -> Outcome:
        """PCD's source model, of stage 1, and its labels of the target samples."""
        return self._learn_source("learn-source", PCDSettings, self.task.n_clusters)

    @property
    def transported(self) -> Outcome:
        """The source model of the consensus method, and its labels of the target samples."""
        return self._learn_source("cluster-domains", ConsensusSettings, self.task.source_clusters)

    @cached_property
    def adapted(self) -> Outcome:
        """PCD's target model after stage 2, which learns from the source model's labels."""
        session = self.options.session(self.options.settings_of(PCDSettings), "cluster-target")
        task, source = self.task, self.source
        learning = prepare(session, self.encoder(session), task.target, task.n_clusters, side="target")
        if self.options.start == "source weights":
            assert isinstance(source.model, Learning)
            learning.trained.load_state_dict(source.model.trained.state_dict())
        labels = ClusterLabels(learning.data.samples.ids, source.labels, task.n_clusters, "source")
        cluster_target(session, learning.trained, learning.data, labels)
        return self.extended(source, learning, session)

    def extended(
        self,
        before: Outcome | None,
        model: Learning | Training,
        session: Session[MethodSettings],
        labels: IntArray | None = None,
    ) -> Outcome:
        """Append the stages of a session to earlier ones; if no labels are given, the model predicts them."""
        settings, n = session.settings, 0  # the consensus takes no steps
        if isinstance(settings, PCDSettings):
            n = min(settings.batch_size, len(model.data.samples))
        earlier, images = ((), 0) if before is None else (before.stages, before.images)
        images += sum(stage.evaluations[-1].step * n for stage in session.results)
        stages = (*earlier, *session.results)
        seconds = sum(stage.seconds for stage in stages)
        if isinstance(model, Learning):
            parameters = model.count_parameters()
            labels = self._predict(session, model, model.data) if labels is None else labels
        else:
            head, parameters = model.head, count_parameters(model.encoder)
            parameters += head.weight.size + head.bias.size + head.prototypes.size
            labels = _decide(head, model.data) if labels is None else labels
        return Outcome(labels, float(seconds), stages, model, parameters, images)

    def encoder(self, session: Session[MethodSettings]) -> Encoder:
        """Make the client's encoder, frozen or to be trained, as the settings of a session ask."""
        return self.task.encoder(session.settings.tune)

    def target_vectors(self) -> Dataset:
        """Return the target samples as vectors: themselves, or their features under the frozen encoder."""
        session = self.options.session(ConsensusSettings())
        return features_of(session, self.task.encoder("head"), self.task.target)

    def _learn_source(self, name: str, kind: type[MethodSettings], n_clusters: int) -> Outcome:
        """Learn a source model, unless it is known, and label the target's samples as ``ucds label`` does."""
        # Without the target's settings: neither the model nor its checkpoint may depend on them.
        settings = for_source(self.options.settings_of(kind))
        key = f"{name}-{settings.hash}"
        if key not in self._sources.learned:
            own = replace(self.options, checkpoints=self._sources.checkpoints)
            session, task = own.session(settings, key), self.task
            encoder = task.source_encoder(settings.tune)
            model: Learning | Training
            if isinstance(settings, PCDSettings):
                ours = cast("Session[PCDSettings]", session)
                model = learn_source_model(ours, encoder, task.source, n_clusters)
                labels = self._predict(session, model, task.queries)
            else:
                model = found = fit_source(session, encoder, task.source, n_clusters)
                queries = features_of(session, encoder, task.queries)
                labels = _decide(found.head, queries, recentred=found.recentres)
            self._sources.learned[key] = self.extended(None, model, session, labels)
        return self._sources.learned[key]

    def _predict(self, session: Session[Settings], model: Learning, data: Dataset) -> IntArray:
        """Predict the clusters of samples by a network; samples outside its training may be images."""
        if model.tune == "head":
            data = features_of(session, model.encoder, data)
        labels: IntArray = predict(model.trained, data, session.runtime).argmax(-1).cpu().numpy()
        return labels


def _decide(head: Head, features: Dataset, *, recentred: bool = False) -> IntArray:
    """Find the most probable clusters of features, which may be centred on their own mean."""
    if recentred:
        head = recentre(head, features)
    found: IntArray = head.logits(encode(head, features)).argmax(1)
    return found
