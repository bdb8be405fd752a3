"""A store of rows that are found by their content: decoded images, features.

A store is a folder of parts (:mod:`ucds.data.parts`), which runs and processes share. Each adds parts of its
own, and nobody changes those of others: so a store needs no locks, and a process may be killed at any moment.
Of rows with one key the oldest counts, so that a run that is resumed reads what it read before.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import platformdirs

from ucds.data.content import KEY_TYPE, Column, first_positions, keys_of
from ucds.data.parts import (
    DESCRIPTION,
    Described,
    Part,
    Rows,
    describe_rows,
    read_description,
    remove_part,
    write_part,
)
from ucds.errors import DamagedFileError, InputError, NoSpaceError
from ucds.math.arrays import IntArray

_LOCKED = (errno.EACCES, errno.EPERM, errno.EROFS)
_PART_BYTES = 2**25
_PART_SECONDS = 30.0  # of work, at most, that a kill can lose
_ABANDONED_SECONDS = 86400.0


def default_cache_dir() -> Path:
    """Return the folder that UCDS_CACHE names, or the user's cache folder of this package."""
    return Path(os.environ.get("UCDS_CACHE") or platformdirs.user_cache_dir("ucds"))


class PartStore:
    """Rows of one shape and type, found by the key of the content they were made from.

    A part is checked as a whole when a process first reads from it; a damaged one is removed, and its rows
    are made again by the next run.

    Args:
        folder: folder that holds all stores.
        kind: name of the kind of rows; stores of different kinds, shapes or types are apart.
        row_shape: shape of one row.
        dtype: type of the values.

    Attributes:
        path: folder of the store.
        writable: whether parts can be added to the folder.

    Raises:
        NoSpaceError: the folder cannot be used.
    """

    def __init__(self, folder: str | Path, kind: str, row_shape: Sequence[int], dtype: npt.DTypeLike) -> None:
        self.row_shape, self.dtype = tuple(row_shape), np.dtype(dtype)
        self.row_bytes = int(np.prod(self.row_shape, dtype=np.int64)) * self.dtype.itemsize
        what = f"parts|{kind}|{self.row_shape}|{self.dtype.str}"
        self.path = Path(folder) / hashlib.sha256(what.encode()).hexdigest()[:32]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if error.errno not in _LOCKED:
                reason = f"The cache {self.path} cannot be used ({error.strerror})"
                raise NoSpaceError(f"{reason}; free space or choose another folder.") from None
        self.writable = os.access(self.path, os.W_OK)
        self._lock = threading.RLock()
        self._parts, self._seen = list[Part](), set[str]()
        self._sound, self._lost = set[int](), set[int]()  # numbers of parts that were checked, and are gone
        self._keys, self._rows, self._stale = np.empty(0, KEY_TYPE), np.empty(0, np.int64), False
        self._sweep()
        self.refresh()

    def __len__(self) -> int:
        """Return the number of rows seen so far; a row that is in several parts counts several times."""
        return sum(len(part) for number, part in enumerate(self._parts) if number not in self._lost)

    def refresh(self) -> None:
        """Take note of parts that other processes have added."""
        with self._lock:
            names = {path.stem for path in self.path.glob(f"*{DESCRIPTION}")} - self._seen
            self._seen |= names
            for name in sorted(names):  # the oldest first
                with suppress(InputError):  # removed meanwhile
                    self._open(self.path / name)
            self._stale |= bool(names)

    def _open(self, path: Path) -> None:
        try:
            part = Part(path, read_description(path, Described))
            if (part.shape[1:], part.dtype) != (self.row_shape, self.dtype):
                raise DamagedFileError(f"{path} holds other rows than the cache does")
            self._parts.append(part)
        except DamagedFileError:
            self._remove(path)

    def rows_of(self, keys: Sequence[bytes]) -> IntArray:
        """Return the row of each content key, -1 where none has been seen."""
        with self._lock:
            if self._stale:
                self._index()
            if not len(self._keys):
                return np.full(len(keys), -1)
            wanted = keys_of(keys).array
            places = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
            return np.where(self._keys[places] == wanted, self._rows[places], -1)

    def add(self, keys: Sequence[bytes], values: npt.NDArray[Any]) -> None:
        """Write rows ``(b, *row_shape)`` of different contents as one part."""
        values = np.ascontiguousarray(values, self.dtype)
        assert values.shape == (len(keys), *self.row_shape)
        described = Described(**describe_rows(keys, values))
        path = self.path / f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}"
        write_part(path, values, described)
        with self._lock:
            self._seen.add(path.name)
            self._parts.append(Part(path, described))
            self._stale = True

    def gather(self, batches: Iterable[tuple[Sequence[bytes], npt.NDArray[Any]]]) -> None:
        """Gather rows into parts of some megabytes, or of half a minute's work, which a kill may lose.

        What was gathered is written after an interruption too; not after an error of the disk.
        """
        keys, values, since = list[bytes](), list[npt.NDArray[Any]](), time.monotonic()
        try:
            for some, rows in batches:
                keys += some
                values.append(rows)
                late = time.monotonic() - since > _PART_SECONDS
                if late or len(keys) * self.row_bytes >= _PART_BYTES:
                    ready, keys, values, since = (keys, values), [], [], time.monotonic()
                    self._add_new(*ready)
        finally:
            self._add_new(keys, values)

    def _add_new(self, keys: Sequence[bytes], values: Sequence[npt.NDArray[Any]]) -> None:
        """Write rows, each content once, without those that other processes have added."""
        if not keys:
            return
        self.refresh()
        first = first_positions(keys)
        new = first[self.rows_of(keys)[first] < 0]
        if len(new):
            self.add([keys[i] for i in new], np.concatenate(values)[new])

    def read(self, rows: IntArray) -> npt.NDArray[Any]:
        """Read rows ``(b, *row_shape)`` that are there, in the order of ``rows``.

        Raises:
            DamagedFileError: a part is damaged or gone; its rows are not found any more.
        """
        values = np.empty((len(rows), *self.row_shape), self.dtype)
        for number, here, places in Rows(self._parts, self.dtype).places(rows) if len(rows) else ():
            try:
                if number not in self._sound:
                    self._parts[number].check()
                    self._sound.add(number)
                values[here] = self._parts[number][places]
            except DamagedFileError:
                self._lose(number)
                reason = f"rows of the cache {self.path} are damaged or gone"
                raise DamagedFileError(f"{reason}: run again, which makes them anew") from None
        return values

    def make_room(self, rows: int, capacity: int, keep: Column[bytes]) -> None:
        """Remove parts without any of the keys to keep, the oldest first, until so many more rows fit."""
        for number, part in enumerate(self._parts):
            if not self.writable or len(self) + rows <= capacity:
                break
            if number not in self._lost and not np.isin(part.keys.array, keep.array).any():
                self._lose(number)

    def _lose(self, number: int) -> None:
        """Forget a part, and remove it."""
        with self._lock:
            self._lost.add(number)
            self._stale = True
            self._remove(self._parts[number].path)

    def _remove(self, path: Path) -> None:
        if self.writable:
            with suppress(OSError):
                remove_part(path)

    def _index(self) -> None:
        """Sort the keys of all parts; of equal ones the first counts."""
        if not self._parts:
            return
        keys = np.concatenate([part.keys.array for part in self._parts])
        alive = [np.full(len(part), number not in self._lost) for number, part in enumerate(self._parts)]
        rows = np.flatnonzero(np.concatenate(alive))
        self._keys, first = np.unique(keys[rows], return_index=True)
        self._rows, self._stale = rows[first], False

    def _sweep(self) -> None:
        """Remove rows without a description, which processes that were killed left long ago."""
        if not self.writable:
            return
        for path in self.path.glob("*.npy"):
            with suppress(OSError):
                old = time.time() - path.stat().st_mtime > _ABANDONED_SECONDS
                if old and not path.with_suffix(DESCRIPTION).exists():
                    path.unlink()
