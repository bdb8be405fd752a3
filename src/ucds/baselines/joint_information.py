"""Mutual information of two discrete variables, from their joint distribution, for IIC and ACIDS.

All functions take any number of leading axes, so that the sub-heads of a network are one batch.
Sources: Ji et al., Invariant information clustering, ICCV 2019, Eq. 2 and 3; Menapace et al., Learning
to cluster under domain shift, ECCV 2020.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from ucds.math.pcd import at_least_single


def view_joint(first: Tensor, second: Tensor) -> Tensor:
    """Estimate the joint distribution of the clusters of two views of a sample.

    The order of the two views, ``(..., n, K)`` probabilities each, has no meaning, so the ``(..., K, K)``
    estimate is made symmetric.
    """
    first, second = at_least_single(first), at_least_single(second)
    joint = first.mT @ second / first.shape[-2]
    return (joint + joint.mT) / 2


def domain_joint(probabilities: Tensor, counts: Sequence[int]) -> Tensor:
    """Estimate the joint distribution ``(..., D, K)`` of domain and cluster of a sample.

    ``counts`` says how many of the ``(..., n, K)`` probabilities each domain has, in order.
    """
    parts = torch.split(at_least_single(probabilities), list(counts), dim=-2)
    return torch.stack([part.sum(-2) for part in parts], dim=-2) / sum(counts)


def mutual_information(joint: Tensor) -> Tensor:
    """Compute the mutual information of two variables, in nats.

    ``sum_kl P_kl (log P_kl - log P_k - log P_l)`` is zero for independent variables, and ``log K`` if each of
    K equally frequent values of one belongs to one value of the other. Zeros in the ``(..., R, C)`` joint
    distribution are allowed.
    """
    rows, columns = joint.sum(-1, keepdim=True), joint.sum(-2, keepdim=True)
    return (joint * (_log(joint) - _log(rows) - _log(columns))).sum((-2, -1))


def harden(probabilities: Tensor, confidence: float) -> Tensor:
    """Replace rows of ``(..., K)`` by one-hot constants where the largest entry reaches ``confidence``."""
    certain = functional.one_hot(probabilities.argmax(-1), probabilities.shape[-1]).to(probabilities)
    return torch.where(probabilities.amax(-1, keepdim=True) >= confidence, certain, probabilities)


class RunningJoint:
    """Averages the joint distributions of successive batches, each of which is too small for an estimate.

    ``P <- alpha P_batch + (1 - alpha) P``, from a uniform start; the gradient flows through the batch only.

    Args:
        weight: weight of the latest batch, the paper's ``alpha``.
    """

    def __init__(self, weight: float) -> None:
        self._weight = weight
        self._past: Tensor | None = None

    def __call__(self, joint: Tensor) -> Tensor:
        """Return the average after adding the joint distribution ``(..., R, C)`` of a batch."""
        if self._past is None:
            self._past = torch.full_like(joint, 1 / (joint.shape[-2] * joint.shape[-1]))
        average = torch.lerp(self._past, joint, self._weight)
        self._past = average.detach()
        return average


def _log(probabilities: Tensor) -> Tensor:
    # p log p has the limit 0 at p = 0, where log p has none.
    return probabilities.clamp_min(1e-30).log()
