"""Clusters several domains with shared prototypes by transport: whole domains at a time, no training.

This is the paper's Eq. 1 with three differences. A plan covers a whole domain, so that its marginals are
those of the domain and not of a batch; every domain is seen from its own mean, which is most of what
tells domains apart; and the proportions may give way to the data at a price (semi-relaxed transport), so
that no learned ``B`` is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from ucds.math.partitions import consensus
from ucds.math.spaces import FloatArray, centre, principal_axes, unit_rows

SETTLING = (0.01, 0.01, 0.01)
"""Epsilon of the last rounds of plans and prototypes: the paper's."""

ANNEALING = (0.1, 0.1, 0.05, 0.05, 0.02, 0.02, *SETTLING)
"""Epsilon of one round of plans and prototypes after the other."""


@dataclass(frozen=True)
class SemiRelaxedPlan:
    """Solution of a transport whose second marginal is free at a price.

    Attributes:
        plan: ``(n, K)``; rows sum to 1 / n.
        potential: ``(K,)`` of the prototypes, a warm start for a similar problem.
        change: largest change of the potential in the last iteration, in units of the cost.
        iterations: done.
        converged: whether the change is below the tolerance.
    """

    plan: Tensor
    potential: Tensor
    change: float
    iterations: int
    converged: bool


def semi_relaxed_transport(
    cost: Tensor,
    proportions: Tensor,
    *,
    epsilon: float,
    relaxation: float,
    potential: Tensor | None = None,
    tolerance: float = 1e-4,
    max_iterations: int = 200,
) -> SemiRelaxedPlan:
    """Move samples to prototypes, equal weights to proportions that may be left at a price.

    Minimises ``<T, C> - epsilon H(T) + relaxation KL(T' 1 | b)`` over plans whose rows sum to ``1 / n``,
    by alternating over the two potentials in the log domain.

    Args:
        cost: ``(n, K)``.
        proportions: the wanted ``b``, ``(K,)``, positive.
        epsilon: entropic regularisation.
        relaxation: the price; infinite gives the balanced problem, 0 each sample its nearest prototype.
        potential: of the prototypes, to start from.
        tolerance: of the change of the potential in one iteration.
        max_iterations: at most so many.

    Source:
        L. Chizat et al., Scaling algorithms for unbalanced optimal transport problems, 2018.
    """
    scaled = -cost.double() / epsilon
    log_b = proportions.double().log()
    damping = 1.0 if math.isinf(relaxation) else relaxation / (relaxation + epsilon)
    v = torch.zeros_like(log_b) if potential is None else potential.double() / epsilon
    log_a = -math.log(len(cost))
    change, iterations = math.inf, 0
    while change > tolerance and iterations < max_iterations:
        u = log_a - torch.logsumexp(scaled + v, dim=1)
        new = damping * (log_b - torch.logsumexp(scaled + u[:, None], dim=0))
        change = float((new - v).abs().max()) * epsilon
        v, iterations = new, iterations + 1
    u = log_a - torch.logsumexp(scaled + v, dim=1)
    plan = (scaled + u[:, None] + v).exp()
    return SemiRelaxedPlan(plan, v * epsilon, change, iterations, change <= tolerance)


@dataclass(frozen=True)
class DomainClusters:
    """Prototypes that several domains share, and how to see a sample as they do.

    Attributes:
        axes: ``(d, w)`` principal axes of the centred features.
        mean: ``(d,)`` mean of the domains' means: what a sample of an unknown domain is seen from.
        prototypes: ``(w, K)`` unit columns.
        proportions: ``(D, K)`` sizes of the clusters in each domain, as the plans have them.
        assignments: ``(n, K)`` probabilities of each sample, in the order of the domains.
    """

    axes: FloatArray
    mean: FloatArray
    prototypes: FloatArray
    proportions: FloatArray
    assignments: FloatArray


def cluster_domains(
    domains: Sequence[FloatArray],
    n_clusters: int,
    rng: np.random.Generator,
    *,
    width: int = 256,
    relaxation: float = 0.1,
    starts: int = 10,
    centred: bool = True,
    transported: bool = True,
) -> DomainClusters:
    """Find prototypes for samples of several domains.

    k-means over all of them gives a start; then plans and prototypes follow each other, with an epsilon
    that comes down. Every domain counts alike. What several starts agree on gives the prototypes for a few
    last rounds: which start is best by its own objective says little of which finds the groups, and changes
    with the seed.

    Args:
        domains: features ``(n_d, d)`` of each.
        n_clusters: the paper's ``K``.
        rng: of the starts.
        width: principal axes to work in.
        relaxation: price of leaving equal cluster sizes.
        starts: how many.
        centred: whether each domain is seen from its own mean, or all from the common one.
        transported: whether plans follow k-means at all.
    """
    means = np.stack([unit_rows(vectors).mean(0) for vectors in domains])
    mean = np.asarray(means.mean(0), dtype=np.float32)
    directions = [
        centre(vectors, own if centred else mean) for vectors, own in zip(domains, means, strict=True)
    ]
    axes, _ = principal_axes(np.concatenate(directions), width)
    samples = [torch.from_numpy(unit_rows(vectors @ axes)) for vectors in directions]
    found = [_one_start(samples, n_clusters, rng, relaxation, transported) for _ in range(starts)]
    prototypes, plans = found[0]
    if starts > 1:
        votes = [torch.cat(one).argmax(1).numpy() for _, one in found]
        agreed = one_hot(torch.from_numpy(consensus(votes, n_clusters, rng)), n_clusters)
        parts = torch.split(agreed, [len(vectors) for vectors in samples])
        prototypes = _move(samples, [part / len(part) for part in parts])
        prototypes, plans = _alternate(samples, prototypes, SETTLING, relaxation, moving=transported)
    return DomainClusters(
        axes=axes,
        mean=mean,
        prototypes=prototypes.T.contiguous().numpy(),
        proportions=torch.stack([plan.sum(0) for plan in plans]).float().numpy(),
        assignments=torch.cat([plan * len(plan) for plan in plans]).float().numpy(),
    )


def _one_start(
    samples: list[Tensor],
    n_clusters: int,
    rng: np.random.Generator,
    relaxation: float,
    transported: bool,
) -> tuple[Tensor, list[Tensor]]:
    """Prototypes ``(K, w)`` and plans of every domain, from one start of k-means."""
    pooled = torch.cat(samples).numpy()
    kmeans = KMeans(n_clusters, n_init=1, random_state=int(rng.integers(2**31))).fit(pooled)
    prototypes = torch.from_numpy(unit_rows(kmeans.cluster_centers_))
    return _alternate(samples, prototypes, ANNEALING, relaxation, moving=transported)


def _alternate(
    samples: list[Tensor], prototypes: Tensor, epsilons: Sequence[float], relaxation: float, *, moving: bool
) -> tuple[Tensor, list[Tensor]]:
    """Prototypes and plans after a round for each epsilon; prototypes that stay need the last round only."""
    uniform = torch.full((len(prototypes),), 1 / len(prototypes))
    potentials: list[Tensor | None] = [None] * len(samples)
    plans: list[Tensor] = []
    for epsilon in epsilons if moving else epsilons[-1:]:
        plans = []
        for d, vectors in enumerate(samples):
            solution = semi_relaxed_transport(
                1 - vectors @ prototypes.T,
                uniform,
                epsilon=epsilon,
                relaxation=relaxation,
                potential=potentials[d],
                max_iterations=50,
            )
            potentials[d] = solution.potential
            plans.append(solution.plan)
        if moving:
            prototypes = _move(samples, plans)
    return prototypes, plans


def _move(samples: list[Tensor], plans: list[Tensor]) -> Tensor:
    """Prototypes ``(K, w)`` at the means of what the plans ``(n_d, K)`` bring to them."""
    moved = torch.stack([plan.T.float() @ rows for plan, rows in zip(plans, samples, strict=True)])
    return normalize(moved.sum(0), dim=1)
