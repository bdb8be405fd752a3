"""Tests of `ucds.math.privacy`."""

import math

from ucds.math.privacy import noise_scale


def test_no_bound_needs_no_noise() -> None:
    assert noise_scale(math.inf) == 0
    assert noise_scale(0.5) == 1
