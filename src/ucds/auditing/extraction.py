"""The price of a copy: students trained on labels that a client bought."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import LogisticRegression

from ucds.auditing.subject import Labels
from ucds.math.arrays import FloatArray
from ucds.math.spaces import unit_rows

_SIZES = (50, 100, 200, 500, 1000, 2000, 5000, 10_000)
WANTED = 0.9
"""Agreement at which a student counts as a copy."""


@dataclass(frozen=True)
class Price:
    """Agreement of a student with the provider."""

    labels: int  # number of labels bought
    agreement: float  # share of other samples on which student and provider agree


def price_curve(
    features: FloatArray, labels: Labels, rng: np.random.Generator, sizes: Sequence[int] = _SIZES
) -> list[Price]:
    """Measure the agreement of students with the provider, on a third of the samples that none of them saw.

    Args:
        features: ``(n, d)`` features of the client's samples under an encoder of its own.
        labels: ``(n,)`` labels of the provider.
        rng: generator of the split and the purchases.
        sizes: numbers of labels to buy; all that there are comes last.
    """
    order, kept = rng.permutation(len(features)), len(features) // 3
    unit = unit_rows(features)
    held_out, bought = order[:kept], order[kept:]
    curve = []
    for size in [*(size for size in sizes if size < len(bought)), len(bought)]:
        chosen = bought[:size]
        agreement = _student(unit[chosen], labels[chosen], unit[held_out]) == labels[held_out]
        curve.append(Price(size, float(agreement.mean())))
    return curve


def price_of(curve: Sequence[Price], wanted: float = WANTED) -> int | None:
    """Return the fewest labels of a curve that give the wanted agreement; ``None`` if none do."""
    return next((point.labels for point in curve if point.agreement >= wanted), None)


def _student(features: FloatArray, labels: Labels, others: FloatArray) -> Labels:
    if len(np.unique(labels)) == 1:
        return np.full(len(others), labels[0])
    with warnings.catch_warnings():  # many clusters for few labels, or a fit that is not finished: no matter
        warnings.simplefilter("ignore", UserWarning)
        student = LogisticRegression(C=30.0, max_iter=100, tol=1e-3).fit(features, labels)
    return np.asarray(student.predict(others), dtype=np.int64)
