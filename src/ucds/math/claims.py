"""The guarantee of differential privacy that a model carries: in its file, its service and its receipts."""

from __future__ import annotations

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
