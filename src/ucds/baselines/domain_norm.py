"""Batch normalisation by domain: each domain has its own statistics, all share scale and shift.

It brings the features of every domain to the same mean and variance, so that later layers cannot tell domains
apart by them. A new domain is aligned by estimating its statistics, without any training.
Source: Menapace et al., ECCV 2020, after Li et al., Revisiting batch normalization, 2016.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ucds.data.dataset import Dataset
from ucds.errors import InputError
from ucds.training.runtime import Runtime

Kind = TypeVar("Kind", bound=nn.Module)


class DomainNorm(nn.Module):
    """Several batch normalisations with shared scale and shift, for batches grouped by domain.

    Args:
        norm: batch normalisation to replace; other operations of its class, such as activations, are kept.
        counts: number of rows of each domain in every batch.

    Attributes:
        norms: batch normalisation of each domain.
    """

    def __init__(self, norm: _BatchNorm, counts: Sequence[int]) -> None:
        super().__init__()
        self.counts = list(counts)
        others = [copy.deepcopy(norm) for _ in counts[1:]]
        for other in others:
            other.weight, other.bias = norm.weight, norm.bias
        self.norms = nn.ModuleList([norm, *others])

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise a batch whose first ``counts[0]`` rows are of domain 0, and so on."""
        parts = torch.split(inputs, self.counts)
        return torch.cat([norm(part) for norm, part in zip(self.norms, parts, strict=True)])


def split_norms(module: nn.Module, counts: Sequence[int]) -> None:
    """Replace every batch normalisation below ``module`` by one with statistics of each domain, in place.

    Raises:
        InputError: there is no batch normalisation, or a domain has a single row in a batch.
    """
    if min(counts) < 2:
        raise InputError(
            "batch normalisation by domain needs 2 samples of each domain in a batch; enlarge it"
        )
    places = list(_children(module, _BatchNorm))
    if not places:
        raise InputError("ACIDS aligns domains by batch normalisation, which this network has none of")
    for parent, name, norm in places:
        setattr(parent, name, DomainNorm(norm, counts))


def merge_norms(module: nn.Module) -> None:
    """Undo :func:`split_norms` in place; scale and shift stay, the statistics are those of domain 0."""
    for parent, name, split in list(_children(module, DomainNorm)):
        setattr(parent, name, split.norms[0])


def estimate_statistics(
    module: nn.Module, data: Dataset, runtime: Runtime, batch_size: int, generator: np.random.Generator
) -> None:
    """Replace the statistics of batch normalisation by those of ``data`` in its test view, in place.

    Each statistic is the mean over batches of samples in random order; no weight changes.
    """
    norms = [child for child in module.modules() if isinstance(child, _BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over batches
    module.train()
    order = generator.permutation(len(data.samples))
    with torch.no_grad(), runtime.autocast():
        # No batch is smaller than asked, so every batch has a variance.
        for index in np.array_split(order, max(1, len(order) // max(2, batch_size))):
            module(data.view.test(data.samples.read(index).to(runtime.device)))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def _children(module: nn.Module, kind: type[Kind]) -> Iterator[tuple[nn.Module, str, Kind]]:
    for parent in module.modules():
        for name, child in parent.named_children():
            if isinstance(child, kind):
                yield parent, name, child
