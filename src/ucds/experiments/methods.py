"""The methods by name: the paper's, which are lists of stages, the consensus method, and the baselines.

A method is a function that makes an :class:`~ucds.experiments.pipeline.Outcome` of a
:class:`~ucds.experiments.pipeline.Pipeline`. A benchmark also runs methods from outside this package, without
an edit of it: the TOML file names them ``module:name``, or an installed package declares them as entry points
of the group ``ucds.methods``. Such a name stands for a function, or for a :class:`Method`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Literal

from ucds.baselines.deepcluster import cluster_by_deepcluster
from ucds.baselines.iic import cluster_by_iic
from ucds.baselines.plain import gaussian_mixture, spectral, spherical_kmeans, umap_kmeans, ward
from ucds.baselines.settings import (
    ACIDSSettings,
    DeepClusterSettings,
    IICSettings,
    KMeansSettings,
)
from ucds.config import ConsensusSettings, PCDSettings, Settings
from ucds.errors import InputError
from ucds.experiments.baseline_methods import acids, kmeans, on_target, plain
from ucds.experiments.consensus_methods import provider_labels, with_provider, without_provider
from ucds.experiments.pipeline import Outcome, Pipeline, Sources, Task, TaskOptions
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
        run: function that clusters the target; ground truth has no part in it.
        settings: class of its settings, one of :data:`FAMILIES`; ``None`` if it has none.
        encoders: sides whose pre-trained encoder it needs.
        needs: package that it needs, which an extra of the same name installs; empty if it needs none.
    """

    title: str
    run: Callable[[Pipeline], Outcome]
    settings: type[Settings] | None = PCDSettings
    encoders: Encoders = "target"
    needs: str = ""

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
    module, colon, attribute = name.partition(":")
    try:
        for entry in entry_points(group="ucds.methods", name=name):
            found = entry.load()
        if found is None and colon:
            found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"method {name} cannot be imported: {error} (is it on PYTHONPATH?)") from None
    if found is None or isinstance(found, Method):
        return found
    if not callable(found):
        raise InputError(f"method {name} is neither a function nor a Method")
    return Method(name, found, settings=None)


def run_methods(
    task: Task,
    options: TaskOptions,
    methods: Sequence[str] | None = None,
    sources: Sources | None = None,
) -> Iterator[Outcome]:
    """Run methods on a task, and yield the outcome of each as soon as it is known; ground truth is not read.

    Args:
        task: data and encoders.
        options: settings, seed and device.
        methods: names of methods, the paper's if ``None``; known ones come in the order of :data:`METHODS`.
        sources: source models to share with other runs of the same source.

    Raises:
        InputError: a method is unknown.
    """
    asked = PAPER_METHODS if methods is None else methods
    found = {name: method_named(name) for name in asked}
    pipeline = Pipeline(task, options, sources)
    for name in (*METHODS, *(name for name in found if name not in METHODS)):
        if name in found:
            yield replace(found[name].run(pipeline), method=name)


def _pretrained_only(pipeline: Pipeline) -> Outcome:
    session = pipeline.options.session(pipeline.options.settings_of(PCDSettings))
    training = pipeline.new_target(session)
    return pipeline.outcome(pipeline.extended(None, training, session))


def _pretrained_source_only(pipeline: Pipeline) -> Outcome:
    """Run PO with the source's encoder, which the paper prints beside the target's where the two differ."""
    task, options = pipeline.task, pipeline.options
    session, backbone = options.session(options.settings_of(PCDSettings)), task.make_source_backbone()
    training = prepare(
        session, backbone, task.seen_by_source, task.n_clusters, side="target", cache=options.cache
    )
    return pipeline.outcome(pipeline.extended(None, training, session))


def _target_only(pipeline: Pipeline) -> Outcome:
    session = pipeline.options.session(pipeline.options.settings_of(PCDSettings), "target-only")
    training = pipeline.new_target(session)
    refine_target(session, training.trained, training.data)
    return pipeline.outcome(pipeline.extended(None, training, session))


def _source_only(pipeline: Pipeline) -> Outcome:
    return pipeline.outcome(pipeline.source.learned, pipeline.source.answers)


def _adaptation_only(pipeline: Pipeline) -> Outcome:
    return pipeline.outcome(pipeline.adapted)


def _all_three(pipeline: Pipeline) -> Outcome:
    session = pipeline.options.session(pipeline.options.settings_of(PCDSettings), "refine-target")
    before = pipeline.adapted.copied()
    refine_target(session, before.training.trained, before.training.data)
    return pipeline.outcome(pipeline.extended(before, before.training, session))


PAPER_METHODS = ("kmeans", "po", "so", "to", "ao", "pcd")
"""k-means on frozen features, and the paper's own: pre-trained, source, target and adaptation only, PCD."""

METHODS: dict[str, Method] = {
    "kmeans": Method("frozen k-means", kmeans, KMeansSettings),
    "umap": Method("UMAP + k-means", plain(umap_kmeans), settings=None, needs="umap"),
    "spherical-kmeans": Method("spherical k-means", plain(spherical_kmeans), settings=None),
    "gaussian-mixture": Method("Gaussian mixture", plain(gaussian_mixture), settings=None),
    "ward": Method("Ward's clustering", plain(ward), settings=None),
    "spectral": Method("spectral clustering", plain(spectral), settings=None),
    "deepcluster": Method(
        "DeepCluster", on_target(DeepClusterSettings, cluster_by_deepcluster), DeepClusterSettings
    ),
    "iic": Method("IIC", on_target(IICSettings, cluster_by_iic), IICSettings),
    "acids": Method("ACIDS", acids, ACIDSSettings, "source"),
    "deepcluster-original": Method(
        "DeepCluster, from scratch",
        on_target(DeepClusterSettings, cluster_by_deepcluster, from_scratch=True),
        DeepClusterSettings,
        "none",
    ),
    "iic-original": Method(
        "IIC, from scratch", on_target(IICSettings, cluster_by_iic, from_scratch=True), IICSettings, "none"
    ),
    "acids-original": Method("ACIDS, from scratch", partial(acids, from_scratch=True), ACIDSSettings, "none"),
    "po": Method("PO", _pretrained_only),
    "po-source": Method("PO, source's encoder", _pretrained_source_only, encoders="source"),
    "so": Method("SO", _source_only, encoders="source"),
    "to": Method("TO", _target_only),
    "ao": Method("AO", _adaptation_only, encoders="both"),
    "pcd": Method("PCD", _all_three, encoders="both"),
    "consensus-source": Method("consensus, provider's labels", provider_labels, ConsensusSettings, "source"),
    "consensus-alone": Method("consensus, without a provider", without_provider, ConsensusSettings),
    "consensus": Method("consensus", with_provider, ConsensusSettings, "both"),
}
"""Every method of this package by the name that benchmarks use."""
