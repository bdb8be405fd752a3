"""Learn the share of each cluster in each domain (the paper's ``B``, Eq. 2)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ucds.math.precision import at_least_single


def uniform_proportions(n_domains: int, n_clusters: int, device: torch.device | str | None = None) -> Tensor:
    """Make the proportions to start from: ``(D, K)``, every entry ``1 / K``."""
    return torch.full((n_domains, n_clusters), 1.0 / n_clusters, device=device)


def cluster_posterior(logits: Tensor, proportions: Tensor) -> Tensor:
    """Compute the probability of each cluster given a sample, under its domain's proportions.

    This is the E-step of Eq. 2: ``pi(k | f) = softmax_k(mu_k . f + log B_k)``.

    Args:
        logits: ``(D, m, K)`` products of features and prototypes.
        proportions: ``(D, K)`` current proportions; an entry of zero excludes that cluster.

    Returns:
        ``(D, m, K)`` probabilities, rows sum to one.
    """
    return (at_least_single(logits) + proportions.log().unsqueeze(-2)).softmax(-1)


@torch.no_grad()
def update_proportions(proportions: Tensor, logits: Tensor, weights: Tensor, momentum: float) -> Tensor:
    """Move every domain's proportions towards what the batch shows (Eq. 2 and its moving average).

    ``B <- beta B + (1 - beta) mean_j pi(. | f_j)``; the mean runs over the domain's samples in the batch.

    Args:
        proportions: ``(D, K)`` current proportions.
        logits: ``(D, m, K)`` logits, padded as by :func:`ucds.math.domains.stack_domains`.
        weights: ``(D, m)`` weights from :func:`ucds.math.domains.sample_weights`; padding rows weigh nothing.
        momentum: the paper's ``beta`` at this step, in ``[0, 1]``.

    Returns:
        ``(D, K)`` new proportions, rows sum to one.

    Raises:
        ValueError: ``momentum`` is outside ``[0, 1]``.
    """
    if not 0.0 <= momentum <= 1.0:
        raise ValueError(f"the momentum of the proportions must lie in [0, 1], not {momentum}")
    estimate = torch.einsum("dm,dmk->dk", weights, cluster_posterior(logits, proportions))
    return torch.lerp(estimate, proportions, momentum)


def cosine_momentum(initial: float, progress: float) -> float:
    """Compute ``beta`` on its schedule: ``1 - beta`` falls from ``1 - initial`` to zero along a half cosine.

    The paper says only that beta "follows a cosine learning rate schedule". It is ``1 - beta`` that
    acts as a learning rate; letting beta itself fall to zero would end on the estimate of a single batch.

    Args:
        initial: the paper's ``beta_0``.
        progress: share of the stage that is done, in ``[0, 1]``.
    """
    return 1.0 - (1.0 - initial) * 0.5 * (1.0 + math.cos(math.pi * progress))
