"""What labels tell of a whole source: whether a domain was part of it, and how large its clusters are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ucds.auditing.subject import Labels
from ucds.math.attack_scores import AttackSuccess, attack_success

Scores = NDArray[np.float64]
BAG = 25
"""Samples of one domain that an attacker has of a hospital."""


def bag_scores(scores: Scores, domain: NDArray[np.int64], rng: np.random.Generator) -> Scores:
    """Average membership scores over bags of samples of one domain; no sample is in two bags.

    Args:
        scores: ``(n,)`` scores.
        domain: ``(n,)`` domain of each sample.
        rng: generator of the order in which bags are filled.
    """
    bags = []
    for d in np.unique(domain):
        chosen = rng.permutation(np.flatnonzero(domain == d))
        bags += [scores[chosen[i : i + BAG]].mean() for i in range(0, len(chosen) - BAG + 1, BAG)]
    return np.array(bags)


def domain_success(members: Scores, others: Scores) -> AttackSuccess | None:
    """Measure how well bags of a source domain are told from bags of others; ``None`` with fewer than 2."""
    return attack_success(members, others) if min(len(members), len(others)) > 1 else None


def share_misplaced(labels: Labels, truth: NDArray[np.float64]) -> float:
    """Compute how much of a source's clusters a client gets wrong who takes its own shares for the source's.

    Args:
        labels: labels of the client's samples.
        truth: ``(K,)`` shares of the clusters in the source.

    Returns:
        Half the sum of absolute differences: 0 if all shares are right, 1 if none overlap.
    """
    shares = np.bincount(labels, minlength=len(truth)) / len(labels)
    return float(np.abs(shares - truth).sum() / 2)
