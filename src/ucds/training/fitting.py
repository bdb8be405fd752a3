"""Builds models from clusters that were found in frozen features, and fits them; for both sides."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ucds.backbones import Backbone
from ucds.config import ConsensusSettings, MethodSettings
from ucds.data.dataset import Dataset
from ucds.data.samples import draw_samples, subset
from ucds.errors import InputError, UcdsWarning
from ucds.math.arrays import FloatArray, IntArray, Watch
from ucds.math.pcd import soft_cross_entropy
from ucds.math.spaces import unit_rows
from ucds.models import ClusteringModel, ProjectionHead
from ucds.training.checkpoint import StageResult
from ucds.training.features import frozen_features
from ucds.training.health import assess
from ucds.training.prediction import encode, predict
from ucds.training.prepare import Training, refuse_copies
from ucds.training.seeds import numpy_generator
from ucds.training.session import Session

LOGIT_SCALE = 20.0
"""Factor between the projection on a unit prototype and the logit. It changes no label; it sets how certain
a model is before it is fitted."""


DECAY = 1e-4
"""Weight decay of the prototypes that are fitted."""

BATCH = 64
"""Samples that the model is given at a time; more only cost memory on a processor."""

_ITERATIONS = 100  # of L-BFGS at most
_LEFT_OUT = 5  # every fifth sample is left out of a fit, to see what becomes of samples that were not drawn


@dataclass(frozen=True)
class FeatureClusters:
    """Clusters found in the frozen features of some samples.

    Attributes:
        axes: ``(d, w)`` directions as columns, onto which the model projects unit features.
        mean: ``(d,)`` vector that is subtracted from unit features before the projection.
        prototypes: ``(w, K)`` prototypes of the clusters, unit columns.
        proportions: ``(D, K)`` sizes of the clusters in each domain.
        assignments: ``(n, K)`` share of each cluster in each sample, rows sum to 1.
        seconds: time that the search for the clusters took.
        variances: ``(w,)`` variances that the bottleneck holds; those of the projected samples if ``None``.
    """

    axes: FloatArray
    mean: FloatArray
    prototypes: FloatArray
    proportions: FloatArray
    assignments: FloatArray
    seconds: float
    variances: FloatArray | None = None


CLUSTERED = "are clustered; the model gives the others their clusters"
"""Use of the samples that :func:`draw_dataset` draws for a clustering."""


def draw_dataset(
    session: Session[MethodSettings], data: Dataset, first: Sequence[IntArray] = (), use: str = CLUSTERED
) -> tuple[Dataset, IntArray]:
    """Draw samples where a domain has more than ``most_samples``.

    What is done with the drawn ones takes bounded time and memory, whatever the size of the data.

    Args:
        session: the run.
        data: samples and views.
        first: groups of positions that are drawn before all others, the first group before the second.
        use: words that tell the user what becomes of the drawn samples, and of the others.

    Returns:
        The data drawn, and its positions ``(m,)`` in ``data``, ascending.
    """
    runtime, most = session.runtime, session.settings.most_samples
    positions = draw_samples(data.samples, most, numpy_generator(runtime.seed, "draw-samples"), first)
    if len(positions) == len(data.samples):
        return data, positions
    if runtime.rank == 0:
        drawn = f"{len(positions):,} of {len(data.samples):,} samples, drawn at random (setting most_samples)"
        runtime.reporter.say(f"{drawn}, {use}")
    return Dataset(subset(data.samples, positions), data.view), positions


def start_from_clusters(
    session: Session[ConsensusSettings],
    stage: str,
    backbone: Backbone,
    data: Dataset,
    n_clusters: int,
    cluster: Callable[[FloatArray], FeatureClusters],
) -> tuple[Training, Tensor]:
    """Cluster the frozen features of samples, and build the model whose head predicts the clusters.

    With several processes the first one clusters, and the others receive its clusters. A resumed run that has
    clustered before takes clusters and weights from its checkpoint.

    Args:
        session: the run.
        stage: name of the stage.
        backbone: pre-trained encoder.
        data: samples and views that the backbone takes.
        n_clusters: number of clusters, K.
        cluster: function that finds clusters in features ``(n, d)``.

    Returns:
        The model, and the assignments ``(n, K)`` of the samples.

    Raises:
        InputError: there are fewer samples than clusters, or a feature is not finite.
        UserError: ``cluster`` raised it, in the first process.
        Interrupted: the run was asked to stop while ``cluster`` was at work.
    """
    if len(data.samples) < n_clusters:
        raise InputError(f"{len(data.samples)} samples cannot form {n_clusters} clusters")
    refuse_copies(data.samples, n_clusters)
    runtime = session.runtime
    backbone.module.to(runtime.device)
    features = frozen_features(backbone, data, runtime, batch_size=BATCH)
    known = session.result_of(stage)
    if known is not None and known.assignments is not None:
        training = _build(session, backbone, data, features, n_clusters, None)
        if session.checkpoint is not None:
            training.trained.load_state_dict(session.checkpoint.model)
        return training, known.assignments
    vectors: FloatArray = features.samples.read(np.arange(len(features.samples))).numpy()
    # The first process alone has all cores then, and draws private noise once.
    found = runtime.once(lambda: cluster(vectors))
    variances = found.variances
    if variances is None:
        variances = ((unit_rows(vectors) - found.mean) @ found.axes).var(0)
    parts = (found.axes, found.mean, variances, LOGIT_SCALE * found.prototypes)
    head = ProjectionHead(*(torch.from_numpy(np.asarray(part, dtype=np.float32)) for part in parts))
    training = _build(session, backbone, data, features, n_clusters, head)
    seen = training.data
    probabilities = predict(training.trained, seen.samples, seen.view, runtime, BATCH)
    proportions, assignments = torch.from_numpy(found.proportions), torch.from_numpy(found.assignments)
    evaluation = assess(probabilities, 0)
    if evaluation.warning is not None and runtime.rank == 0:
        warnings.warn(f"stage {stage}: {evaluation.warning}", UcdsWarning, stacklevel=3)
    result = StageResult(stage, [evaluation], 0, proportions, found.seconds, assignments)
    session.conclude(result, training.trained.state_dict())
    return training, assignments


def _build(
    session: Session[ConsensusSettings],
    backbone: Backbone,
    data: Dataset,
    features: Dataset,
    n_clusters: int,
    head: ProjectionHead | None,
) -> Training:
    """Build the model; its head on features is what is fitted."""
    model = ClusteringModel(
        backbone,
        n_clusters,
        bottleneck_width=session.settings.bottleneck_width,
        unit_features=True,
        head=head,
        generator=torch.Generator(),
    ).to(session.runtime.device)
    return Training(model, model.head(), features)


def fit_prototypes(
    session: Session[ConsensusSettings],
    name: str,
    model: ClusteringModel,
    data: Dataset,
    targets: Tensor,
) -> StageResult:
    """Fit the prototypes of ``model`` in place to the assignments of the samples, as a stage of the run.

    Args:
        session: the run.
        name: name of the stage.
        model: model that predicts about these assignments already.
        data: samples of one domain, as vectors.
        targets: ``(N, K)`` share of each cluster in each sample, rows sum to 1.
    """
    known = session.result_of(name)
    if known is not None:
        if session.checkpoint is not None:
            model.load_state_dict(session.checkpoint.model)
        return known
    started, runtime = time.monotonic(), session.runtime
    features = encode(model, data.samples, data.view, runtime, BATCH)
    start, wanted = model.prototypes.detach(), targets.to(features)
    model.prototypes.data.copy_(
        runtime.once(lambda: solve_prototypes(features, wanted, start, watch=runtime.watch))
    )
    probabilities = (features @ model.prototypes.detach()).softmax(-1)
    proportions, seconds = targets.mean(0, keepdim=True), time.monotonic() - started
    result = StageResult(name, [assess(probabilities, 0)], 0, proportions, seconds)
    session.conclude(result, model.state_dict())
    return result


def solve_prototypes(
    features: Tensor,
    targets: Tensor,
    start: Tensor,
    *,
    decay: float = DECAY,
    watch: Watch | None = None,
) -> Tensor:
    """Find the prototypes that predict given assignments best: a convex problem, solved as one.

    The mean cross-entropy plus ``decay / 2`` times the sum of squares is minimised over all samples at once,
    by L-BFGS.

    Args:
        features: ``(n, d_f)`` bottleneck features.
        targets: ``(n, K)`` share of each cluster in each sample, rows sum to 1.
        start: ``(d_f, K)`` prototypes to start from.
        decay: weight of the sum of squares; with 0 there may be no minimum.
        watch: told after each evaluation of the objective.

    Returns:
        ``(d_f, K)`` prototypes.

    Source:
        D. Liu and J. Nocedal, On the limited memory BFGS method for large scale optimization, 1989.
    """
    prototypes, evaluated = start.clone().requires_grad_(), 0
    optimiser = torch.optim.LBFGS([prototypes], max_iter=_ITERATIONS, line_search_fn="strong_wolfe")

    def tell(done: int) -> None:
        if watch is not None:
            watch("fit the prototypes", done, _ITERATIONS)

    def loss() -> Tensor:
        nonlocal evaluated
        tell(min(evaluated, _ITERATIONS - 1))
        evaluated += 1
        optimiser.zero_grad()
        value = soft_cross_entropy(features @ prototypes, targets) + decay / 2 * prototypes.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        optimiser.step(loss)  # type: ignore[no-untyped-call]
    tell(_ITERATIONS)  # it often needs fewer
    return prototypes.detach()


def tell_what_drawing_costs(
    session: Session[ConsensusSettings], training: Training, targets: Tensor, *, fitted: bool
) -> None:
    """Say how far the model's answers agree with the clustering, for samples that were drawn and for others.

    Args:
        session: the run, in which fewer samples were clustered than there are.
        training: finished model with the samples that were clustered.
        targets: ``(N, K)`` share of each cluster in each of these samples.
        fitted: whether the prototypes are the solution of :func:`solve_prototypes`. They are then fitted once
            more without every fifth sample, which shows what becomes of samples that were not drawn.
    """
    runtime, data = session.runtime, training.data
    features = encode(training.trained, data.samples, data.view, runtime, BATCH)
    targets, prototypes = targets.to(features), training.trained.prototypes.detach()
    wanted = targets.argmax(1)
    out = torch.arange(len(targets), device=features.device) % _LEFT_OUT == 0
    inside = float(((features @ prototypes).argmax(1) == wanted).double().mean())
    found = f"the model gives {inside:.1%} of the clustered samples their cluster of the clustering"
    if fitted:
        start = torch.zeros_like(prototypes)
        other = solve_prototypes(features[~out], targets[~out], start)
        outside = float(((features[out] @ other).argmax(1) == wanted[out]).double().mean())
        found += f", and an estimated {outside:.1%} of the others that of the exact method"
    if runtime.rank == 0:
        runtime.reporter.say(found)
