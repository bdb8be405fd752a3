"""Clusters several domains with shared prototypes: each domain by itself, then all of them by transport.

A domain is clustered best by itself, because what tells domains apart does not disturb there. The clusters
of the domains are then matched with each other, and transport plans correct the prototypes that they share.
A plan is the paper's Eq. 1 with three differences. It covers a whole domain, so that its marginals are those
of the domain and not of a batch. Each domain's own mean is subtracted, which removes most of what tells
domains apart. And the proportions may differ from the wanted ones at a cost (semi-relaxed transport), so
that no learned ``B`` is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from ucds.choices import OpinionChoices, VoteChoices
from ucds.math.arrays import FloatArray, Watch, counted
from ucds.math.consensus import USUAL, Partition
from ucds.math.second_opinion import SECOND, cluster_by_opinions
from ucds.math.spaces import WIDTH, centre, make_spaces, principal_axes, unit_rows
from ucds.math.transport import semi_relaxed_transport

EPSILON = 0.01
"""Entropic regularisation of the plans: the paper's."""

_RELAXATION = 0.1  # cost of leaving equal cluster sizes
_ROUNDS = 3  # of plans and prototypes after the matching
_MATCHING_ROUNDS = 20  # at most; matching usually ends after three to five


@dataclass(frozen=True)
class SharedPrototypes:
    """Prototypes that several domains share, and the projection under which samples are compared with them.

    Attributes:
        axes: ``(d, w)`` principal axes of the centred features, each divided by a power of its scale.
        mean: ``(d,)`` mean of the domains' means, to be subtracted from a sample of an unknown domain.
        prototypes: ``(w, K)`` unit columns.
        proportions: ``(D, K)`` sizes of the clusters in each domain; rows sum to 1.
    """

    axes: FloatArray
    mean: FloatArray
    prototypes: FloatArray
    proportions: FloatArray


@dataclass(frozen=True)
class DomainClusters(SharedPrototypes):
    """The same with the cluster probabilities ``(n, K)`` of each sample, domain after domain."""

    assignments: FloatArray


def cluster_domains(
    domains: Sequence[FloatArray],
    n_clusters: int,
    rng: np.random.Generator,
    *,
    width: int = WIDTH,
    whitening: float = 0.5,
    choices: VoteChoices = USUAL,
    second: OpinionChoices = SECOND,
    watch: Watch | None = None,
) -> DomainClusters:
    """Find prototypes for samples of several domains, all of which have the same weight.

    Args:
        domains: features ``(n_d, d)`` of each domain.
        n_clusters: number of clusters, K.
        rng: generator of the starts of k-means.
        width: number of principal axes to project on.
        whitening: 0 keeps the variances along the axes, 1 makes them equal.
        choices: figures of the vote.
        second: figures of the second opinion.
        watch: told after each clustering of a domain, and after each plan.
    """
    # Step 1: each domain by itself.
    partitions = []
    for vectors in domains:
        spaces = make_spaces(vectors, n_clusters, width=width, whitening=whitening, watch=watch)
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
) -> DomainClusters:
    """Find prototypes that domains share, from a clustering of each; see :func:`cluster_domains`."""
    means = np.stack([unit_rows(vectors).mean(0) for vectors in domains])
    mean = np.asarray(means.mean(0), dtype=np.float32)
    directions = [centre(vectors, own) for vectors, own in zip(domains, means, strict=True)]
    axes, scales = principal_axes(np.concatenate(directions), width)
    axes = np.asarray(axes * (scales[0] / np.maximum(scales, 1e-12)) ** whitening, dtype=np.float32)
    samples = [torch.from_numpy(unit_rows(vectors @ axes)) for vectors in directions]
    # Step 2: the same clusters in all domains.
    prototypes = match_domains([_means(s, p, n_clusters) for s, p in zip(samples, partitions, strict=True)])
    # Step 3: plans and prototypes in turn.
    uniform = torch.full((n_clusters,), 1 / n_clusters)
    potentials: list[Tensor | None] = [None] * len(samples)
    plans: list[Tensor] = []
    for _ in counted(watch, "transport", range(_ROUNDS)):
        plans = []
        for d, vectors in enumerate(samples):
            solution = semi_relaxed_transport(
                1 - vectors @ prototypes.T,
                uniform,
                epsilon=EPSILON,
                relaxation=_RELAXATION,
                initial_potential=potentials[d],
                max_iterations=50,
            )
            potentials[d] = solution.potential
            plans.append(solution.plan)
        moved = torch.stack([plan.T.float() @ rows for plan, rows in zip(plans, samples, strict=True)])
        prototypes = normalize(moved.sum(0), dim=1)
    return DomainClusters(
        axes=axes,
        mean=mean,
        prototypes=prototypes.T.contiguous().numpy(),
        proportions=torch.stack([plan.sum(0) for plan in plans]).float().numpy(),
        assignments=torch.cat([plan * len(plan) for plan in plans]).float().numpy(),
    )


def match_domains(means: Sequence[Tensor]) -> Tensor:
    """Match the clusters of several domains one to one, and average the clusters that are matched.

    The clusters of every domain are matched with shared prototypes (the Hungarian method on cosines), which
    are then moved to the mean of their clusters, in turn until nothing changes. Each domain in turn gives
    the start; the result with the largest mean cosine is kept. Means and prototypes are ``(K, w)`` unit rows.

    Source:
        H. W. Kuhn, The Hungarian method for the assignment problem, 1955.
    """
    return max((_matched(means, start) for start in means), key=lambda found: found[0])[1]


def _matched(means: Sequence[Tensor], prototypes: Tensor) -> tuple[float, Tensor]:
    """Return mean cosine and prototypes of the matching that starts from given prototypes."""
    cosine = 0.0
    for _ in range(_MATCHING_ROUNDS):
        orders = [linear_sum_assignment(prototypes @ own.T, maximize=True)[1] for own in means]
        aligned = torch.stack([own[order] for own, order in zip(means, orders, strict=True)])
        before, prototypes = prototypes, normalize(aligned.sum(0), dim=1)
        cosine = float((aligned * prototypes).sum(-1).mean())
        if torch.allclose(before, prototypes):
            break
    return cosine, prototypes


def _means(vectors: Tensor, partition: Partition, n_clusters: int) -> Tensor:
    """Directions ``(K, w)`` of the means of the clusters; that of a cluster without members is 0."""
    members = one_hot(torch.from_numpy(partition), n_clusters).to(vectors.dtype)
    return normalize(members.T @ vectors, dim=1)
