"""Computes the figures of a record: scores against ground truth, times, memory, versions and device."""

from __future__ import annotations

import datetime
import platform
import resource
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ucds.choices import Accelerator, Precision
from ucds.config import Settings
from ucds.data.samples import Samples, split_validation
from ucds.experiments.pipeline import Outcome
from ucds.experiments.revision import code_revision
from ucds.math.arrays import IntArray
from ucds.math.metrics import (
    clustering_accuracy,
    match_clusters,
    proportions_by_class,
    proportions_l1,
    score,
)
from ucds.training.checkpoint import StageResult

SOURCE_STAGE = "learn-source"
SOURCE_STAGES = (SOURCE_STAGE, "cluster-domains", "fit-domains")
"""Stages that see source samples: PCD's, and those of the consensus method."""


def measure(outcome: Outcome, classes: IntArray, names: Sequence[str]) -> dict[str, Any]:
    """Compute the figures of one record: scores of the labels, times, memory and proportions."""
    scores = score(outcome.labels, classes)
    record: dict[str, Any] = {
        "method": outcome.method,
        "samples": len(classes),
        "clusters_in_use": len(np.unique(outcome.labels)),
        "accuracy": scores.accuracy,
        "nmi": scores.nmi,
        "ari": scores.ari,
        "seconds": round(outcome.seconds, 3),
        "stage_seconds": {stage.name: round(stage.seconds, 3) for stage in outcome.stages},
        "stage_steps": {stage.name: stage.evaluations[-1].step for stage in outcome.stages},
        "parameters": outcome.parameters,
        "peak_memory_mib": peak_memory_mib(),
    }
    true = np.bincount(classes, minlength=len(names)) / len(classes)
    record["cluster_sizes_l1"] = proportions_l1(_cluster_sizes(outcome.labels, classes, len(names)), true)
    if outcome.images and outcome.seconds:
        record["images_per_second"] = round(outcome.images / outcome.seconds, 1)
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        record["peak_device_memory_mib"] = torch.cuda.max_memory_allocated() // 1024**2
    on_target = [stage for stage in outcome.stages if stage.name not in SOURCE_STAGES]
    if on_target:
        record |= _of_target_stages(outcome.labels, on_target, classes, names)
    return record


def _of_target_stages(
    labels: IntArray, stages: Sequence[StageResult], classes: IntArray, names: Sequence[str]
) -> dict[str, Any]:
    """Score the stages on the target at every evaluation, and the proportions against the classes."""
    kept = {stage.name: stage.evaluations[stage.selected].labels.numpy() for stage in stages}
    curves = {
        stage.name: [(e.step, clustering_accuracy(e.labels.numpy(), classes)) for e in stage.evaluations]
        for stage in stages
    }
    matching = match_clusters(labels, classes)
    true = np.bincount(classes, minlength=len(names)) / len(classes)
    proportions = stages[-1].proportions[0].cpu().numpy()
    estimated = proportions_by_class(proportions, matching, len(names))
    uniform = np.full(len(names), 1 / len(names))
    own = _cluster_sizes(labels, classes, len(names), len(proportions))
    return {
        "stage_scores": {name: asdict(score(found, classes)) for name, found in kept.items()},
        "stage_curves": curves,
        "oracle_accuracy": max(accuracy for curve in curves.values() for _, accuracy in curve),
        "proportions_l1": proportions_l1(estimated, true),
        "uniform_l1": proportions_l1(uniform, true),
        "estimate_error_l1": proportions_l1(estimated, own),
        "classes": list(names),
        "true_proportions": true.round(6).tolist(),
        "estimated_proportions": estimated.round(6).tolist(),
    }


def _cluster_sizes(
    labels: IntArray, classes: IntArray, n_classes: int, n_clusters: int = 0
) -> NDArray[np.float64]:
    """Compute the shares of the samples in each cluster, matched to the classes and in their order."""
    sizes = np.bincount(labels, minlength=max(n_clusters, n_classes)) / len(labels)
    return proportions_by_class(sizes, match_clusters(labels, classes), n_classes)


def source_scores(
    stages: Sequence[StageResult], samples: Samples, classes: IntArray, fraction: float, seed: int
) -> dict[str, Any]:
    """Score PCD's source model, by domain, on the share of the source samples set aside to choose it.

    There are no scores without a stage 1. ``seed`` is that of the choice of the samples.
    """
    stage = next((stage for stage in stages if stage.name == SOURCE_STAGE), None)
    if stage is None:
        return {}
    kept = np.arange(len(samples))
    if fraction > 0:
        kept = split_validation(samples, fraction, seed)[1].index
    labels, domain = stage.evaluations[stage.selected].labels.numpy(), samples.domain[kept]
    return {
        name: asdict(score(labels[domain == d], classes[kept][domain == d]))
        for d, name in enumerate(samples.domain_names)
        if (domain == d).any()
    }


def provenance(settings: Settings | None, accelerator: Accelerator, precision: Precision) -> dict[str, Any]:
    """Return the time, settings, versions and device of a run that is made now."""
    on_cuda = torch.cuda.is_available() and accelerator != "cpu"
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "settings_hash": settings.hash if settings is not None else "none",
        "revision": code_revision(),
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("ucds", "torch", "timm", "scikit-learn")},
        "device": torch.cuda.get_device_name() if on_cuda else "cpu",
        "threads": torch.get_num_threads(),
        "precision": precision,
    }


def peak_memory_mib() -> int:
    """Return the most memory that this process has held so far, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():
        # The figure of getrusage would begin at what the parent process held.
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) // 1024
    scale = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // scale
