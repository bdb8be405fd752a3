"""Long columns of ids and keys that are held in arrays, or computed: no Python object for each entry.

A million texts of eight letters take 60 MB as Python objects, and as many keys of 16 bytes take 57 MB. Here
ids of rows take nothing, and keys their 16 bytes.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import SupportsIndex, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

from ucds.data.content import KEY_BYTES
from ucds.math.arrays import IntArray

Entry = TypeVar("Entry", str, bytes)
ByteRows = npt.NDArray[np.uint8]


class Column(Sequence[Entry]):
    """A sequence whose entries are made when they are asked for; it equals any sequence of equal entries."""

    @abstractmethod
    def entry(self, position: int) -> Entry:
        """Return the entry at a position in ``[0, len(self))``."""

    @overload
    def __getitem__(self, index: SupportsIndex) -> Entry: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Entry]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Entry | Sequence[Entry]:
        """Return the entry at a position, from the end if it is negative, or a tuple of those in a slice."""
        if isinstance(index, slice):
            return tuple(self.entry(i) for i in range(*index.indices(len(self))))
        position = operator.index(index)
        position += len(self) if position < 0 else 0
        if not 0 <= position < len(self):
            raise IndexError(f"position {position} is outside a column of {len(self)} entries")
        return self.entry(position)

    def __iter__(self) -> Iterator[Entry]:
        """Return an iterator over the entries."""
        return map(self.entry, range(len(self)))

    def __eq__(self, other: object) -> bool:
        """Return whether another sequence has the same entries in the same order."""
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    __hash__ = None  # type: ignore[assignment]


class RowIds(Column[str]):
    """Ids of the rows of an array: "0", "1" and so on.

    Args:
        count: number of rows.
    """

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def entry(self, position: int) -> str:
        """Return the number of the row in decimal digits."""
        return str(position)


class Chosen(Column[Entry]):
    """Some entries of another sequence, which is not copied.

    Args:
        parent: sequence to choose from.
        places: ``(m,)`` positions in it.
    """

    def __init__(self, parent: Sequence[Entry], places: IntArray) -> None:
        self.parent: Sequence[Entry] = parent
        self.places = places

    def __len__(self) -> int:
        return len(self.places)

    def entry(self, position: int) -> Entry:
        """Return the chosen entry at a position."""
        return self.parent[int(self.places[position])]


class Texts(Column[str]):
    """Texts, one after the other in UTF-8.

    Args:
        texts: texts to hold.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        self._bytes = b"".join(encoded)
        self._ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))

    @classmethod
    def joined(cls, parts: Sequence[Texts]) -> Texts:
        """Join texts, those of the first part first."""
        whole = cls(())
        whole._bytes = b"".join(part._bytes for part in parts)
        before = np.cumsum([0, *(len(part._bytes) for part in parts)])
        ends = [part._ends + start for part, start in zip(parts, before, strict=False)]
        whole._ends = np.concatenate([whole._ends, *ends])
        return whole

    def __len__(self) -> int:
        return len(self._ends)

    def entry(self, position: int) -> str:
        """Return the text at a position."""
        start = self._ends[position - 1] if position else 0
        return self._bytes[start : self._ends[position]].decode("utf-8", "surrogatepass")


class Keys(Column[bytes]):
    """Content keys of samples.

    Args:
        rows: ``(n, 16)`` bytes, one key a row.

    Attributes:
        rows: these bytes.
    """

    def __init__(self, rows: ByteRows) -> None:
        self.rows = rows

    @classmethod
    def of(cls, keys: Sequence[bytes]) -> Keys:
        """Gather keys of 16 bytes each in one array; keys that are in one already are not copied."""
        if isinstance(keys, Keys):
            return keys
        if isinstance(keys, Chosen):
            return cls(cls.of(keys.parent).rows[keys.places])
        return cls(np.frombuffer(b"".join(keys), np.uint8).reshape(-1, KEY_BYTES))

    def __len__(self) -> int:
        return len(self.rows)

    def entry(self, position: int) -> bytes:
        """Return the key at a position."""
        return bytes(self.rows[position])


def domains_of(counts: Sequence[int]) -> IntArray:
    """Number the domains of samples that lie domain after domain; a single domain takes no memory.

    Args:
        counts: number of samples of each domain.

    Returns:
        ``(n,)`` positions of the domains; read-only if there is one domain.
    """
    if len(counts) == 1:
        return np.broadcast_to(np.int64(0), counts[0])
    return np.repeat(np.arange(len(counts), dtype=np.int64), counts)


def pack(texts: Sequence[str]) -> Sequence[str]:
    """Hold texts in little memory: as :class:`RowIds` if they number rows, and else as :class:`Texts`."""
    if isinstance(texts, Column):
        return texts
    numbers = RowIds(len(texts))
    return numbers if numbers == texts else Texts(texts)


def first_of_each(keys: Sequence[bytes]) -> IntArray:
    """Find, for each sample, the position of the first sample that has the same key.

    Args:
        keys: content keys of ``n`` samples.

    Returns:
        ``(n,)`` positions; that of the sample itself unless it is a copy.
    """
    halves = Keys.of(keys).rows.view("<u8").reshape(-1, KEY_BYTES // 8)
    order = np.lexsort(halves.T)  # stable: copies stay in the order of their positions
    ordered = halves[order]
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (ordered[1:] != ordered[:-1]).any(1)
    first = np.empty(len(order), np.int64)
    first[order] = order[begins][np.cumsum(begins) - 1]
    return first


def first_positions(keys: Sequence[bytes]) -> IntArray:
    """Return the positions ``(m,)`` of the ``m`` different keys where they occur first, ascending."""
    return np.flatnonzero(first_of_each(keys) == np.arange(len(keys)))


def first_repeated(texts: Sequence[str]) -> str | None:
    """Return the first text that occurs more than once; ``None`` if all are different."""
    if isinstance(texts, RowIds) or len(np.unique(_codes(texts))) == len(texts):
        return None
    return next((text for text, count in Counter(texts).items() if count > 1), None)


def find_places(wanted: Sequence[str], known: Sequence[str]) -> IntArray:
    """Find texts in a sequence of different texts.

    Args:
        wanted: texts to look for.
        known: different texts.

    Returns:
        Position of each wanted text in ``known``, -1 where it is not there.
    """
    if isinstance(wanted, RowIds) and isinstance(known, RowIds):
        rows = np.arange(len(wanted))
        rows[len(known) :] = -1
        return rows
    codes = _codes(known)
    order = np.argsort(codes)
    codes = codes[order]
    if (codes[1:] == codes[:-1]).any():  # two texts of one code: one in 10^7 runs with a million texts
        position = {text: place for place, text in enumerate(known)}
        return np.fromiter((position.get(text, -1) for text in wanted), np.int64, len(wanted))
    asked = _codes(wanted)
    places = np.minimum(np.searchsorted(codes, asked), max(len(codes) - 1, 0))
    places = np.where(codes[places] == asked, order[places], -1) if len(codes) else np.full(len(asked), -1)
    return np.fromiter(map(_checked(known), wanted, places.tolist()), np.int64, len(wanted))


def _checked(known: Sequence[str]) -> Callable[[str, int], int]:
    """Return a function that returns the place of a text if the text is really there, and else -1."""
    return lambda text, place: place if place >= 0 and known[place] == text else -1


def _codes(texts: Sequence[str]) -> IntArray:
    return np.fromiter(cast("Iterator[int]", map(hash, texts)), np.int64, len(texts))
