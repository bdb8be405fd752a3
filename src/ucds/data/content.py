"""Identities of samples: ids, content keys, and domains.

Each long column of ids or keys is one NumPy array, without a Python object for each entry.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator, Sequence
from typing import Any, SupportsIndex, TypeVar, overload

import numpy as np
import numpy.typing as npt
from numpy.dtypes import StringDType

from ucds.errors import InputError, brief
from ucds.math.arrays import IntArray

Entry = TypeVar("Entry", str, bytes)
KEY_BYTES = 16
KEY_TYPE = np.dtype(f"V{KEY_BYTES}")
"""Type of a content key in an array; arrays of it are compared, sorted and searched exactly."""


def content_key(data: bytes | memoryview) -> bytes:
    """Compute the 16-byte key of some content: equal for equal contents, whatever their names."""
    return hashlib.blake2b(data, digest_size=KEY_BYTES).digest()


def domains_by_name(of_each: Sequence[str] | None, n: int, name: str) -> tuple[IntArray, tuple[str, ...]]:
    """Number the domains of ``n`` samples, or one named domain; return the numbers and the sorted names."""
    names, domain = np.unique(of_each or [name] * n, return_inverse=True)
    return domain.astype(np.int64), tuple(map(str, names))


def present_domains(domain: IntArray, names: Sequence[str]) -> tuple[IntArray, tuple[str, ...]]:
    """Renumber the domains that chosen samples still have; return the numbers and the names."""
    present, renumbered = np.unique(domain, return_inverse=True)
    return renumbered.astype(np.int64), tuple(names[d] for d in present)


class Column(Sequence[Entry]):
    """Ids or content keys of samples; a column equals any sequence of equal entries.

    Attributes:
        array: ``(n,)`` entries; :func:`texts_of` and :func:`keys_of` make the array from other sequences.
    """

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.array = array

    def take(self, places: IntArray) -> Column[Entry]:
        """Return the entries at some positions, in the order given."""
        return Column(self.array[places])

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Entry: ...  # type: ignore[overload-overlap]

    @overload
    def __getitem__(self, index: slice | Sequence[int] | npt.NDArray[Any]) -> Column[Entry]: ...

    def __getitem__(
        self, index: SupportsIndex | slice | Sequence[int] | npt.NDArray[Any]
    ) -> Entry | Column[Entry]:
        """Return the entry at a position, from the end if it is negative, or those that an index chooses."""
        if isinstance(index, slice | Sequence | np.ndarray):
            return Column(self.array[index])
        entry: Entry = self.array.item(index)
        return entry

    def __repr__(self) -> str:
        return brief(list(self[:50]))  # of which fewer have room

    def __iter__(self) -> Iterator[Entry]:
        return map(self.array.item, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    __hash__ = None  # type: ignore[assignment]


def texts_of(texts: Sequence[str]) -> Column[str]:
    """Hold texts in one array; a column is returned without a copy."""
    if isinstance(texts, Column):
        return texts
    try:
        return Column(np.array(texts, StringDType()))
    except UnicodeEncodeError:  # names of files that are not UTF-8
        return Column(np.array(texts, object))


def keys_of(keys: Sequence[bytes]) -> Column[bytes]:
    """Hold content keys of 16 bytes each in one array; a column is returned without a copy."""
    return keys if isinstance(keys, Column) else Column(np.frombuffer(b"".join(keys), KEY_TYPE))


def number_rows(count: int) -> Column[str]:
    """Return the ids of the rows of an array: "0", "1" and so on."""
    return Column(np.arange(count).astype(StringDType()))


def first_of_each(keys: Sequence[bytes]) -> IntArray:
    """Return, for each of ``n`` content keys, the position ``(n,)`` where the same key occurs first."""
    _, first, number = np.unique(keys_of(keys).array, return_index=True, return_inverse=True)
    return first[number]


def first_positions(keys: Sequence[bytes]) -> IntArray:
    """Return, ascending, the position ``(m,)`` where each of the ``m`` different keys occurs first."""
    return np.sort(np.unique(keys_of(keys).array, return_index=True)[1])


def first_repeated(texts: Sequence[str]) -> str | None:
    """Return the first text that occurs more than once; ``None`` if all are different."""
    column = texts_of(texts)
    ordered = np.sort(column.array)
    if not (ordered[1:] == ordered[:-1]).any():  # in a third of the memory that the places would take
        return None
    _, first, count = np.unique(column.array, return_index=True, return_counts=True)
    return column[int(first[count > 1].min())]


def require_ids(ids: Sequence[str]) -> None:
    """Make sure that ids are unique, and that every file that ucds writes can hold them."""
    column = texts_of(ids)
    if (twice := first_repeated(column)) is not None:
        raise InputError(f"two samples have the id {brief(twice)}: give each sample its own id")
    if column.array.dtype == object or "\0" in "".join(column):
        raise InputError("an id holds NUL, or is not Unicode text: give other ids")


def find_places(wanted: Sequence[str], known: Sequence[str]) -> IntArray:
    """Return the position of each wanted text among different known ones; -1 for unknown texts."""
    # NumPy searches wrongly, or crashes, where texts of more than 15 bytes of two arrays meet.
    places = {one: place for place, one in enumerate(known)}
    return np.fromiter((places.get(one, -1) for one in wanted), np.int64, len(wanted))
