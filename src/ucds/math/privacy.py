"""Accounts of differential privacy: zero-concentrated (zCDP) for releases, (epsilon, delta) for people.

:class:`PrivacyClaim` is the guarantee that a model carries: in its file, its service and its receipts.
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
import re
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

from pydantic import ConfigDict

_ORDERS = (math.log(1e-9), math.log(1e9))  # of the Rényi divergence, less 1, as logarithms
_RHOS = (math.log(1e-12), math.log(1e4))

ProtectedUnit = Literal["image", "person"]
CLAIM_PATTERN = r"^epsilon ([0-9.e+-]{1,24}), delta ([0-9.e+-]{1,24}), for each (image|person)$"
"""Form of a claim as text, in which it is sent and signed: messages hold no fractions."""


@dataclass(frozen=True)
class PrivacyClaim:
    """(Epsilon, delta)-differential privacy of a model, and so of any number of its answers.

    Attributes:
        epsilon: bound on the privacy loss.
        delta: probability with which the bound may fail.
        unit: unit that is protected: a single image, or all images of a person.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    epsilon: float
    delta: float
    unit: ProtectedUnit

    def __str__(self) -> str:
        return f"epsilon {self.epsilon!r}, delta {self.delta!r}, for each {self.unit}"

    @classmethod
    def parse(cls, text: str) -> PrivacyClaim:
        """Read a claim from the form that ``str`` writes.

        Raises:
            ValueError: the text is not of that form.
        """
        found = re.fullmatch(CLAIM_PATTERN, text)
        if found is None:
            raise ValueError(f"{text!r} is not a guarantee of privacy")
        return cls(float(found[1]), float(found[2]), cast("ProtectedUnit", found[3]))


def epsilon_of(rho: float, delta: float) -> float:
    """Compute the smallest epsilon for which rho-zCDP is known to give (epsilon, delta)-differential privacy.

    Args:
        rho: parameter of zCDP, at least 0.
        delta: probability between 0 and 1, both excluded.
    """
    from scipy.optimize import minimize_scalar  # heavy, and a client reads claims only

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
    from scipy.optimize import brentq

    root = brentq(lambda rho: epsilon_of(math.exp(rho), delta) - epsilon, *_RHOS, xtol=1e-13)
    rho = math.exp(root)
    while epsilon_of(rho, delta) > epsilon:  # by the rounding of the root
        rho *= 1 - 1e-12
    return rho


def noise_scale(rho: float) -> float:
    """Compute the deviation of noise that makes the release of a sum of sensitivity 1 rho-zCDP."""
    return 1 / math.sqrt(2 * rho)
