"""Makes heads from clusters that were found in frozen features, and fits the heads; for both sides."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module

import numpy as np

from ucds.config import ConsensusSettings
from ucds.data.dataset import Dataset
from ucds.encoders.encoder import Encoder
from ucds.errors import DamagedFileError, InputError, warn
from ucds.heads import Head, softmax
from ucds.math.arrays import FloatArray
from ucds.math.domain_transport import FeatureClusters
from ucds.math.prototypes import solve_prototypes
from ucds.training.features import frozen_features
from ucds.training.prepare import refuse_copies
from ucds.training.results import StageResult, assess
from ucds.training.work import Work

LOGIT_SCALE = 20.0
"""Factor between the projection on a unit prototype and the logit. The factor changes no label; it sets
how certain a model is before it is fitted."""

_LEFT_OUT = 5  # every fifth sample is left out of a fit, to see what becomes of samples that were not drawn
_BLOCK = 4096  # samples whose features are in memory at a time


def features_to_cluster(
    work: Work[ConsensusSettings], encoder: Encoder, data: Dataset, n_clusters: int
) -> Dataset:
    """Compute the frozen features of the samples that are to be clustered; see :func:`build_head`."""
    if len(data.samples) < n_clusters:
        raise InputError(f"{len(data.samples)} samples cannot form {n_clusters} clusters")
    refuse_copies(data.samples, n_clusters)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(import_module, "sklearn.cluster")  # takes a second, which new images take anyway
        return frozen_features(encoder, data, work.compute, work.watch)


def build_head(
    work: Work[ConsensusSettings], stage: str, features: Dataset, cluster: Callable[[], FeatureClusters]
) -> tuple[Head, FeatureClusters, FloatArray]:
    """Cluster frozen features, once in the life of a run, and make the head that predicts the clusters.

    It is returned with the clusters, and with its features ``(n, d_f)`` of the samples.
    """
    arrays, seconds = work.remember(stage, lambda: vars(cluster()))
    try:
        found = FeatureClusters(**arrays)
        head = _head_of(found, work.settings.bottleneck_width)
        encoded = encode(head, features)
    except (TypeError, ValueError):
        raise DamagedFileError("the run to be resumed holds other clusters: delete its folder") from None
    evaluation = assess(head.probabilities(encoded))
    if evaluation.warning is not None:
        warn(f"stage {stage}: {evaluation.warning}")
    work.results.append(StageResult(stage, [evaluation], 0, found.proportions, seconds, found.assignments))
    return head, found, encoded


def _head_of(found: FeatureClusters, width: int) -> Head:
    """Make a head from axes and prototypes; bottleneck features beyond the axes are zero."""
    kept, k = found.prototypes.shape
    weight, bias = np.zeros((width, len(found.mean)), np.float32), np.zeros(width, np.float32)
    weight[:kept], bias[:kept] = found.axes.T, -(found.mean @ found.axes)
    prototypes = np.zeros((width, k), np.float32)
    prototypes[:kept] = LOGIT_SCALE * found.prototypes
    return Head(weight, bias, prototypes, unit_features=True)


def encode(head: Head, features: Dataset) -> FloatArray:
    """Compute the bottleneck features ``(n, d_f)`` of all samples, given as features of an encoder."""
    n = len(features.samples)
    encoded = np.empty((n, head.bottleneck_width), np.float32)
    for start in range(0, n, _BLOCK):
        rows = features.samples.read(np.arange(start, min(start + _BLOCK, n)))
        encoded[start : start + _BLOCK] = head.features(rows)
    return encoded


def fit_prototypes(
    work: Work[ConsensusSettings], name: str, head: Head, features: FloatArray, targets: FloatArray
) -> Head:
    """Fit the prototypes of a head to the assignments of the samples, as a stage of the run.

    The head already predicts nearly these assignments. The ``features`` are the ``(N, d_f)`` bottleneck
    features of samples of one domain, the ``targets`` the ``(N, K)`` share of each cluster in each sample.
    """
    started = time.monotonic()
    solved = replace(head, prototypes=solve_prototypes(features, targets, head.prototypes, watch=work.watch))
    evaluation = assess(softmax(solved.logits(features)))
    proportions, seconds = targets.mean(0, keepdims=True), time.monotonic() - started
    work.results.append(StageResult(name, [evaluation], 0, proportions, seconds))
    return solved


def tell_what_drawing_costs(
    work: Work[ConsensusSettings], head: Head, features: FloatArray, targets: FloatArray, *, fitted: bool
) -> None:
    """Say how far the model's answers agree with the clustering, for samples that were drawn and for others.

    Features and targets belong to the clustered samples, as in :func:`fit_prototypes`. Prototypes that were
    ``fitted`` are fitted once more without every fifth sample: this estimates the agreement on other samples.
    """
    wanted, out = targets.argmax(1), np.arange(len(targets)) % _LEFT_OUT == 0
    inside = (head.logits(features).argmax(1) == wanted).mean()
    found = f"the model agrees with the clustering on {inside:.1%} of the clustered samples"
    if fitted:
        other = solve_prototypes(features[~out], targets[~out], np.zeros_like(head.prototypes))
        outside = ((features[out] @ other).argmax(1) == wanted[out]).mean()
        found += f", and on an estimated {outside:.1%} of the others"
    work.say(found)
