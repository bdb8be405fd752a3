"""Clusters several domains with shared prototypes by transport: whole domains at a time, no training.

This is the paper's Eq. 1 with three differences. A plan covers a whole domain, so that its marginals are
those of the domain and not of a batch. Each domain's own mean is subtracted, which removes most of what
tells domains apart. And the proportions may differ from the wanted ones at a cost (semi-relaxed transport),
so that no learned ``B`` is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from ucds.math.ot import semi_relaxed_transport
from ucds.math.partitions import consensus
from ucds.math.spaces import FloatArray, centre, principal_axes, unit_rows

SETTLING = (0.01, 0.01, 0.01)
"""Epsilon of the last rounds of plans and prototypes: the paper's."""

ANNEALING = (0.1, 0.1, 0.05, 0.05, 0.02, 0.02, *SETTLING)
"""Epsilon of one round of plans and prototypes after the other."""


@dataclass(frozen=True)
class DomainClusters:
    """Prototypes that several domains share, and the projection under which samples are compared with them.

    Attributes:
        axes: ``(d, w)`` principal axes of the centred features.
        mean: ``(d,)`` mean of the domains' means, to be subtracted from a sample of an unknown domain.
        prototypes: ``(w, K)`` unit columns.
        proportions: ``(D, K)`` sizes of the clusters in each domain, by the plans.
        assignments: ``(n, K)`` cluster probabilities of each sample, domain after domain.
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

    k-means over all of them gives a start; then plans and prototypes are computed in turn, with a falling
    epsilon. Every domain has the same weight. The consensus of several starts gives the prototypes for a few
    last rounds: the start with the best objective is not reliably the one that finds the groups.

    Args:
        domains: features ``(n_d, d)`` of each domain.
        n_clusters: number of clusters, K.
        rng: generator of the starts.
        width: number of principal axes to project on.
        relaxation: cost of leaving equal cluster sizes.
        starts: number of starts of k-means.
        centred: whether each domain's own mean is subtracted, or the common one from all.
        transported: whether plans are computed, or k-means alone decides.
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
                initial_potential=potentials[d],
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
