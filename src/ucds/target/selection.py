"""Chooses which samples to ask the provider about when not all of them can be asked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ucds.math.arrays import FloatArray, IntArray
from ucds.math.spaces import unit_rows


def select_spread(
    features: FloatArray, count: int, seed: int, *, given: Sequence[int] | IntArray = ()
) -> IntArray:
    """Choose samples that are well spread in feature space, by the seeding of k-means++.

    Each new sample is drawn with a probability proportional to its squared distance from the nearest one
    chosen so far (Arthur and Vassilvitskii, SODA 2007). Of eight such draws the one that leaves the smallest
    sum of squared distances is kept, as scikit-learn does: always taking the farthest sample would spend the
    queries on outliers. Distances are between directions, ``2 - 2 cos``, as everywhere in the method.

    A longer choice with the same seed begins with the shorter one, so the first ``m`` samples are
    well spread for every ``m``.

    Args:
        features: ``(n, d)`` features of the samples.
        count: number of samples to choose; fewer are returned where fewer samples differ.
        seed: seed of the random draws; equal seeds give equal choices.
        given: positions that are chosen already; they are not returned again.

    Returns:
        Positions in the order of choice, at most ``count``.
    """
    directions = unit_rows(features)
    rng = np.random.default_rng(seed)
    distances = np.full(len(directions), 4.0)  # as far as two directions can lie apart
    for position in given:
        distances = np.minimum(distances, _distances(directions, np.array([position]))[0])
    chosen: list[int] = []
    while len(chosen) < count and distances.any():
        candidates = rng.choice(len(directions), size=_TRIALS, p=distances / distances.sum())
        left = np.minimum(distances, _distances(directions, candidates))
        best = int(left.sum(1).argmin())
        distances = left[best]
        distances[candidates[best]] = 0.0
        chosen.append(int(candidates[best]))
    return np.array(chosen, dtype=np.int64)


_TRIALS = 8
"""Draws for each choice; scikit-learn's ``2 + log k`` is 6 to 9 for the usual numbers of queries."""


def _distances(directions: FloatArray, positions: IntArray) -> npt.NDArray[np.float64]:
    """Compute squared distances ``(m, n)`` of some directions from all; remainders of rounding become 0."""
    squared = 2.0 - 2.0 * (directions[positions] @ directions.T).astype(np.float64)
    return np.where(squared < 1e-5, 0.0, squared)
