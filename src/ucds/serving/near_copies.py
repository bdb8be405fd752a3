"""Near-copies: images that look like others which the same key was answered about (docs/privacy.md).

Who wants to know where the boundary of a cluster is near one image, asks about many changed copies of it.
So the ledger keeps a perceptual hash of the newest images of each key, and few near-copies are answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection, delete, select

from ucds.math.perceptual_hash import HASH_BYTES, Hashes, count_different_bits
from ucds.serving import tables

MOST_DIFFERENT_BITS = 64
"""Bits in which the hashes of an image and of a near-copy differ at most; see `benchmarks/near_copies.py`."""

MOST_REMEMBERED = 10_000
"""Images of one key that the ledger remembers; the oldest are forgotten first."""


class TooManyNearCopies(Exception):  # noqa: N818  (an answer of the ledger, not a fault)
    """A request holds more near-copies than its key is answered about; no label of it is given.

    Args:
        contents: content keys of these near-copies.
    """

    def __init__(self, contents: list[bytes]) -> None:
        super().__init__(f"{len(contents)} near-copies")
        self.contents = contents


@dataclass(frozen=True)
class Screen:
    """The new images of one request, as they are compared with those that their key was answered about.

    Attributes:
        hashes: perceptual hash of each content.
        allowed: near-copies of an image, besides itself, that a key is answered about.
        refuses: whether further ones are refused; otherwise they are counted.
    """

    hashes: Mapping[bytes, bytes]
    allowed: int
    refuses: bool

    def find_excess(self, connection: Connection, key: int, model: str) -> list[bytes]:
        """Return the contents of which the key has been answered about too many near-copies.

        The images of the request are taken one after the other: each counts for those behind it, unless it
        is itself refused.
        """
        ours = _as_rows(list(self.hashes.values()))
        answered = np.ones(len(ours), dtype=bool)
        counts = (count_different_bits(ours, _read(connection, key, model)) <= MOST_DIFFERENT_BITS).sum(1)
        near = count_different_bits(ours, ours) <= MOST_DIFFERENT_BITS
        excess = np.zeros(len(ours), dtype=bool)
        for i in range(len(ours)):
            excess[i] = counts[i] + (near[i, :i] & answered[:i]).sum() > self.allowed
            answered[i] = not (excess[i] and self.refuses)
        return [content for content, is_excess in zip(self.hashes, excess, strict=True) if is_excess]

    def admit(self, connection: Connection, key: int, model: str, entry: int) -> None:
        """Remember the images for an entry of the log, and forget the oldest ones of the key.

        Raises:
            TooManyNearCopies: some of them are refused.
        """
        if self.refuses and (excess := self.find_excess(connection, key, model)):
            raise TooManyNearCopies(excess)
        table, shared = tables.likenesses, {"key_id": key, "model": model, "entry": entry}
        rows = [{"content": content, "hash": found} | shared for content, found in self.hashes.items()]
        connection.execute(table.insert(), rows)
        newest = select(table.c.entry).filter_by(key_id=key).order_by(table.c.entry.desc())
        last = connection.execute(newest.offset(MOST_REMEMBERED).limit(1)).scalar()
        if last is not None:
            connection.execute(delete(table).where(table.c.key_id == key, table.c.entry <= last))


def forget(connection: Connection, key: int) -> None:
    """Forget how the images of a key look."""
    connection.execute(delete(tables.likenesses).where(tables.likenesses.c.key_id == key))


def _read(connection: Connection, key: int, model: str) -> Hashes:
    found = select(tables.likenesses.c.hash).filter_by(key_id=key, model=model)
    return _as_rows(list(connection.execute(found).scalars()))


def _as_rows(hashes: list[bytes]) -> Hashes:
    return np.frombuffer(b"".join(hashes), dtype=np.uint8).reshape(-1, HASH_BYTES)
