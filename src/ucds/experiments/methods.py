"""The methods by name: the paper's, which are lists of stages, and the baselines.

A method is a function of a :class:`ucds.experiments.bench.Bench`. To add one, write that function and
enter it in :data:`METHODS`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from ucds.baselines.kmeans import frozen_kmeans
from ucds.errors import UserError
from ucds.experiments import baseline_methods, recipe_methods
from ucds.experiments.bench import Ask, Bench, Outcome, Setting, Sources, Task
from ucds.target.refine import refine_target
from ucds.training.prepare import prepare

Encoders = Literal["target", "source", "both", "none"]


@dataclass(frozen=True)
class Method:
    """A way to cluster the target.

    Attributes:
        title: what tables call it.
        run: does it; ground truth has no part in it.
        encoders: whose pre-trained encoder it needs.
        section: where its own settings stand in a benchmark's ``[baselines]``, if it has any.
        settings: reads them.
        recipe: whether it looks at the settings of the recipe ``ucds``.
    """

    title: str
    run: Callable[[Bench], Outcome]
    encoders: Encoders = "target"
    section: str | None = None
    settings: Callable[[Mapping[str, Any]], BaseModel] | None = None
    recipe: bool = False


def run_methods(
    task: Task,
    setting: Setting,
    methods: Sequence[str] | None = None,
    ask: Ask | None = None,
    sources: Sources | None = None,
) -> Iterator[Outcome]:
    """Run methods on a task, and yield what each makes of the target as soon as it is known.

    Ground truth has no part in it: who wants scores holds the labels against it afterwards.

    Args:
        task: the data.
        setting: how to run.
        methods: names from :data:`METHODS`, the paper's if ``None``; they come in the order of that table.
        ask: how the target owner gets its labels; straight from the model if ``None``.
        sources: source models to share with other tasks of the same source.

    Raises:
        UserError: a method is unknown.
    """
    asked = PAPER_METHODS if methods is None else methods
    unknown = sorted(set(asked) - METHODS.keys())
    if unknown:
        raise UserError(f"unknown methods {', '.join(unknown)}; known: {', '.join(METHODS)}")
    bench = Bench(task, setting, ask, sources)
    for name, method in METHODS.items():
        if name in asked:
            yield method.run(bench)


def settings_of(method: str, baselines: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """All settings of a baseline, with its defaults for what is not given; ``None`` for other methods.

    Raises:
        UserError: one is unknown or impossible.
    """
    entry = METHODS[method]
    if entry.section is None or entry.settings is None:
        return None
    return entry.settings(baselines.get(entry.section, {})).model_dump(mode="json")


def _kmeans(bench: Bench) -> Outcome:
    features = bench.target_vectors()
    start = time.monotonic()
    labels = frozen_kmeans(features.samples, bench.task.n_clusters, bench.setting.seed)
    return Outcome("kmeans", labels, time.monotonic() - start, (), None, features)


def _pretrained_only(bench: Bench) -> Outcome:
    session = bench.setting.session()
    training = bench.new_target(session)
    return bench.outcome("po", bench.extended(None, training, session, training.data))


def _pretrained_source_only(bench: Bench) -> Outcome:
    """PO with the source's encoder, which the paper prints beside the target's where the two differ."""
    task, session = bench.task, bench.setting.session()
    training = prepare(
        session,
        task.make_source_backbone(),
        task.seen_by_source,
        task.n_clusters,
        side="target",
        cache=bench.setting.cache,
    )
    return bench.outcome("po-source", bench.extended(None, training, session, training.data))


def _target_only(bench: Bench) -> Outcome:
    session = bench.setting.session("target-only")
    training = bench.new_target(session)
    refine_target(session, training.trained, training.data)
    return bench.outcome("to", bench.extended(None, training, session, training.data))


def _source_only(bench: Bench) -> Outcome:
    return bench.outcome("so", bench.source.learned, bench.source.answers)


def _adaptation_only(bench: Bench) -> Outcome:
    return bench.outcome("ao", bench.adapted)


def _all_three(bench: Bench) -> Outcome:
    session, before = bench.setting.session("refine-target"), bench.adapted.copied()
    refine_target(session, before.training.trained, before.training.data)
    return bench.outcome("pcd", bench.extended(before, before.training, session, before.training.data))


PAPER_METHODS = ("kmeans", "po", "so", "to", "ao", "pcd")
"""k-means on frozen features, and the paper's own: pre-trained, source, target and adaptation only, PCD."""

METHODS: dict[str, Method] = {
    "kmeans": Method("frozen k-means", _kmeans),
    "deepcluster": Method(
        "DeepCluster",
        baseline_methods.deepcluster,
        section="deepcluster",
        settings=baseline_methods.deepcluster_settings,
    ),
    "iic": Method("IIC", baseline_methods.iic, section="iic", settings=baseline_methods.iic_settings),
    "acids": Method(
        "ACIDS",
        baseline_methods.acids,
        encoders="source",
        section="acids",
        settings=baseline_methods.acids_settings,
    ),
    "deepcluster-original": Method(
        "DeepCluster, from scratch",
        baseline_methods.deepcluster_original,
        encoders="none",
        section="deepcluster",
        settings=baseline_methods.deepcluster_settings,
    ),
    "iic-original": Method(
        "IIC, from scratch",
        baseline_methods.iic_original,
        encoders="none",
        section="iic",
        settings=baseline_methods.iic_settings,
    ),
    "acids-original": Method(
        "ACIDS, from scratch",
        baseline_methods.acids_original,
        encoders="none",
        section="acids",
        settings=baseline_methods.acids_settings,
    ),
    "po": Method("PO", _pretrained_only),
    "po-source": Method("PO, source's encoder", _pretrained_source_only, encoders="source"),
    "so": Method("SO", _source_only, encoders="source"),
    "to": Method("TO", _target_only),
    "ao": Method("AO", _adaptation_only, encoders="both"),
    "pcd": Method("PCD", _all_three, encoders="both"),
    "ucds-source": Method(
        "ucds, provider's labels", recipe_methods.source_only, encoders="source", recipe=True
    ),
    "ucds-alone": Method("ucds, without a provider", recipe_methods.alone, recipe=True),
    "ucds": Method("ucds", recipe_methods.both_sides, encoders="both", recipe=True),
}
"""Every method by the name that benchmarks use."""
