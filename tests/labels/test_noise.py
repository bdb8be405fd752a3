"""Tests of noise on embeddings: its length, and that it belongs to the embedding."""

from __future__ import annotations

import numpy as np
import pytest

from ucds.errors import InputError
from ucds.labels.noise import Noise


def test_noise_has_the_stated_length_and_belongs_to_the_embedding() -> None:
    row = np.random.default_rng(1).normal(size=4000).astype(np.float32)
    for scale in (0.25, 1.0):
        noise = Noise(scale).add_to(row) - row
        assert abs(np.linalg.norm(noise) / np.linalg.norm(row) - scale) < 0.05 * scale
        assert abs(noise @ row) < 0.06 * np.linalg.norm(noise) * np.linalg.norm(row)
    np.testing.assert_array_equal(Noise(1.0).add_to(row), Noise(1.0).add_to(row.copy()))
    other = Noise(1.0, seed=1).add_to(row) - row
    assert abs(np.corrcoef(other, Noise(1.0).add_to(row) - row)[0, 1]) < 0.1
    np.testing.assert_array_equal(Noise(0.0).add_to(row), row)
    for scale in (-1.0, float("inf"), float("nan")):
        with pytest.raises(InputError, match="from 0 on"):
            Noise(scale)
