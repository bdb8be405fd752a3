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
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import platformdirs

from ucds.data.columns import ByteRows, Keys
from ucds.data.content import KEY_BYTES
from ucds.data.parts import (
    DESCRIPTION,
    Described,
    Part,
    PartRows,
    describe_rows,
    read_description,
    write_part,
)
from ucds.errors import DamagedFileError, InputError, NoSpaceError, UcdsWarning
from ucds.math.arrays import IntArray

_LOCKED = (errno.EACCES, errno.EPERM, errno.EROFS)
_PART_BYTES = 2**25
_PART_SECONDS = 30.0  # of work, at most, that a kill can lose
_ABANDONED_SECONDS = 86400.0


class DamagedRowsError(DamagedFileError):
    """Rows of a store that are not as they were written, or whose part is gone.

    Attributes:
        positions: ``(m,)`` positions of these rows in the call that read them; the others were read.
    """

    def __init__(self, path: Path, positions: IntArray) -> None:
        super().__init__(
            f"{len(positions):,} rows of the cache {path} are damaged; run again to make them anew"
        )
        self.positions = positions


def default_cache_dir() -> Path:
    """Return the user's cache folder for this package, as the operating system has it."""
    return Path(platformdirs.user_cache_dir("ucds"))


class PartStore:
    """Rows of one shape and type, found by the key of the content they were made from.

    A part is checked as a whole when a process first reads from it; a damaged one is removed, and its rows
    are made again. Where the folder may only be read, further rows stay in memory.

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
        self._parts: list[Part] = []
        self._seen, self._sound, self._lost = set[str](), set[int](), set[int]()
        self._codes, self._rows = np.empty(0, f"S{KEY_BYTES}"), np.empty(0, np.int64)
        self._told = self._stale = False
        self._sweep()
        self.refresh()

    def __len__(self) -> int:
        """Return the number of rows seen so far; a row that is in several parts counts several times."""
        return sum(len(part) for number, part in enumerate(self._parts) if number not in self._lost)

    def refresh(self) -> None:
        """Take note of parts that other processes have added."""
        with self._lock:
            names = {path.stem for path in self.path.glob(f"*{DESCRIPTION}")} - self._seen
            for name in sorted(names):  # the oldest first
                self._seen.add(name)
                path = self.path / name
                with suppress(InputError):  # removed meanwhile
                    try:
                        self._parts.append(self._opened(path))
                    except DamagedFileError:
                        self._tell_of_damage()
                        self._remove(path)
            self._stale |= bool(names)

    def _opened(self, path: Path) -> Part:
        part = Part(path, read_description(path, Described))
        if (part.shape[1:], part.dtype) != (self.row_shape, self.dtype):
            raise DamagedFileError(f"{path} holds other rows than the cache does")
        return part

    def rows_of(self, keys: Sequence[bytes]) -> IntArray:
        """Return the row of each content key, -1 where none has been seen."""
        with self._lock:
            if self._stale:
                self._index()
            if not len(self._codes):
                return np.full(len(keys), -1)
            wanted = _codes_of(Keys.of(keys).rows)
            places = np.minimum(np.searchsorted(self._codes, wanted), len(self._codes) - 1)
            return np.where(self._codes[places] == wanted, self._rows[places], -1)

    def add(self, keys: Sequence[bytes], values: npt.NDArray[Any]) -> None:
        """Write rows ``(b, *row_shape)`` of different contents as one part.

        Raises:
            NoSpaceError: the disk is full.
        """
        values = np.ascontiguousarray(values, self.dtype)
        assert values.shape == (len(keys), *self.row_shape)
        if self.writable:
            described = Described(**describe_rows(keys, values))
            path = self.path / f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}"
            write_part(path, values, described)
            part = Part(path, described)
        else:
            part = _HeldPart(Keys.of(keys).rows, values)
        with self._lock:
            if self.writable:
                self._seen.add(part.path.name)
            self._parts.append(part)
            self._stale = True

    def writer(self) -> PartWriter:
        """Return a writer that gathers rows into parts of some megabytes."""
        return PartWriter(self)

    def read(self, rows: IntArray) -> npt.NDArray[Any]:
        """Read rows ``(b, *row_shape)``, in the order of ``rows``.

        Raises:
            DamagedRowsError: some rows are damaged or gone; a store that can be written has forgotten them.

        Warns:
            UcdsWarning: a part is damaged or gone, the first time in a process.
        """
        out = np.empty((len(rows), *self.row_shape), self.dtype)
        self.read_into(out, rows)
        return out

    def read_into(self, out: npt.NDArray[Any], rows: IntArray) -> None:
        """Read rows into ``(b, *row_shape)`` values; see :meth:`read`."""
        damaged = []
        for number, here, places in PartRows(self._parts).places(rows) if len(rows) else ():
            try:
                self._check(number)
                out[here] = self._parts[number][places]
            except DamagedFileError:
                self._lose(number)
                damaged.append(here)
        if damaged:
            raise DamagedRowsError(self.path, np.concatenate(damaged))

    def find_damaged(self, rows: IntArray) -> IntArray:
        """Check the parts of rows that no call has read yet, and return the positions of damaged ones."""
        damaged = [np.empty(0, np.int64)]
        for number, here, _ in PartRows(self._parts).places(rows) if len(rows) else ():
            try:
                self._check(number)
            except DamagedFileError:
                self._lose(number)
                damaged.append(here)
        return np.concatenate(damaged)

    def make_room(self, rows: int, capacity: int, keep: Sequence[bytes]) -> None:
        """Remove parts without any of the keys to keep, the oldest first, until there is room for more rows.

        Args:
            rows: number of rows that are to be added.
            capacity: largest number of rows of the store.
            keep: content keys of rows that stay.
        """
        if not self.writable:
            return
        with self._lock:
            kept = set(np.unique(_codes_of(Keys.of(keep).rows)).tolist())
            for number, part in enumerate(self._parts):
                if len(self) + rows <= capacity:
                    break
                if number not in self._lost and kept.isdisjoint(_codes_of(part.keys).tolist()):
                    part.remove()
                    self._lost.add(number)
            self._stale = True

    def _check(self, number: int) -> None:
        with self._lock:
            if number in self._lost:
                raise DamagedFileError(f"a part of {self.path} is gone")
            if number not in self._sound and not self._parts[number].is_sound():
                raise DamagedFileError(f"a part of {self.path} is damaged")
            self._sound.add(number)

    def _lose(self, number: int) -> None:
        """Forget a part that cannot be read."""
        with self._lock:
            if number not in self._lost:
                self._lost.add(number)
                self._tell_of_damage()
                self._remove(self._parts[number].path)
                self._stale = True

    def _remove(self, path: Path) -> None:
        if self.writable:
            with suppress(OSError):
                for file in (path.with_suffix(DESCRIPTION), path.with_suffix(".npy")):
                    file.unlink(missing_ok=True)

    def _tell_of_damage(self) -> None:
        if not self._told:
            self._told = True
            message = f"rows of the cache {self.path} are damaged or gone, and are made again"
            warnings.warn(message, UcdsWarning, stacklevel=5)

    def _index(self) -> None:
        """Sort the keys of all parts; of equal ones the first counts."""
        if not self._parts:
            return
        keys = np.concatenate([_codes_of(part.keys) for part in self._parts])
        alive = [np.full(len(part), number not in self._lost) for number, part in enumerate(self._parts)]
        rows = np.flatnonzero(np.concatenate(alive))
        self._codes, first = np.unique(keys[rows], return_index=True)
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


class PartWriter:
    """Gathers rows into parts, which a kill can make it lose no more than half a minute's work of.

    Args:
        store: store that the parts are added to.
    """

    def __init__(self, store: PartStore) -> None:
        self._store, self._since = store, time.monotonic()
        self._keys, self._values = list[bytes](), list[npt.NDArray[Any]]()

    def add(self, keys: Sequence[bytes], values: npt.NDArray[Any]) -> None:
        """Take rows ``(b, *row_shape)``, and write a part if there are enough.

        Raises:
            NoSpaceError: the disk is full.
        """
        self._keys += keys
        self._values.append(values)
        full = len(self._keys) * self._store.row_bytes >= _PART_BYTES
        if full or time.monotonic() - self._since > _PART_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the rows that have been gathered, each content once, without those that others have added."""
        keys, values = self._keys, self._values
        self._keys, self._values, self._since = [], [], time.monotonic()
        if not keys:
            return
        self._store.refresh()
        missing = np.flatnonzero(self._store.rows_of(keys) < 0).tolist()
        places = sorted({keys[i]: i for i in reversed(missing)}.values())
        if places:
            self._store.add([keys[i] for i in places], np.concatenate(values)[places])

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the rest, also after an interruption; not after an error of the disk."""
        if not isinstance(error, NoSpaceError):
            self.flush()


class _HeldPart(Part):
    """Rows in memory, where a store may only be read."""

    def __init__(self, keys: ByteRows, values: npt.NDArray[Any]) -> None:
        self.path, self.keys, self._values = Path(), keys, values
        self.shape, self.dtype = values.shape, values.dtype

    def __getitem__(self, index: IntArray | slice) -> npt.NDArray[Any]:
        return np.array(self._values[index])

    def is_sound(self) -> bool:
        """Return that the rows are as they were made."""
        return True

    def remove(self) -> None:
        """Keep the rows: nothing else holds them."""


def _codes_of(keys: ByteRows) -> npt.NDArray[np.bytes_]:
    return np.ascontiguousarray(keys).view(f"S{KEY_BYTES}").reshape(-1)  # equal lengths: compared exactly
