"""The methods by name: the paper's, which are lists of stages, ours, and the baselines.

A method is a function of a :class:`ucds.experiments.pipeline.Pipeline`. A benchmark runs methods of its
owner's too: ``module:name`` in the TOML file, or an entry point of the group ``ucds.methods``. Such a name
stands for a function, or for a :class:`Method`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Literal

from ucds.baselines.settings import ACIDSSettings, DeepClusterSettings, IICSettings, KMeansSettings
from ucds.config import ConsensusSettings, PCDSettings, Settings
from ucds.errors import InputError
from ucds.experiments import baseline_methods, consensus_methods
from ucds.experiments.pipeline import Ask, Outcome, Pipeline, Sources, Task, TaskOptions
from ucds.target.pcd import refine_target
from ucds.training.prepare import prepare

Encoders = Literal["target", "source", "both", "none"]

FAMILIES: dict[str, type[Settings]] = {
    "pcd": PCDSettings,
    "consensus": ConsensusSettings,
    "kmeans": KMeansSettings,
    "deepcluster": DeepClusterSettings,
    "iic": IICSettings,
    "acids": ACIDSSettings,
}
"""Settings classes by the name of their section in a benchmark's ``[settings]``."""


@dataclass(frozen=True)
class Method:
    """A way to cluster the target.

    Attributes:
        title: name in tables.
        run: function that does it; ground truth has no part in it.
        settings: class of its settings; ``None`` if it has none.
        encoders: side whose pre-trained encoder it needs.
    """

    title: str
    run: Callable[[Pipeline], Outcome]
    settings: type[Settings] | None = PCDSettings
    encoders: Encoders = "target"

    @property
    def family(self) -> str | None:
        """Name of the section of its settings; ``None`` if it has none."""
        return next((name for name, kind in FAMILIES.items() if kind is self.settings), None)


def method_named(name: str) -> Method:
    """Find a method: one of :data:`METHODS`, an entry point, or ``module:name``.

    Raises:
        InputError: there is no such method.
    """
    method = METHODS.get(name) or _foreign_method(name)
    if method is None:
        raise InputError(f"unknown methods {name}; known: {', '.join(METHODS)}, or MODULE:NAME of your own")
    return method


@cache
def _foreign_method(name: str) -> Method | None:
    found: Any = None
    for entry in entry_points(group="ucds.methods", name=name):
        found = entry.load()
    module, colon, attribute = name.partition(":")
    if found is None and colon:
        try:
            found = getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise InputError(f"method {name} cannot be imported: {error}") from None
    if found is None or isinstance(found, Method):
        return found
    if not callable(found):
        raise InputError(f"method {name} is neither a function nor a Method")
    return Method(name, found, settings=None)


def run_methods(
    task: Task,
    options: TaskOptions,
    methods: Sequence[str] | None = None,
    ask: Ask | None = None,
    sources: Sources | None = None,
) -> Iterator[Outcome]:
    """Run methods on a task, and yield the outcome of each as soon as it is known.

    Ground truth has no part in it: who wants scores holds the labels against it afterwards.

    Args:
        task: the data.
        options: how to run.
        methods: names of methods, the paper's if ``None``; known ones come in the order of :data:`METHODS`.
        ask: way in which the client gets its labels; straight from the model if ``None``.
        sources: source models to share with other tasks of the same source.

    Raises:
        InputError: a method is unknown.
    """
    asked = PAPER_METHODS if methods is None else methods
    found = {name: method_named(name) for name in asked}
    pipeline = Pipeline(task, options, ask, sources)
    for name in (*METHODS, *(name for name in asked if name not in METHODS)):
        if name in found:
            yield found[name].run(pipeline)


def _pretrained_only(pipeline: Pipeline) -> Outcome:
    session = pipeline.options.session(pipeline.options.settings_of(PCDSettings))
    training = pipeline.new_target(session)
    return pipeline.outcome("po", pipeline.extended(None, training, session, training.data))


def _pretrained_source_only(pipeline: Pipeline) -> Outcome:
    """PO with the source's encoder, which the paper prints beside the target's where the two differ."""
    task, options = pipeline.task, pipeline.options
    session, backbone = options.session(options.settings_of(PCDSettings)), task.make_source_backbone()
    training = prepare(
        session, backbone, task.seen_by_source, task.n_clusters, side="target", cache=options.cache
    )
    return pipeline.outcome("po-source", pipeline.extended(None, training, session, training.data))


def _target_only(pipeline: Pipeline) -> Outcome:
    session = pipeline.options.session(pipeline.options.settings_of(PCDSettings), "target-only")
    training = pipeline.new_target(session)
    refine_target(session, training.trained, training.data)
    return pipeline.outcome("to", pipeline.extended(None, training, session, training.data))


def _source_only(pipeline: Pipeline) -> Outcome:
    return pipeline.outcome("so", pipeline.source.learned, pipeline.source.answers)


def _adaptation_only(pipeline: Pipeline) -> Outcome:
    return pipeline.outcome("ao", pipeline.adapted)


def _all_three(pipeline: Pipeline) -> Outcome:
    session = pipeline.options.session(pipeline.options.settings_of(PCDSettings), "refine-target")
    before = pipeline.adapted.copied()
    refine_target(session, before.training.trained, before.training.data)
    return pipeline.outcome("pcd", pipeline.extended(before, before.training, session, before.training.data))


PAPER_METHODS = ("kmeans", "po", "so", "to", "ao", "pcd")
"""k-means on frozen features, and the paper's own: pre-trained, source, target and adaptation only, PCD."""

METHODS: dict[str, Method] = {
    "kmeans": Method("frozen k-means", baseline_methods.kmeans, KMeansSettings),
    "deepcluster": Method("DeepCluster", baseline_methods.deepcluster(False), DeepClusterSettings),
    "iic": Method("IIC", baseline_methods.iic(False), IICSettings),
    "acids": Method("ACIDS", baseline_methods.acids(False), ACIDSSettings, "source"),
    "deepcluster-original": Method(
        "DeepCluster, from scratch", baseline_methods.deepcluster(True), DeepClusterSettings, "none"
    ),
    "iic-original": Method("IIC, from scratch", baseline_methods.iic(True), IICSettings, "none"),
    "acids-original": Method("ACIDS, from scratch", baseline_methods.acids(True), ACIDSSettings, "none"),
    "po": Method("PO", _pretrained_only),
    "po-source": Method("PO, source's encoder", _pretrained_source_only, encoders="source"),
    "so": Method("SO", _source_only, encoders="source"),
    "to": Method("TO", _target_only),
    "ao": Method("AO", _adaptation_only, encoders="both"),
    "pcd": Method("PCD", _all_three, encoders="both"),
    "consensus-source": Method(
        "consensus, provider's labels", consensus_methods.provider_labels, ConsensusSettings, "source"
    ),
    "consensus-alone": Method(
        "consensus, without a provider", consensus_methods.without_provider, ConsensusSettings
    ),
    "consensus": Method("consensus", consensus_methods.with_provider, ConsensusSettings, "both"),
}
"""Every method of this package by the name that benchmarks use."""
