"""Words that a user chooses between, on the command line and in Python alike."""

from __future__ import annotations

from typing import Literal

Accelerator = Literal["auto", "cpu", "cuda"]
Precision = Literal["32-true", "bf16-mixed"]
Tune = Literal["full", "head"]
