"""Chooses pairs of groups about which the answer "one cluster" or "two clusters" would tell most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ucds.math.arrays import FloatArray, IntArray
from ucds.math.constraints import Pair, split_in_two
from ucds.math.exemplars import Exemplars
from ucds.math.spaces import unit_rows

MOST_JOINED, MOST_DIVIDED = 7, 3
"""Questions whether two clusters are one, and whether one cluster is two.

Ten answers gain most in this proportion on dslr and webcam (``docs/reading.md``).
"""

_SHOWN = 3
"""Typical samples that stand for a group."""


def choose_questions(
    features: FloatArray, probabilities: FloatArray, exemplars: Sequence[Exemplars]
) -> list[Pair]:
    """Choose groups of typical samples that may belong to one cluster, or to two.

    Args:
        features: ``(n, d)`` features.
        probabilities: ``(n, K)`` probability of each cluster for each sample.
        exemplars: samples that show what each cluster is.

    Returns:
        Pairs of groups. First those of two clusters that overlap most, then the halves of the clusters that
        fall into two most clearly.
    """
    return [*_joined(probabilities, exemplars), *_divided(unit_rows(features), probabilities.argmax(1))]


def _joined(probabilities: FloatArray, exemplars: Sequence[Exemplars]) -> list[Pair]:
    """Pair the clusters whose members have the highest probability of each other."""
    members = np.eye(probabilities.shape[1])[probabilities.argmax(1)]
    overlap = (members.T @ probabilities) / np.maximum(members.sum(0), 1)[:, None]
    both = np.triu(overlap + overlap.T, 1)
    ranked = np.unravel_index(np.argsort(-both, axis=None, kind="stable"), both.shape)
    typical = [each.typical[:_SHOWN] for each in exemplars]
    pairs = [(i, j) for i, j in zip(*ranked, strict=True) if both[i, j] > 0]
    return [(typical[i], typical[j]) for i, j in pairs if len(typical[i]) and len(typical[j])][:MOST_JOINED]


def _divided(rows: FloatArray, clusters: IntArray) -> list[Pair]:
    """Halve each cluster, and pair typical samples of the halves that lie farthest apart."""
    found: list[tuple[float, Pair]] = []
    for cluster in np.unique(clusters):
        members = np.flatnonzero(clusters == cluster)
        if len(members) >= 2 * _SHOWN:
            second, clearness = split_in_two(rows[members])
            halves = members[~second], members[second]
            if clearness > 0:
                found.append((clearness, (_middle(rows, halves[0]), _middle(rows, halves[1]))))
    return [pair for _, pair in sorted(found, key=lambda each: -each[0])[:MOST_DIVIDED]]


def _middle(rows: FloatArray, group: IntArray) -> IntArray:
    nearness = rows[group] @ rows[group].mean(0)
    return group[np.argsort(-nearness, kind="stable")][:_SHOWN]
