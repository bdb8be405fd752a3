"""The methods by name: the paper's, which are lists of stages, the consensus method, and the baselines.

A method is a function that makes an :class:`~ucds.experiments.pipeline.Outcome` from a
:class:`~ucds.experiments.pipeline.Pipeline`. A benchmark can also run methods from outside this package: the
TOML file names them ``module:name``, where the name is that of a function or a :class:`Method`.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Literal

import numpy as np

from ucds.baselines import plain
from ucds.baselines.acids import ACIDSSettings, cluster_by_acids
from ucds.baselines.deepcluster import DeepClusterSettings, cluster_by_deepcluster
from ucds.baselines.iic import IICSettings, PairSettings, cluster_by_iic, with_best_rate
from ucds.baselines.loop import Clustering
from ucds.baselines.views import sobel_network
from ucds.choices import Tune
from ucds.config import ConsensusSettings, ModelSettings, PCDSettings, Settings
from ucds.encoders.encoder import Encoder
from ucds.errors import InputError
from ucds.experiments.jobs import reason_of
from ucds.experiments.pipeline import Outcome, Pipeline, Sources, Task, TaskOptions
from ucds.gradients.prepare import Learning, prepare
from ucds.gradients.target_stages import learn_target_model, refine_target
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.arrays import FloatArray, IntArray
from ucds.target.train import fit_target

PAPER_METHODS = ("kmeans", "po", "so", "to", "ao", "pcd")
"""k-means on frozen features, and the paper's own: pre-trained, source, target and adaptation only, PCD."""

FAMILIES: dict[str, type[Settings]] = {
    "pcd": PCDSettings,
    "consensus": ConsensusSettings,
    "deepcluster": DeepClusterSettings,
    "iic": IICSettings,
    "acids": ACIDSSettings,
}
"""Settings classes by the name of their section in a benchmark's ``[settings]``."""


@dataclass(frozen=True)
class Method:
    """A way to cluster the target."""

    title: str  # in tables
    run: Callable[[Pipeline], Outcome]  # clusters the target; ground truth has no part in it
    settings: type[Settings] | None = PCDSettings  # one of FAMILIES, if it has any
    encoders: Literal["target", "source", "both", "none"] = "target"  # sides whose encoder it needs
    needs: str = ""  # extra, if any


def method_named(name: str) -> Method:
    """Find a method: one of :data:`METHODS`, or ``module:name``."""
    if name in METHODS:
        return METHODS[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise InputError(f"there is no method {name}: name {', '.join(METHODS)} or MODULE:NAME")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"method {name} cannot be imported: {error}; put its folder on PYTHONPATH") from None
    if not isinstance(found, Method) and not callable(found):
        raise InputError(f"method {name} is neither a function nor a Method")
    return found if isinstance(found, Method) else Method(name, found, settings=None)


def run_methods(
    task: Task,
    options: TaskOptions,
    methods: Sequence[str] = PAPER_METHODS,
    sources: Sources | None = None,
    failures: dict[str, str] | None = None,
) -> Iterator[Outcome]:
    """Run methods on a task, without ground truth, and yield the outcome of each as soon as it is known.

    The outcomes come in the order of :data:`METHODS`, with methods from outside this package last. Runs with
    the same source data can share ``sources``. If a method fails, the reason goes into ``failures`` under its
    name, and the others go on; if ``failures`` is ``None``, the error is raised.
    """
    found = {name: method_named(name) for name in methods}
    pipeline, order = Pipeline(task, options, sources), [*METHODS, *found]
    for name in sorted(found, key=order.index):
        try:
            outcome = found[name].run(pipeline)
        except Exception as error:
            if failures is None:
                raise
            failures[name] = reason_of(error)
            continue
        yield replace(outcome, method=name)


def _plain(title: str, cluster: Callable[[FloatArray, int, int], IntArray], needs: str = "") -> Method:
    """Make a method that clusters frozen features of the target by a function of vectors, K and seed."""

    def run(pipeline: Pipeline) -> Outcome:
        samples = pipeline.target_vectors().samples
        vectors, start = samples.read(np.arange(len(samples))), time.monotonic()
        labels = cluster(vectors, pipeline.task.n_clusters, pipeline.options.seed)
        return Outcome(labels, time.monotonic() - start)

    return Method(title, run, settings=None, needs=needs)


def trained(
    title: str,
    kind: type[ModelSettings],
    cluster: Callable[..., Clustering],
    *,
    with_source: bool = False,
    from_scratch: bool = False,
) -> Method:
    """Make a method that clusters the target by a baseline that trains, with settings of a class.

    With the source, it also sees the source's samples, through the source's encoder. From scratch, it starts
    from a random encoder, as in the baseline's paper, and always trains it.
    """

    def run(pipeline: Pipeline) -> Outcome:
        task, options = pipeline.task, pipeline.options
        settings, make_encoder, target = options.settings_of(kind), task.encoder, task.target
        if from_scratch:
            settings = settings.model_copy(update={"tune": "full"})
            make_encoder = partial(_from_scratch, options.seed)
        elif with_source:
            make_encoder, target = task.source_encoder, task.queries
        data = (task.source, target) if with_source else (target,)

        def train(settings: ModelSettings) -> Clustering:
            return cluster(options.session(settings), make_encoder(settings.tune), *data, task.n_clusters)

        found = with_best_rate(settings, train) if isinstance(settings, PairSettings) else train(settings)
        return Outcome(found.labels, found.seconds, parameters=found.parameters, images=found.images_seen)

    return Method(title, run, kind, "none" if from_scratch else "source" if with_source else "target")


def _from_scratch(seed: int, tune: Tune) -> Encoder:
    return sobel_network(seed=seed)


def _pretrained_only(pipeline: Pipeline, *, of_source: bool = False) -> Outcome:
    """Run PO with the target's encoder, or with the source's, which the paper reports if the two differ."""
    task, options = pipeline.task, pipeline.options
    session = options.session(options.settings_of(PCDSettings))
    make, data = (task.source_encoder, task.queries) if of_source else (task.encoder, task.target)
    encoder = make(session.settings.tune)
    return pipeline.extended(None, prepare(session, encoder, data, task.n_clusters, side="target"), session)


def _target_only(pipeline: Pipeline) -> Outcome:
    """Cluster the target by PCD as a client without a provider does."""
    task, options = pipeline.task, pipeline.options
    session = options.session(options.settings_of(PCDSettings), "alone-PCDSettings")
    found = learn_target_model(session, pipeline.encoder(session), task.target, task.n_clusters, None)
    return pipeline.extended(None, found, session)


def _all_three(pipeline: Pipeline) -> Outcome:
    session = pipeline.options.session(pipeline.options.settings_of(PCDSettings), "refine-target")
    learning = pipeline.adapted.model
    assert isinstance(learning, Learning)
    learning = replace(learning, trained=copy.deepcopy(learning.trained))  # AO's stays as it is
    refine_target(session, learning.trained, learning.data)
    return pipeline.extended(pipeline.adapted, learning, session)


def _consensus(pipeline: Pipeline, *, alone: bool = False) -> Outcome:
    """Cluster the target with the provider's labels, as far as the guard trusts them, or ``alone``."""
    task, options, labels = pipeline.task, pipeline.options, None
    source = None if alone else pipeline.transported
    if source is not None:
        labels = ClusterLabels(task.target.samples.ids, source.labels, task.source_clusters, "source")
    name = "alone-ConsensusSettings" if alone else "consensus"
    session = options.session(options.settings_of(ConsensusSettings), name)
    found = fit_target(session, pipeline.encoder(session), task.target, task.n_clusters, labels)
    return pipeline.extended(source, found, session)


METHODS: dict[str, Method] = {
    "kmeans": _plain("frozen k-means", plain.kmeans),
    "kmeans-100": _plain("frozen k-means, 100 starts", partial(plain.kmeans, starts=100)),
    "umap": _plain("UMAP + k-means", plain.umap_kmeans, needs="umap"),
    "spherical-kmeans": _plain("spherical k-means", plain.spherical_kmeans),
    "gaussian-mixture": _plain("Gaussian mixture", plain.gaussian_mixture),
    "ward": _plain("Ward's clustering", plain.ward),
    "spectral": _plain("spectral clustering", plain.spectral),
    "deepcluster": trained("DeepCluster", DeepClusterSettings, cluster_by_deepcluster),
    "iic": trained("IIC", IICSettings, cluster_by_iic),
    "acids": trained("ACIDS", ACIDSSettings, cluster_by_acids, with_source=True),
    "deepcluster-original": trained(
        "DeepCluster, from scratch", DeepClusterSettings, cluster_by_deepcluster, from_scratch=True
    ),
    "iic-original": trained("IIC, from scratch", IICSettings, cluster_by_iic, from_scratch=True),
    "acids-original": trained(
        "ACIDS, from scratch", ACIDSSettings, cluster_by_acids, with_source=True, from_scratch=True
    ),
    "po": Method("PO", _pretrained_only),
    "po-source": Method("PO, source's encoder", partial(_pretrained_only, of_source=True), encoders="source"),
    "so": Method("SO", lambda pipeline: pipeline.source, encoders="source"),
    "to": Method("TO", _target_only),
    "ao": Method("AO", lambda pipeline: pipeline.adapted, encoders="both"),
    "pcd": Method("PCD", _all_three, encoders="both"),
    "consensus-source": Method(
        "consensus, provider's labels", lambda pipeline: pipeline.transported, ConsensusSettings, "source"
    ),
    "consensus-alone": Method(
        "consensus, without a provider", partial(_consensus, alone=True), ConsensusSettings
    ),
    "consensus": Method("consensus", _consensus, ConsensusSettings, "both"),
}
"""Every method of this package by the name that benchmarks use."""
