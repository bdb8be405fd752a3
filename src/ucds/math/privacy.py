"""Noise of releases with zero-concentrated differential privacy (zCDP), and the guarantee of a model.

:class:`PrivacyClaim` is the guarantee that a model carries: in its file, its service and its receipts.
A sum that one record changes by at most 1 in Euclidean length, with Gaussian noise of deviation ``s`` on it,
is rho-zCDP with ``rho = 1 / (2 s^2)``. The rhos of several releases add up, even if later ones depend on
earlier ones.

Source:
    M. Bun and T. Steinke, Concentrated differential privacy: simplifications, extensions and lower bounds,
    2016.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

from pydantic import ConfigDict

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


def noise_scale(rho: float) -> float:
    """Compute the deviation of noise that makes the release of a sum of sensitivity 1 rho-zCDP."""
    return 1 / math.sqrt(2 * rho)
