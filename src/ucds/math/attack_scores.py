"""Success of an attack that gives a score to members of a training set and to others.

Label-only attacks give few different scores, so ties are counted as ties: half in the area under the curve,
and all or none of them at a threshold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.floating[Any]]
CONFIDENCE = 0.95


@dataclass(frozen=True)
class AttackSuccess:
    """Success of an attack on members and others."""

    auc: float  # probability that a member has a larger score than another sample, ties counted half
    auc_low: float  # lower end of its 95 % interval
    auc_high: float  # upper end of it
    tpr_at_10: float  # share of the members found when at most one in ten others is taken for one
    tpr_at_1: float  # share found when at most one in a hundred others is
    members: int  # number of members
    others: int  # number of others


def attack_success(members: Scores, others: Scores) -> AttackSuccess:
    """Measure how far scores tell members from others; large scores speak for membership.

    Source:
        E. DeLong, D. DeLong and D. Clarke-Pearson, Comparing the areas under two or more correlated receiver
        operating characteristic curves, 1988 (interval).
    """
    from scipy.stats import norm, rankdata  # it takes a while to load
    from sklearn.metrics import roc_curve

    m, n = len(members), len(others)
    scores = np.concatenate([members, others])
    false_rates, true_rates, _ = roc_curve(np.repeat([1, 0], [m, n]), scores, drop_intermediate=False)
    at_10, at_1 = (float(true_rates[false_rates <= limit].max(initial=0.0)) for limit in (0.1, 0.01))
    ranks = rankdata(scores)
    over_others = (ranks[:m] - rankdata(members)) / n
    under_members = 1 - (ranks[m:] - rankdata(others)) / m
    area = float(over_others.mean())
    variance = over_others.var(ddof=1) / m + under_members.var(ddof=1) / n
    if variance == 0 and area in (0.0, 1.0):  # all pairs agree: the exact bound for the smaller sample
        reach = 1 - (1 - CONFIDENCE) ** (1 / min(m, n))
    else:
        reach = float(norm.ppf((1 + CONFIDENCE) / 2)) * math.sqrt(variance)
    return AttackSuccess(area, max(0.0, area - reach), min(1.0, area + reach), at_10, at_1, m, n)
