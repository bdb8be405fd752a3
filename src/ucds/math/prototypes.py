"""Fits the prototypes that best predict given assignments of samples."""

from __future__ import annotations

from itertools import count

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from ucds.math.arrays import DoubleArray, FloatArray, Watch

_ITERATIONS = 100
_BLOCK = 4096  # samples whose predictions are computed at a time


def solve_prototypes(
    features: FloatArray,
    targets: FloatArray,
    start: FloatArray,
    *,
    decay: float = 1e-4,
    watch: Watch | None = None,
) -> FloatArray:
    """Find the prototypes ``(d_f, K)`` that best predict given assignments, by convex optimisation.

    The mean cross-entropy plus ``decay / 2`` times the sum of squares is minimised over all samples at once.

    Features are ``(n, d_f)`` of the bottleneck, and targets ``(n, K)`` shares of each cluster in each sample,
    whose rows sum to 1. Without decay there may be no minimum.

    Source:
        R. Byrd, P. Lu, J. Nocedal and C. Zhu, A limited memory algorithm for bound constrained optimization,
        1995 (L-BFGS-B, here without bounds).
    """
    n, evaluations = len(features), count()

    def tell(done: int) -> None:
        if watch is not None:
            watch("fit the prototypes", done, _ITERATIONS)

    def objective(values: DoubleArray) -> tuple[float, DoubleArray]:
        """Return the value and its gradient; predictions are in the precision of the features."""
        tell(min(next(evaluations), _ITERATIONS - 1))
        prototypes = values.reshape(start.shape)
        single = prototypes.astype(features.dtype)
        value, gradient = decay / 2 * float((prototypes**2).sum()), decay * prototypes
        for first in range(0, n, _BLOCK):
            rows, wanted = features[first : first + _BLOCK], targets[first : first + _BLOCK]
            logarithms = log_softmax(rows @ single, axis=1)
            value -= float((wanted * logarithms).sum(dtype=np.float64)) / n
            gradient += rows.T @ (np.exp(logarithms) - wanted) / n
        return value, gradient.ravel()

    options = {"maxiter": _ITERATIONS, "maxcor": 20, "ftol": 1e-10, "gtol": 1e-6}
    with threadpool_limits(1, "blas"):  # the last bits must not depend on the number of threads
        found = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options=options)
    tell(_ITERATIONS)  # it usually needs fewer
    solved: FloatArray = found.x.reshape(start.shape).astype(features.dtype)
    return solved
