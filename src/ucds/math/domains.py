"""Lay a pooled mini-batch out as one block per domain.

The sampler gives a batch domain after domain, with the same number of samples of each domain in
every step. Transport (Eq. 1) and proportions (Eq. 2) are defined per domain, so their inputs are
stacked into ``(D, m, ...)`` with ``m`` the largest block; shorter blocks end in padding rows whose
weight is zero. The layout is known on the CPU: nothing here waits for a device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


def stack_domains(values: Tensor, counts: Sequence[int]) -> Tensor:
    """Stack the rows of a batch by domain.

    Args:
        values: ``(n, ...)`` rows, grouped by domain in order.
        counts: number of rows of each of the ``D`` domains; they add up to ``n``.

    Returns:
        ``(D, m, ...)`` with ``m = max(counts)``, zero where a domain has fewer rows.

    Raises:
        ValueError: ``counts`` does not add up to ``n``.
    """
    if sum(counts) != len(values):
        raise ValueError(f"counts add up to {sum(counts)} rows, but the batch has {len(values)}")
    if len(counts) == 1:
        return values.unsqueeze(0)
    return pad_sequence(list(torch.split(values, list(counts))), batch_first=True)


def sample_weights(counts: Sequence[int], device: torch.device | str | None = None) -> Tensor:
    """Weight every sample of a domain alike: the paper's marginal ``u``.

    Args:
        counts: number of samples of each of the ``D`` domains.
        device: device of the result.

    Returns:
        ``(D, m)`` fp32; row ``d`` holds ``1 / counts[d]`` in its first ``counts[d]`` places and zero
        in the padding.

    Raises:
        ValueError: a domain has no sample.
    """
    if not counts or min(counts) < 1:
        raise ValueError("every domain needs at least one sample in a batch")
    return pad_sequence([torch.full((count,), 1.0 / count) for count in counts], batch_first=True).to(device)
