"""The entries of a record (scores, times, memory, versions, device), and the columns that tables show."""

from __future__ import annotations

import datetime
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from ucds.config import Settings
from ucds.experiments.pipeline import Outcome, TaskOptions
from ucds.experiments.revision import code_revision
from ucds.gradients.prediction import encode as network_features
from ucds.gradients.prepare import Learning
from ucds.gradients.runtime import Runtime
from ucds.math.arrays import IntArray
from ucds.math.metrics import clustering_accuracy, match_clusters, proportions_by_class, proportions_l1, score
from ucds.math.spaces import unit_rows
from ucds.networks.devices import describe_device, peak_device_memory_mib
from ucds.training.fitting import encode
from ucds.training.options import Compute
from ucds.training.prepare import Training

SOURCE_STAGES = ("learn-source", "cluster-domains")
"""Stages that see source samples: one of PCD, and one of the consensus method."""

Record = Mapping[str, Any]
"""The line of one run in the records of a benchmark, see :mod:`ucds.experiments.records`."""


@dataclass(frozen=True)
class Column:
    """A number that a record gives, for tables."""

    title: str
    scale: float = 1.0  # from the unit of the record to that of the table
    digits: int = 1  # after the point
    has_zero: bool = True  # whether 0 is a number; otherwise it says that there is none


COLUMNS = {
    "accuracy": Column("accuracy", 100),
    "nmi": Column("NMI", 100),
    "ari": Column("ARI", 100),
    "oracle_accuracy": Column("oracle accuracy (not used)", 100),
    "proportions_l1": Column("L1 of proportions", digits=2),
    "uniform_l1": Column("L1 of uniform", digits=2),
    "cluster_sizes_l1": Column("L1 of cluster sizes", digits=2),
    "estimate_error_l1": Column("L1 of proportions from cluster sizes", digits=2),
    "seconds": Column("seconds", has_zero=False),
    "seconds_per_batch": Column("seconds per 64 images", digits=3),
    "images_per_second": Column("images/s", digits=0),
    "parameters": Column("million parameters", 1e-6, digits=2, has_zero=False),
    "peak_memory_mib": Column("peak MiB", digits=0),
    "peak_device_memory_mib": Column("peak MiB of the GPU", digits=0),
}
"""Columns by the name that benchmarks use, which is that of the entry in a record."""


def column_of(record: Record, name: str) -> float | None:
    """Return the number that a record has for a column; ``None`` if it has none."""
    if name == "seconds_per_batch":  # for 64 images: the paper's step, whatever the method's batch is
        rate = record.get("images_per_second")
        return 64 / rate if rate else None
    value, column = record.get(name), COLUMNS[name]
    return None if value is None or not (value or column.has_zero) else column.scale * value


def measure(outcome: Outcome, classes: IntArray, names: Sequence[str]) -> dict[str, Any]:
    """Compute the numbers of one record: scores of the labels, times, memory and proportions."""
    labels, n = outcome.labels, len(names)
    scores, matching = score(labels, classes), match_clusters(labels, classes)
    true = np.bincount(classes, minlength=n) / len(classes)
    sizes = proportions_by_class(np.bincount(labels, minlength=n) / len(labels), matching, n)
    record: dict[str, Any] = {
        "method": outcome.method,
        "samples": len(classes),
        "clusters_in_use": len(np.unique(labels)),
        "accuracy": scores.accuracy,
        "nmi": scores.nmi,
        "ari": scores.ari,
        "seconds": round(outcome.seconds, 3),
        "stage_seconds": {stage.name: round(stage.seconds, 3) for stage in outcome.stages},
        "parameters": outcome.parameters,
        "peak_memory_mib": peak_memory_mib(),
        "cluster_sizes_l1": proportions_l1(sizes, true),
    }
    if outcome.images and outcome.seconds:
        record["images_per_second"] = round(outcome.images / outcome.seconds, 1)
    if memory := peak_device_memory_mib():
        record["peak_device_memory_mib"] = memory
    on_target = [stage for stage in outcome.stages if stage.name not in SOURCE_STAGES]
    if on_target:
        evaluated = [evaluation.labels for stage in on_target for evaluation in stage.evaluations]
        proportions = on_target[-1].proportions[0]
        estimated = proportions_by_class(proportions, matching, n)
        record |= {
            "oracle_accuracy": max(clustering_accuracy(found, classes) for found in evaluated),
            "proportions_l1": proportions_l1(estimated, true),
            "uniform_l1": proportions_l1(np.full(n, 1 / n), true),
            "estimate_error_l1": proportions_l1(estimated, sizes),
            "classes": list(names),
            "true_proportions": true.round(6).tolist(),
            "estimated_proportions": estimated.round(6).tolist(),
        }
    return record


def place_features(model: Learning | Training, options: TaskOptions, classes: IntArray) -> dict[str, Any]:
    """Compute the entries of a record from which the paper's t-SNE figure is drawn."""
    from sklearn.manifold import TSNE

    if isinstance(model, Training):
        features, prototypes = encode(model.head, model.data), model.head.prototypes
    else:
        runtime, trained = Runtime(options.compute), model.trained
        features = network_features(trained.to(runtime.device), model.data, runtime).cpu().numpy()
        prototypes = trained.prototypes.detach().cpu().numpy()
    directions = unit_rows(np.concatenate([features, prototypes.T]))
    with threadpool_limits(1):  # the figure must not depend on the number of processors
        perplexity = min(30.0, (len(directions) - 1) / 3)
        points = TSNE(perplexity=perplexity, random_state=options.seed).fit_transform(directions).round(2)
    return {
        "sample_points": points[: len(features)].tolist(),
        "sample_classes": classes.tolist(),
        "prototype_points": points[len(features) :].tolist(),
    }


def provenance(settings: Settings | None, compute: Compute) -> dict[str, Any]:
    """Return the time, settings, versions and device of a run that is made now."""
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "settings_hash": settings.hash if settings is not None else "none",
        "revision": code_revision(),
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("ucds", "torch", "timm", "scikit-learn")},
        **describe_device(compute.accelerator),
        "precision": compute.precision,
    }


def peak_memory_mib() -> int:
    """Return the most memory that this process has held so far, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():
        # The figure of getrusage would begin at what the parent process held.
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) // 1024
    import resource  # here, because Windows has none

    scale = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // scale
