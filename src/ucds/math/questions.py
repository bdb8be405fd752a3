"""Chooses pairs of samples about which the answer "same group" or "different groups" would tell most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ucds.math.exemplars import Exemplars, IntArray
from ucds.math.spaces import FloatArray

MOST_QUESTIONS = 10


def choose_questions(
    probabilities: FloatArray, exemplars: Sequence[Exemplars], most: int = MOST_QUESTIONS
) -> IntArray:
    """Choose one pair of typical samples for each pair of clusters that may be the same group.

    Two clusters may be one group if the members of each have a high probability of the other. A single
    answer about them says something about all their members.

    Args:
        probabilities: ``(n, K)`` probability of each cluster for each sample.
        exemplars: samples that show what each cluster is.
        most: largest number of pairs.

    Returns:
        ``(m, 2)`` pairs of positions, the most telling first.
    """
    n_clusters = probabilities.shape[1]
    members = np.eye(n_clusters)[probabilities.argmax(1)]
    sizes = np.maximum(members.sum(0), 1)[:, None]
    overlap = (members.T @ probabilities) / sizes
    both = np.triu(overlap + overlap.T, 1)
    ranked = np.argsort(-both, axis=None, kind="stable")[:most]
    pairs = [
        (exemplars[one].typical[0], exemplars[other].typical[0])
        for one, other in zip(*np.unravel_index(ranked, both.shape), strict=True)
        if both[one, other] > 0 and len(exemplars[one].typical) and len(exemplars[other].typical)
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)
