"""Chooses the samples of each training batch: balanced over the domains, and a function of the step alone.

No state is kept between steps: a run that is resumed at any step sees the batches it would have seen without
the interruption.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ucds.errors import InputError
from ucds.math.arrays import IntArray

Positions = npt.NDArray[np.uint32]
"""Positions of samples, in half the memory of int64."""


class DomainBalancedSampler:
    """Batches with an equal share of every domain, drawn without replacement pass by pass.

    Each domain is an endless row of random permutations of its samples, one permutation per pass,
    each derived from (seed, domain, pass) alone. The batch of step t takes the t-th piece of every
    domain's row; a piece may straddle two passes. A smaller domain is thus passed through more
    often, and one pass gives each of its samples exactly once. If a domain has fewer samples than
    its share of the batch, samples recur within a batch.

    The sampler is given the ``(n,)`` domain of each sample, from 0 without gaps. A batch has at least one
    sample of each domain, and no more than all samples.

    Attributes:
        batch_size: number of samples of each batch.
        counts: samples of each domain in every batch; they differ by one at most.
        steps_per_epoch: number of batches that hold n samples together, rounded up.
    """

    def __init__(self, domain: IntArray, batch_size: int, seed: int) -> None:
        domain = np.asarray(domain, dtype=np.int64)
        n = len(domain)
        self.seed = seed
        self.batch_size = min(batch_size, n)
        n_domains = int(domain.max()) + 1 if n else 0
        self._members = [np.flatnonzero(domain == d).astype(np.uint32) for d in range(n_domains)]
        if not n_domains or any(len(members) == 0 for members in self._members):
            raise ValueError("every domain needs at least one sample")
        if self.batch_size < n_domains:
            raise InputError(
                f"a batch of {self.batch_size} cannot hold {n_domains} domains; enlarge the batch"
            )
        share, rest = divmod(self.batch_size, n_domains)
        self.counts = tuple(share + (d < rest) for d in range(n_domains))
        self.steps_per_epoch = -(-n // self.batch_size)
        self._permutation = lru_cache(2 * n_domains)(self._permute)

    def batch(self, step: int) -> IntArray:
        """Return the positions of the samples of a step, which count from 0: ``(batch_size,)`` int64.

        The first ``counts[0]`` belong to domain 0, and so on.
        """
        if step < 0:
            raise ValueError(f"steps count from 0, not {step}")
        pieces = [self._piece(d, step * c, c) for d, c in enumerate(self.counts)]
        return np.concatenate(pieces).astype(np.int64)

    def _piece(self, domain: int, start: int, count: int) -> Positions:
        """Return ``count`` positions of the domain's endless row of permutations, from ``start`` on."""
        size = len(self._members[domain])
        pieces = []
        while count > 0:
            number, offset = divmod(start, size)
            pieces.append(self._permutation(domain, number)[offset : offset + count])
            start, count = start + len(pieces[-1]), count - len(pieces[-1])
        return np.concatenate(pieces)

    def _permute(self, domain: int, number: int) -> Positions:
        """Return the domain's samples in the order of pass ``number``."""
        source = np.random.SeedSequence(self.seed, spawn_key=(domain, number))
        return np.random.Generator(np.random.Philox(source)).permutation(self._members[domain])
