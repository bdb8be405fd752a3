"""Marks of the contents that labels are about, because ids alone do not tell data apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ucds.data.columns import ByteRows, Column, Keys

MARK_BYTES = 8


class Marks(Column[str]):
    """Marks of the contents of samples: the first 8 bytes of each content key, in hexadecimal digits.

    Args:
        rows: ``(n, 8)`` bytes, one mark a row.

    Attributes:
        rows: these bytes.
    """

    def __init__(self, rows: ByteRows) -> None:
        self.rows = rows

    @classmethod
    def of(cls, marks: Sequence[str]) -> Marks:
        """Gather marks of 16 hexadecimal digits each in one array."""
        if isinstance(marks, Marks):
            return marks
        return cls(np.frombuffer(bytes.fromhex("".join(marks)), np.uint8).reshape(-1, MARK_BYTES))

    def __len__(self) -> int:
        return len(self.rows)

    def entry(self, position: int) -> str:
        """Return the mark at a position."""
        return bytes(self.rows[position]).hex()


def marks_of(keys: Sequence[bytes]) -> Marks:
    """Return the mark of each content key; marks of keys that lie in one array are a view of it."""
    return Marks(Keys.of(keys).rows[:, :MARK_BYTES])
