"""Accounts of differential privacy: zero-concentrated (zCDP) for releases, (epsilon, delta) for people.

A sum that one record changes by at most 1 in Euclidean length, with Gaussian noise of deviation ``s`` on it,
is rho-zCDP with ``rho = 1 / (2 s^2)``. The rhos of several releases add up, even if later ones depend on
earlier ones.

Source:
    M. Bun and T. Steinke, Concentrated differential privacy: simplifications, extensions and lower bounds,
    2016; C. Canonne, G. Kamath and T. Steinke, The discrete Gaussian for differential privacy, 2020
    (Corollary 13).
"""

from __future__ import annotations

import math

from scipy.optimize import brentq, minimize_scalar

_ORDERS = (math.log(1e-9), math.log(1e9))  # of the Rényi divergence, less 1, as logarithms
_RHOS = (math.log(1e-12), math.log(1e4))


def epsilon_of(rho: float, delta: float) -> float:
    """Compute the smallest epsilon for which rho-zCDP is known to give (epsilon, delta)-differential privacy.

    Args:
        rho: parameter of zCDP, at least 0.
        delta: probability between 0 and 1, both excluded.
    """
    if rho == 0:
        return 0.0

    def bound(logarithm: float) -> float:
        excess = math.exp(logarithm)  # order - 1
        # (log(1/delta) - log(order)) / (order - 1) + log(1 - 1/order), without cancellation
        return (1 + excess) * rho - (math.log(delta) + math.log1p(excess)) / excess - math.log1p(1 / excess)

    # The best order for the simpler bound rho + 2 sqrt(rho log(1/delta)); the one sought is near it.
    near = math.log(math.sqrt(-math.log(delta) / rho))
    limits = (max(_ORDERS[0], near - 7), min(_ORDERS[1], near + 3))
    found = minimize_scalar(bound, bounds=limits, method="bounded", options={"xatol": 1e-10})
    return max(0.0, float(found.fun))


def rho_of(epsilon: float, delta: float) -> float:
    """Compute the largest rho for which rho-zCDP gives (epsilon, delta)-differential privacy.

    Args:
        epsilon: positive number; for any delta that is not below 1e-300 it may be 0.001 to 1,000.
        delta: probability between 0 and 1, both excluded.

    Raises:
        ValueError: no rho between 1e-12 and 1e4 gives this epsilon.
    """
    root = brentq(lambda rho: epsilon_of(math.exp(rho), delta) - epsilon, *_RHOS, xtol=1e-13)
    rho = math.exp(root)
    while epsilon_of(rho, delta) > epsilon:  # by the rounding of the root
        rho *= 1 - 1e-12
    return rho


def noise_scale(rho: float) -> float:
    """Compute the deviation of noise that makes the release of a sum of sensitivity 1 rho-zCDP."""
    return 1 / math.sqrt(2 * rho)
