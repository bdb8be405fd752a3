"""The consensus method in a benchmark: the provider's labels, the client alone, and both together."""

from __future__ import annotations

from ucds.config import ConsensusSettings
from ucds.experiments.pipeline import LearnedSource, Outcome, Pipeline
from ucds.labels.cluster_labels import ClusterLabels
from ucds.target.fit import fit_target


def provider_labels(pipeline: Pipeline) -> Outcome:
    """Take the provider's labels of the target's samples as they are."""
    source = pipeline.transported
    return pipeline.outcome(source.learned, source.answers)


def without_provider(pipeline: Pipeline) -> Outcome:
    """Cluster the target without a provider."""
    return _cluster_target("consensus-alone", pipeline, None)


def with_provider(pipeline: Pipeline) -> Outcome:
    """Cluster the target with the provider's labels, as far as the guard trusts them."""
    return _cluster_target("consensus", pipeline, pipeline.transported)


def _cluster_target(method: str, pipeline: Pipeline, source: LearnedSource | None) -> Outcome:
    task, options = pipeline.task, pipeline.options
    session, labels = options.session(options.settings_of(ConsensusSettings), method), None
    if source is not None:
        n_clusters = task.source_clusters or task.n_clusters
        labels = ClusterLabels(task.target.samples.ids, source.answers, n_clusters, "source")
    found = fit_target(session, task.backbone(), task.target, task.n_clusters, labels, cache=options.cache)
    before = None if source is None else source.learned
    return pipeline.outcome(pipeline.extended(before, found, session))
