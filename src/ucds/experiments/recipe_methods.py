"""The recipe ``ucds`` as methods: its provider's answers, its target alone, and both together."""

from __future__ import annotations

from ucds.experiments.bench import Bench, LearnedSource, Outcome
from ucds.labels.cluster_labels import ClusterLabels
from ucds.target.recipe import train_target_by_consensus
from ucds.training.prepare import Training


def source_only(bench: Bench) -> Outcome:
    """What the provider says of the target's samples."""
    return bench.outcome("ucds-source", bench.transported.learned, bench.transported.answers)


def alone(bench: Bench) -> Outcome:
    """The target without a provider."""
    return _on_target("ucds-alone", bench, None)


def both_sides(bench: Bench) -> Outcome:
    """The target with the provider's labels, as far as the guard trusts them."""
    return _on_target("ucds", bench, bench.transported)


def _on_target(method: str, bench: Bench, source: LearnedSource | None) -> Outcome:
    task, setting = bench.task, bench.setting
    session = setting.session(method)
    labels = None
    if source is not None:
        n_clusters = task.source_clusters or task.n_clusters
        labels = ClusterLabels(task.target.samples.ids, source.answers, n_clusters, "source")
    model = train_target_by_consensus(
        session, task.backbone(), task.target, task.n_clusters, labels, cache=setting.cache
    )
    frozen = setting.config.tune == "head"
    data = bench.target_vectors() if frozen else task.target
    training = Training(model, model.head() if frozen else model, data)
    before = None if source is None else source.learned
    return bench.outcome(method, bench.extended(before, training, session, data))
