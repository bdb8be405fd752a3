"""Draws samples where a domain has more than a method is to look at, and tells what that costs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ucds.config import ConsensusSettings, MethodSettings
from ucds.data.dataset import Dataset
from ucds.data.samples import draw_samples, subset
from ucds.math.arrays import IntArray
from ucds.training.fitting import solve_prototypes
from ucds.training.prediction import encode
from ucds.training.prepare import Training
from ucds.training.seeds import numpy_generator
from ucds.training.session import Session

CLUSTERED = "are clustered; the model gives the others their clusters"
"""Use of the samples that :func:`draw_dataset` draws for a clustering."""

_LEFT_OUT = 5  # every fifth sample is left out of a fit, to see what becomes of samples that were not drawn


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
    runtime = session.runtime
    features = encode(training.trained, training.data, runtime)
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
