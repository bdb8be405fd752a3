"""Clusters several domains with shared prototypes: first each domain by itself, then all by transport.

A domain is best clustered by itself, undisturbed by the differences between domains. The clusters of the
domains are then matched with each other, and transport plans correct the prototypes that they share. A plan
is the paper's Eq. 1 with three differences. It covers a whole domain, so that its marginals are those of the
domain and not of a batch. Each domain's own mean is subtracted, which removes most differences between
domains. The proportions may deviate from the wanted ones at a cost (semi-relaxed transport), so that no
learned ``B`` is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from ucds.choices import OpinionChoices, VoteChoices
from ucds.math.arrays import DoubleArray, FloatArray, Watch, counted
from ucds.math.consensus import USUAL, Partition
from ucds.math.second_opinion import SECOND, cluster_by_opinions
from ucds.math.spaces import WIDTH, centre, make_spaces, principal_axes, unit_rows

Rows = NDArray[np.floating[Any]]

EPSILON = 0.01
"""Entropic regularisation of the plans, as in the paper."""

_RELAXATION = 0.1  # cost of leaving equal cluster sizes
_ROUNDS = 3  # of plans and prototypes after the matching
_MATCHING_ROUNDS = 20  # at most; matching usually ends after three to five


@dataclass(frozen=True)
class SharedPrototypes:
    """Prototypes that several domains share, and the projection under which samples are compared to them."""

    axes: FloatArray  # `(d, w)` principal axes of the centred features, each divided by a power of its scale
    mean: FloatArray  # `(d,)` mean of the domains' means, subtracted from a sample of an unknown domain
    prototypes: FloatArray  # `(w, K)` unit columns
    proportions: FloatArray  # `(D, K)` sizes of the clusters in each domain; rows sum to 1


@dataclass(frozen=True)
class FeatureClusters(SharedPrototypes):
    """Clusters found in the frozen features of some samples, and the data for a head that predicts them."""

    assignments: FloatArray  # `(n, K)` share of each cluster in each sample; rows sum to 1


def cluster_domains(
    domains: Sequence[FloatArray],
    n_clusters: int,
    rng: np.random.Generator,
    *,
    width: int = WIDTH,
    whitening: float = 0.5,
    choices: VoteChoices = USUAL,
    second: OpinionChoices = SECOND,
    lengths: bool = False,
    watch: Watch | None = None,
) -> FeatureClusters:
    """Find prototypes for samples of several domains, all of which have the same weight.

    The assignments of the result are those of one domain after the other.

    Features are ``(n_d, d)`` for each domain.
    """
    # Step 1: each domain by itself.
    partitions = []
    for vectors in domains:
        spaces = make_spaces(
            vectors, n_clusters, width=width, whitening=whitening, lengths=lengths, watch=watch
        )
        vote = cluster_by_opinions(spaces, n_clusters, rng, choices=choices, second=second, watch=watch)
        partitions.append(vote.partition)
    return join_domains(domains, partitions, n_clusters, width=width, whitening=whitening, watch=watch)


def join_domains(
    domains: Sequence[FloatArray],
    partitions: Sequence[Partition],
    n_clusters: int,
    *,
    width: int = WIDTH,
    whitening: float = 0.5,
    watch: Watch | None = None,
) -> FeatureClusters:
    """Find prototypes that domains share, from a clustering of each; see :func:`cluster_domains`."""
    means = np.stack([unit_rows(vectors).mean(0) for vectors in domains])
    mean = np.asarray(means.mean(0), dtype=np.float32)
    directions = [centre(vectors, own) for vectors, own in zip(domains, means, strict=True)]
    axes, scales = principal_axes(np.concatenate(directions), width)
    axes = np.asarray(axes * (scales[0] / np.maximum(scales, 1e-12)) ** whitening, dtype=np.float32)
    samples = [unit_rows(vectors @ axes) for vectors in directions]
    # Step 2: the same clusters in all domains.
    each = np.eye(n_clusters, dtype=np.float32)
    prototypes = match_domains(
        [unit_rows(each[own].T @ rows) for rows, own in zip(samples, partitions, strict=True)]
    )
    # Step 3: plans and prototypes in turn.
    uniform = np.full(n_clusters, 1 / n_clusters)
    potentials: list[DoubleArray | None] = [None] * len(samples)
    plans = [np.empty(0)] * len(samples)
    for _ in counted(watch, "transport", range(_ROUNDS)):
        for d, vectors in enumerate(samples):
            plans[d], potentials[d] = semi_relaxed_transport(
                1 - vectors @ prototypes.T,
                uniform,
                epsilon=EPSILON,
                relaxation=_RELAXATION,
                initial_potential=potentials[d],
                max_iterations=50,
            )
        moved = [plan.T.astype(np.float32) @ rows for plan, rows in zip(plans, samples, strict=True)]
        prototypes = unit_rows(np.sum(moved, axis=0))
    return FeatureClusters(
        axes=axes,
        mean=mean,
        prototypes=np.ascontiguousarray(prototypes.T),
        proportions=np.stack([plan.sum(0) for plan in plans]).astype(np.float32),
        assignments=np.concatenate([plan * len(plan) for plan in plans]).astype(np.float32),
    )


def match_domains(means: Sequence[Rows]) -> FloatArray:
    """Match the clusters of several domains one to one, and average the clusters that are matched.

    The clusters of every domain are matched with shared prototypes (the Hungarian method on cosines), which
    are then moved to the mean of their clusters, in turn until nothing changes. Each domain in turn gives
    the start; the result with the largest mean cosine is kept. Means and prototypes are ``(K, w)`` unit rows.

    Source:
        H. W. Kuhn, The Hungarian method for the assignment problem, 1955.
    """
    return max((_matched(means, start) for start in means), key=lambda found: found[0])[1]


def _matched(means: Sequence[Rows], prototypes: Rows) -> tuple[float, FloatArray]:
    """Return mean cosine and prototypes of the matching that starts from given prototypes."""
    cosine = 0.0
    for _ in range(_MATCHING_ROUNDS):
        orders = [linear_sum_assignment(prototypes @ own.T, maximize=True)[1] for own in means]
        aligned = np.stack([own[order] for own, order in zip(means, orders, strict=True)])
        before, prototypes = prototypes, unit_rows(aligned.sum(0))
        cosine = float((aligned * prototypes).sum(-1).mean())
        if np.allclose(before, prototypes):
            break
    return cosine, prototypes


def semi_relaxed_transport(
    cost: Rows,
    column_weights: DoubleArray,
    *,
    epsilon: float,
    relaxation: float,
    max_iterations: int,
    tolerance: float = 1e-4,
    initial_potential: DoubleArray | None = None,
) -> tuple[DoubleArray, DoubleArray]:
    """Solve entropic transport from equal row weights to column weights, with deviations at a cost.

    The problem minimises over plans whose rows sum to ``1 / n``, with ``relaxation * KL(columns |
    column_weights)`` added. The solver alternates between the two potentials, in the log domain and double
    precision.

    Source: Chizat et al. (2018), "Scaling algorithms for unbalanced optimal transport problems".

    The cost is ``(n, K)``, and the column weights ``(K,)`` are positive. An infinite relaxation gives the
    balanced problem, and 0 gives each sample its own softmax. The potential may start from that of nearly the
    same cost. Returns the ``(n, K)`` plan, and the ``(K,)`` potential of its columns in units of the cost.
    """
    scaled, log_b = -np.asarray(cost, np.float64) / epsilon, np.log(column_weights)
    damping = 1.0 if math.isinf(relaxation) else relaxation / (relaxation + epsilon)
    v = np.zeros_like(log_b) if initial_potential is None else initial_potential / epsilon
    log_a = -math.log(len(scaled))
    for _ in range(max_iterations):
        u = log_a - _log_sum(scaled + v, 1)
        before, v = v, (damping * (log_b - _log_sum(scaled + u, 0))).ravel()
        if np.abs(v - before).max() * epsilon <= tolerance:
            break
    u = log_a - _log_sum(scaled + v, 1)
    return np.exp(scaled + u + v), v * epsilon


def _log_sum(exponents: DoubleArray, axis: int) -> DoubleArray:
    """Compute the logarithm of the sum of exponentials along an axis, and keep the axis."""
    top = exponents.max(axis, keepdims=True)
    return np.asarray(top + np.log(np.exp(exponents - top).sum(axis, keepdims=True)))
