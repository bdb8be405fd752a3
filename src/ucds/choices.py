"""Words that a user chooses between, on the command line and in Python alike."""

from __future__ import annotations

from typing import Literal, get_args

Accelerator = Literal["auto", "cpu", "cuda"]
Precision = Literal["32-true", "bf16-mixed"]
Tune = Literal["full", "head"]
Recipe = Literal["pcd", "ucds"]
"""The paper's method, or ours (``docs/recipe.md``)."""
Transfer = Literal["guarded", "own", "consensus", "transferred"]
"""What becomes of a provider's labels: as the guard finds, or always the same."""
Space = Literal["features", "principal", "wide", "middle", "near"]
SPACES: tuple[Space, ...] = get_args(Space)
"""Spaces in which a target is clustered, see :func:`ucds.spaces.make_spaces`."""
