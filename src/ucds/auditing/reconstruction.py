"""What prototypes give away, for those who would publish them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor
from torch.nn.functional import normalize

from ucds.math.attack_scores import AttackSuccess, attack_success


@dataclass(frozen=True)
class Reconstruction:
    """How close published prototypes come to single samples.

    Attributes:
        success: membership by the cosine with the nearest prototype.
        copied: number of prototypes that nearly are a member: their cosine with one is at least 0.95.
        nearest_member: number of prototypes to which the nearest of all samples is a member.
        expected: the same number for prototypes that know nothing: the share of members among all samples.
        prototypes: number of prototypes.
    """

    success: AttackSuccess
    copied: int
    nearest_member: int
    expected: float
    prototypes: int


def reconstruct(members: Tensor, others: Tensor, prototypes: Tensor) -> Reconstruction:
    """Compare prototypes with the bottleneck features of members and of others.

    Args:
        members: ``(m, d_f)`` features of members.
        others: ``(n, d_f)`` features of others.
        prototypes: ``(d_f, K)`` prototypes.
    """
    unit = normalize(prototypes, dim=0)
    inside, outside = normalize(members, dim=1) @ unit, normalize(others, dim=1) @ unit
    count = unit.shape[1]
    return Reconstruction(
        attack_success(np.asarray(inside.max(1).values), np.asarray(outside.max(1).values)),
        int((inside.max(0).values >= 0.95).sum()),
        int((inside.max(0).values > outside.max(0).values).sum()),
        count * len(members) / (len(members) + len(others)),
        count,
    )
