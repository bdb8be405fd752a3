"""Subsets of a data set for benchmarks: the paper's imbalanced one, a long tail, and a small one.

No training command uses them: they make data sets, some from labels that a user of the method does not have.
"""

from __future__ import annotations

import numpy as np

from ucds.data.ground_truth import GroundTruth
from ucds.math.arrays import IntArray

_RARE_SHARE = 0.3  # of the samples of a rare class is kept


def imbalanced_subset(truth: GroundTruth, domain: IntArray, seed: int = 0) -> IntArray:
    """Choose the samples that are left when half of the classes become rare.

    Of K classes in alphabetical order, the first ``K // 2`` keep ``int(0.3 * n)`` of their n samples in
    each domain, chosen at random; the others keep all. The same subset serves for training and
    testing. Each domain's choice depends on the seed and that domain alone, so that it does not
    matter which other domains are loaded.

    Args:
        truth: classes of all samples.
        domain: ``(n,)`` domain of each sample.
        seed: seed of the random choice; the authors' earlier code has 0.

    Returns:
        ``(m,)`` positions, ascending.
    """
    kept = np.ones(len(domain), dtype=bool)
    for d in np.unique(domain):
        generator = np.random.default_rng(seed)
        for k in range(truth.n_classes // 2):
            members = np.flatnonzero((domain == d) & (truth.classes == k))
            kept[generator.permutation(members)[int(_RARE_SHARE * len(members)) :]] = False
    return np.flatnonzero(kept)


def long_tail_subset(truth: GroundTruth, domain: IntArray, ratio: float = 10.0, seed: int = 0) -> IntArray:
    """Choose the samples that are left when class sizes fall off geometrically.

    The classes come in random order; the r-th of K keeps the share ``ratio ** (-r / (K - 1))`` of its
    samples in each domain, but at least two where it has them.

    Args:
        truth: classes of all samples.
        domain: ``(n,)`` domain of each sample.
        ratio: quotient of the largest share and the smallest.
        seed: seed of the order of the classes and of the samples kept.

    Returns:
        ``(m,)`` positions, ascending.
    """
    kept = []
    for d in np.unique(domain):
        generator = np.random.default_rng(seed)
        for rank, k in enumerate(generator.permutation(truth.n_classes)):
            members = generator.permutation(np.flatnonzero((domain == d) & (truth.classes == k)))
            share = ratio ** (-rank / max(truth.n_classes - 1, 1))
            kept.append(members[: max(2, int(share * len(members)))])
    return np.sort(np.concatenate(kept))


def small_subset(positions: IntArray, size: int = 100, seed: int = 0) -> IntArray:
    """Choose ``size`` of some positions at random, ascending; all of them if there are no more."""
    return np.sort(np.random.default_rng(seed).permutation(positions)[:size])
