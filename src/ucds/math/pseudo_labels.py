"""Turn the provider's hard labels into the soft targets of stage 2."""

from __future__ import annotations

import torch
from torch import Tensor


def smooth_labels(labels: Tensor, n_clusters: int, smoothing: float) -> Tensor:
    """Interpolate hard labels with the uniform distribution.

    ``y_k = (1 - gamma) [k = label] + gamma / K``.

    Args:
        labels: ``(n,)`` labels, integers in ``[0, K)``.
        n_clusters: the paper's ``K``.
        smoothing: the paper's ``gamma``, in ``[0, 1]``.

    Returns:
        ``(n, K)`` fp32 targets, rows sum to one.

    Raises:
        ValueError: a label is out of range, or ``smoothing`` is not in ``[0, 1]``.
    """
    if not 0.0 <= smoothing <= 1.0:
        raise ValueError(f"label smoothing must lie in [0, 1], not {smoothing}")
    if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < n_clusters:
        raise ValueError(f"labels must lie in [0, {n_clusters})")
    one_hot = torch.nn.functional.one_hot(labels.long(), n_clusters).float()
    return (1.0 - smoothing) * one_hot + smoothing / n_clusters


def place_targets(targets: Tensor, rows: Tensor, n_samples: int) -> Tensor:
    """Put the targets of some samples in their rows among all samples; the others get a row of zeros.

    A row of zeros means "no target" and needs no mask: its distance ``KL(0 || G) = sum 0 log(0 / G)`` is
    zero and so is its gradient, whatever the model predicts, and no distribution looks like it.

    Args:
        targets: ``(m, K)`` targets, rows sum to one.
        rows: ``(m,)`` positions of these samples, each once.
        n_samples: the paper's ``N``.

    Returns:
        ``(N, K)`` targets, rows sum to one or to zero.
    """
    placed = targets.new_zeros(n_samples, targets.shape[-1])
    placed[rows] = targets
    return placed


def temporal_ensemble(targets: Tensor, predictions: Tensor, momentum: float) -> Tensor:
    """Blend past targets with the model's current predictions: ``y <- tau y + (1 - tau) G(x)``.

    A sample without a target (a row of zeros) takes the prediction as it is, and is like any other from
    then on. With a momentum of 1 predictions count for nothing, so it stays without a target.

    Args:
        targets: ``(n, K)`` current targets.
        predictions: ``(n, K)`` probabilities of the same samples, from the model in evaluation mode.
        momentum: the paper's ``tau`` in ``[0, 1]``; 1 keeps the provider's labels for ever.

    Raises:
        ValueError: shapes differ, or ``momentum`` is outside ``[0, 1]``.
    """
    if targets.shape != predictions.shape:
        raise ValueError(f"targets {tuple(targets.shape)} and predictions {tuple(predictions.shape)} differ")
    if not 0.0 <= momentum <= 1.0:
        raise ValueError(f"the momentum of the temporal ensemble must lie in [0, 1], not {momentum}")
    if momentum == 1.0:
        return targets.clone()
    predictions = predictions.to(targets)
    has_past = targets.any(-1, keepdim=True)
    return torch.where(has_past, torch.lerp(predictions, targets, momentum), predictions)
