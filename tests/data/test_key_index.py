"""Keys are found as a dictionary would find them, whatever is added, in whatever pieces."""

from __future__ import annotations

import numpy as np
import pytest

from ucds.data.columns import Keys
from ucds.data.key_index import KeyIndex


def drawn(count: int, seed: int) -> np.ndarray:
    """Keys of which many begin alike, end with zeros, or occur twice."""
    rows = np.zeros((count, 16), np.uint8)
    rows[:, [0, 7]] = np.random.default_rng(seed).integers(120, size=(count, 2))
    return rows


@pytest.mark.parametrize(
    "pieces", [[], [1], [5000], [1, 4095, 1, 1], [4096, 1], [3000, 3000, 3000, 9000, 20]]
)
def test_it_is_a_dictionary_in_which_the_first_row_counts(pieces: list[int]) -> None:
    index, known, first = KeyIndex(), dict[bytes, int](), 0
    for seed, count in enumerate(pieces):
        keys = drawn(count, seed)
        index.add(keys, first)
        for place, key in enumerate(Keys(keys)):
            known.setdefault(key, first + place)
        first += count
        asked = Keys(np.concatenate([keys[::7], drawn(200, 99)]))
        assert index.find(asked).tolist() == [known.get(key, -1) for key in asked]
    asked = Keys(drawn(500, 100))
    assert index.find(asked).tolist() == [known.get(key, -1) for key in asked]
    assert index.find([]).tolist() == []
