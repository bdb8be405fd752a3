"""The guarantee of differential privacy that a model carries: in its file, its service and its receipts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import ConfigDict

ProtectedUnit = Literal["image", "person"]


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
