"""Finds rows by 16-byte keys, with 24 bytes of memory for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ucds.data.columns import ByteRows, Keys
from ucds.data.content import KEY_BYTES
from ucds.math.arrays import IntArray

_MOST_FRESH = 4096  # keys that wait in a dictionary until they are sorted in


class KeyIndex:
    """Rows of a store by the key of their content. Of rows with one key the first counts."""

    def __init__(self) -> None:
        self._keys = np.empty(0, f"S{KEY_BYTES}")  # sorted; equal lengths make the comparison exact
        self._rows = np.empty(0, np.int64)
        self._fresh: dict[bytes, int] = {}

    def add(self, keys: ByteRows, first: int) -> None:
        """Take note of the keys ``(b, 16)`` of further rows, which are numbered from ``first`` on."""
        if len(keys) + len(self._fresh) <= _MOST_FRESH:
            missing = self._sorted_rows(keys) < 0
            for place in np.flatnonzero(missing).tolist():
                self._fresh.setdefault(bytes(keys[place]), first + place)
            return
        fresh = Keys.of(list(self._fresh)).rows
        numbers = np.fromiter(self._fresh.values(), np.int64, len(fresh))
        joined = np.concatenate([self._keys, _codes(fresh), _codes(keys)])
        rows = np.concatenate([self._rows, numbers, np.arange(first, first + len(keys))])
        self._keys, places = np.unique(joined, return_index=True)  # the first of equal keys
        self._rows, self._fresh = rows[places], {}

    def find(self, keys: Sequence[bytes]) -> IntArray:
        """Return the row of each key, -1 where there is none."""
        held = Keys.of(keys)
        rows = self._sorted_rows(held.rows)
        if self._fresh:
            for place in np.flatnonzero(rows < 0).tolist():
                rows[place] = self._fresh.get(held[place], -1)
        return rows

    def _sorted_rows(self, keys: ByteRows) -> IntArray:
        """Find keys ``(b, 16)`` among those that are sorted already."""
        if not len(self._keys):
            return np.full(len(keys), -1)
        codes = _codes(keys)
        places = np.minimum(np.searchsorted(self._keys, codes), len(self._keys) - 1)
        return np.where(self._keys[places] == codes, self._rows[places], -1)


def _codes(keys: ByteRows) -> np.ndarray[tuple[int], np.dtype[np.bytes_]]:
    return np.ascontiguousarray(keys).view(f"S{KEY_BYTES}").reshape(-1)
