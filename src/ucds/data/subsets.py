"""The limited, imbalanced subset of the paper: a benchmark tool, which reads the ground truth.

No training command uses it: it makes a data set, from labels that a user of the method does not have.
"""

from __future__ import annotations

import numpy as np

from ucds.data.content import IntArray
from ucds.data.ground_truth import GroundTruth


def imbalanced_subset(truth: GroundTruth, domain: IntArray, keep: float = 0.3, seed: int = 0) -> IntArray:
    """Positions of the samples that are left when half of the classes become rare.

    Of K classes in alphabetical order, the first `K // 2` keep `int(keep * n)` of their n samples in
    each domain, chosen at random; the others keep all. The same subset serves for training and
    testing. Each domain's choice depends on the seed and that domain alone, so that it does not
    matter which other domains are loaded.

    Args:
        truth: the classes of all samples.
        domain: `(n,)` domain of each sample.
        keep: share of the samples of a rare class that is kept.
        seed: of the random choice; the authors' earlier code has 0.

    Returns:
        `(m,)` positions, ascending.
    """
    kept = np.ones(len(domain), dtype=bool)
    for d in np.unique(domain):
        generator = np.random.default_rng(seed)
        for k in range(truth.n_classes // 2):
            members = np.flatnonzero((domain == d) & (truth.classes == k))
            kept[generator.permutation(members)[int(keep * len(members)) :]] = False
    return np.flatnonzero(kept)
