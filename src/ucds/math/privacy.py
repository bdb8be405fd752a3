"""Noise of releases with zero-concentrated differential privacy (zCDP), and the guarantee of a model.

A sum that one record changes by at most 1 in Euclidean length, with Gaussian noise of deviation ``s`` on it,
is rho-zCDP with ``rho = 1 / (2 s^2)``. The rhos of several releases add up, even if later ones depend on
earlier ones.

Source:
    M. Bun and T. Steinke, Concentrated differential privacy: simplifications, extensions and lower bounds,
    2016.
"""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

Guarantee = Annotated[
    str, Field(pattern=r"^epsilon [0-9.e+-]{1,24}, delta [0-9.e+-]{1,24}, for each (image|person)$")
]
"""(Epsilon, delta)-differential privacy of a model, and so of any number of its answers, for one image or all
images of a person. It is a text, because messages over HTTP hold no fractions."""


def noise_scale(rho: float) -> float:
    """Compute the standard deviation of noise that makes the release of a sum of sensitivity 1 rho-zCDP."""
    return 1 / math.sqrt(2 * rho)
