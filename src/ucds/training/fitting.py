"""Builds models from clusters that were found in frozen features, and fits them; for both sides."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from ucds.config import ConsensusSettings
from ucds.data.dataset import Dataset
from ucds.errors import InputError, UcdsWarning
from ucds.gradients.checkpoint import StageProgress, StageResult
from ucds.gradients.health import assess
from ucds.gradients.session import Session
from ucds.math.arrays import FloatArray
from ucds.math.domain_transport import SharedPrototypes
from ucds.math.prototypes import solve_prototypes
from ucds.math.spaces import unit_rows
from ucds.networks.model import ClusteringModel, ProjectionHead
from ucds.networks.spec import Backbone, identity_backbone
from ucds.training.features import frozen_features
from ucds.training.prediction import predict
from ucds.training.prepare import Training, refuse_copies

LOGIT_SCALE = 20.0
"""Factor between the projection on a unit prototype and the logit. It changes no label; it sets how certain
a model is before it is fitted."""

_LEFT_OUT = 5  # every fifth sample is left out of a fit, to see what becomes of samples that were not drawn


@dataclass(frozen=True)
class FeatureClusters(SharedPrototypes):
    """Clusters found in the frozen features of some samples, and what a model takes to predict them.

    Attributes:
        assignments: ``(n, K)`` share of each cluster in each sample, rows sum to 1.
        variances: ``(w,)`` variances that the bottleneck holds; those of the projected samples if ``None``.
        seconds: time that the search for the clusters took, which :func:`remember` measures.
    """

    assignments: FloatArray
    variances: FloatArray | None = None
    seconds: float = 0.0


def features_to_cluster(
    session: Session[ConsensusSettings], backbone: Backbone, data: Dataset, n_clusters: int
) -> Dataset:
    """Compute the frozen features of the samples that are to be clustered; see :func:`build_model`.

    Raises:
        InputError: there are fewer samples than clusters, or a feature is not finite.
    """
    if len(data.samples) < n_clusters:
        raise InputError(f"{len(data.samples)} samples cannot form {n_clusters} clusters")
    refuse_copies(data.samples, n_clusters)
    return frozen_features(backbone, data, session.runtime)


def remember(
    session: Session[ConsensusSettings], stage: str, cluster: Callable[[], FeatureClusters]
) -> FeatureClusters:
    """Cluster once in the life of a run, and write the clusters down before anything else is done.

    The first process clusters: it has all cores then, and draws private noise once. The others receive its
    clusters. A resumed run finds them in its checkpoint; all that follows takes seconds, and is done again.

    Raises:
        UserError: ``cluster`` raised it, in the first process.
        Interrupted: the run was asked to stop while ``cluster`` was at work.
    """
    before = session.checkpoint
    if before is not None and before.stage == stage and before.progress is not None:
        kept = {name: tensor.numpy() for name, tensor in before.progress.state.items()}
        return FeatureClusters(**kept, seconds=before.progress.seconds)
    started = time.monotonic()
    found = session.runtime.once(cluster)
    # The order of their axes in memory, which a checkpoint keeps, decides how products are rounded.
    arrays = {name: value.copy("K") for name, value in vars(found).items() if isinstance(value, np.ndarray)}
    found = replace(found, **arrays, seconds=time.monotonic() - started)
    state = {name: torch.from_numpy(array) for name, array in arrays.items()}
    session.save(stage, {}, StageProgress(seconds=found.seconds, state=state))
    return found


def build_model(
    session: Session[ConsensusSettings],
    stage: str,
    backbone: Backbone,
    features: Dataset,
    found: FeatureClusters,
    n_clusters: int,
) -> Training:
    """Build the model whose head predicts clusters that :func:`remember` found in frozen features."""
    head, width = _head_of(found, features), session.settings.bottleneck_width
    body = identity_backbone(backbone.spec.width)
    trained = ClusteringModel(body, n_clusters, bottleneck_width=width, unit_features=True, head=head)
    training = Training(backbone, trained.to(session.runtime.device), features, "head")
    probabilities = predict(training.trained, features, session.runtime)
    proportions, assignments = torch.from_numpy(found.proportions), torch.from_numpy(found.assignments)
    evaluation = assess(probabilities, 0)
    if evaluation.warning is not None and session.runtime.rank == 0:
        warnings.warn(f"stage {stage}: {evaluation.warning}", UcdsWarning, stacklevel=3)
    session.results.append(StageResult(stage, [evaluation], 0, proportions, found.seconds, assignments))
    return training


def _head_of(found: FeatureClusters, features: Dataset) -> ProjectionHead:
    """Make the head that gives a model the clusters of its features."""
    variances = found.variances
    if variances is None:
        variances = ((unit_rows(read_all(features)) - found.mean) @ found.axes).var(0)
    parts = (found.axes, found.mean, variances, LOGIT_SCALE * found.prototypes)
    return ProjectionHead(*(torch.from_numpy(np.asarray(part, dtype=np.float32)) for part in parts))


def read_all(features: Dataset) -> FloatArray:
    """Read the features ``(n, d)`` of all samples."""
    vectors: FloatArray = features.samples.read(np.arange(len(features.samples)))
    return vectors


def fit_prototypes(
    session: Session[ConsensusSettings],
    name: str,
    model: ClusteringModel,
    features: FloatArray,
    targets: FloatArray,
) -> None:
    """Fit the prototypes of ``model`` in place to the assignments of the samples, as a stage of the run.

    The model predicts about these assignments already. The ``features`` are the ``(N, d_f)`` bottleneck
    features of samples of one domain, the ``targets`` the ``(N, K)`` share of each cluster in each of them.
    """
    started, runtime = time.monotonic(), session.runtime
    given = (features, targets, model.prototypes.detach().cpu().numpy())
    solved = torch.from_numpy(runtime.once(lambda: solve_prototypes(*given, watch=runtime.watch)))
    model.prototypes.data.copy_(solved)
    probabilities = (torch.from_numpy(features) @ solved).softmax(-1)
    proportions, seconds = torch.from_numpy(targets).mean(0, keepdim=True), time.monotonic() - started
    session.results.append(StageResult(name, [assess(probabilities, 0)], 0, proportions, seconds))


def tell_what_drawing_costs(
    session: Session[ConsensusSettings],
    model: ClusteringModel,
    features: FloatArray,
    targets: FloatArray,
    *,
    fitted: bool,
) -> None:
    """Say how far the model's answers agree with the clustering, for samples that were drawn and for others.

    Features and targets are those of :func:`fit_prototypes`, of the samples that were clustered. Prototypes
    that were ``fitted`` are fitted once more without every fifth sample, which shows what becomes of samples
    that were not drawn.
    """
    if session.runtime.rank != 0:
        return
    prototypes = model.prototypes.detach().cpu().numpy()
    wanted, out = targets.argmax(1), np.arange(len(targets)) % _LEFT_OUT == 0
    inside = ((features @ prototypes).argmax(1) == wanted).mean()
    found = f"the model gives {inside:.1%} of the clustered samples their cluster of the clustering"
    if fitted:
        other = solve_prototypes(features[~out], targets[~out], np.zeros_like(prototypes))
        outside = ((features[out] @ other).argmax(1) == wanted[out]).mean()
        found += f", and an estimated {outside:.1%} of the others that of the exact method"
    session.runtime.reporter.say(found)
