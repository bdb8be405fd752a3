"""Rows of equal size on disk, written once and read at random: decoded images, features.

A row is marked complete only after its bytes have reached the disk. A process may therefore be killed at any
moment, and several processes may fill the same store. A mark holds a digest of its row, so that a damaged row
is found when it is first read, and made again.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import platformdirs

from ucds.data.content import KEY_BYTES
from ucds.data.key_index import KeyIndex
from ucds.data.row_files import explained, read_rows, write_all
from ucds.errors import DamagedFileError, UcdsWarning
from ucds.math.arrays import IntArray

_LAYOUT = 2
_DIGEST_BYTES = 16
_MARK_BYTES = KEY_BYTES + _DIGEST_BYTES
_CHECKED_AT_A_TIME = 1024


class DamagedRowsError(DamagedFileError):
    """Rows of a store that are not as they were written.

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


class RowStore:
    """A bounded, resumable file of equal rows, shared between runs and processes.

    Rows are found by the key of the content they were made from, whatever its name or position. A store is a
    folder with two files: ``rows``, the values one after the other, and ``marks``, which holds for each
    complete row its 16-byte key, and 16 bytes of BLAKE2b over key and values. What lies beyond the last whole
    mark is written anew. A process checks each row once, when it first reads it.

    Values are read with ``pread`` into the caller's memory: unlike the pages of a memory map they do not
    count as memory of the process.

    Args:
        folder: folder that holds all stores.
        key: name of the kind of rows; stores of different keys, shapes or types are apart.
        row_shape: shape of one row.
        dtype: type of the values.
        capacity: largest number of rows that the store may grow to.

    Attributes:
        path: folder of the store.
        writable: whether rows can be added. A store that this user may only read never grows.

    Raises:
        NoSpaceError: the folder can be neither written nor read as a store.
    """

    def __init__(
        self, folder: str | Path, key: str, row_shape: Sequence[int], dtype: npt.DTypeLike, capacity: int
    ) -> None:
        self._files: dict[str, int] = {}
        self.row_shape = tuple(row_shape)
        self.dtype = np.dtype(dtype)
        self.row_bytes = int(np.prod(self.row_shape, dtype=np.int64)) * self.dtype.itemsize
        self._most = capacity
        kind = f"{key}|{self.row_shape}|{self.dtype.str}"
        self.path = Path(folder) / _name_of(_LAYOUT, kind)
        self._thread_lock = threading.RLock()
        self._known = KeyIndex()
        self._scanned = 0
        self._sound = np.zeros(0, dtype=bool)
        self._damaged: set[int] = set()
        self._told = False
        self.writable = True
        with explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._open("lock")
        # Rows without digests, which nothing reads any more.
        shutil.rmtree(Path(folder) / _name_of(_LAYOUT - 1, kind), ignore_errors=True)
        with self._locked():
            self._open("rows", "marks")

    @property
    def capacity(self) -> int:
        """Largest number of rows that the store may grow to: what it holds, if it cannot be written."""
        return self._most if self.writable else min(self._most, len(self))

    def __len__(self) -> int:
        """Return the number of complete rows."""
        return os.fstat(self._files["marks"]).st_size // _MARK_BYTES

    def rows_of(self, keys: Sequence[bytes]) -> IntArray:
        """Return the row of each content key, -1 where there is none; other processes' rows are seen too."""
        with self._thread_lock:
            self._refresh()
            return self._known.find(keys)

    def append(self, keys: Sequence[bytes], values: npt.NDArray[Any]) -> IntArray:
        """Store values under their content keys, each content once; damaged rows are written anew.

        Args:
            keys: content keys of the values.
            values: ``(b, *row_shape)`` rows to store.

        Returns:
            ``(b,)`` row of each value, -1 where the store had no room left, or cannot be written.

        Raises:
            NoSpaceError: the disk is full or fails.
        """
        if not self.writable:
            return self.rows_of(keys)
        with self._locked():
            self._refresh()
            fresh: dict[bytes, int] = {}
            for i, (key, row) in enumerate(zip(keys, self._known.find(keys).tolist(), strict=True)):
                if row < 0:
                    fresh.setdefault(key, i)
                elif row in self._damaged:
                    self._put(row, values[i : i + 1], [key])
                    self._damaged.discard(row)
            start = len(self)
            chosen = list(fresh.values())[: max(0, self.capacity - start)]
            self._put(start, values[chosen], [keys[i] for i in chosen])
            return self.rows_of(keys)

    def read(self, rows: IntArray, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Read the values of complete rows.

        Args:
            rows: ``(b,)`` rows.
            out: contiguous memory to read into; allocated when omitted.

        Returns:
            ``(b, *row_shape)`` values in the order of ``rows``.

        Raises:
            DamagedRowsError: some rows are not as they were written; the others are in ``out``.
            DamagedFileError: the disk fails.

        Warns:
            UcdsWarning: a row is damaged, the first time in a process.
        """
        rows = np.asarray(rows, dtype=np.int64)
        if out is None:
            out = np.empty((len(rows), *self.row_shape), self.dtype)
        values = out.view(np.uint8).reshape(len(rows), self.row_bytes)
        with explained(self.path, DamagedFileError):
            read_rows(self._files["rows"], rows, values)
            unchecked = np.flatnonzero(~self._known_sound(rows))
            damaged = unchecked[~self._check(rows[unchecked], values, unchecked)]
        if len(damaged):
            raise DamagedRowsError(self.path, damaged)
        return out

    def find_damaged(self, rows: IntArray) -> IntArray:
        """Check rows that no call has read yet, and return the positions of the damaged ones in ``rows``."""
        found = []
        for start in range(0, len(rows), _CHECKED_AT_A_TIME):
            try:
                self.read(rows[start : start + _CHECKED_AT_A_TIME])
            except DamagedRowsError as error:
                found.append(start + error.positions)
        return np.concatenate([np.empty(0, np.int64), *found])

    def clear(self) -> None:
        """Forget all rows. Processes that have the store open keep reading the old files."""
        with self._locked():
            for name in ("rows", "marks"):
                (self.path / name).unlink(missing_ok=True)
                os.close(self._files.pop(name))
            self._known, self._scanned = KeyIndex(), 0
            self._sound, self._damaged = np.zeros(0, dtype=bool), set()
            self._open("rows", "marks")

    def close(self) -> None:
        """Close the files; the store cannot be used afterwards."""
        while self._files:
            os.close(self._files.popitem()[1])

    __del__ = close

    def _open(self, *names: str) -> None:
        with explained(self.path):
            for name in names:
                try:
                    self._files[name] = os.open(self.path / name, os.O_RDWR | os.O_CREAT, 0o666)
                except OSError as error:
                    if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                        raise
                    self._files[name] = os.open(self.path / name, os.O_RDONLY)
                    self.writable = False

    def _put(self, first: int, values: npt.NDArray[Any], keys: Sequence[bytes]) -> None:
        """Write rows from ``first`` on, wait until they are on the disk, and only then mark them."""
        data = np.ascontiguousarray(values, dtype=self.dtype)
        assert data.shape == (len(keys), *self.row_shape)
        assert all(len(key) == KEY_BYTES for key in keys)
        if len(keys):
            raw = data.reshape(len(keys), -1).view(np.uint8)
            marks = b"".join(key + _digest(key, row) for key, row in zip(keys, raw, strict=True))
            with explained(self.path):
                write_all(self._files["rows"], raw.reshape(-1).data, first * self.row_bytes)
                os.fsync(self._files["rows"])
                write_all(self._files["marks"], memoryview(marks), first * _MARK_BYTES)

    def _check(
        self, rows: IntArray, values: npt.NDArray[np.uint8], places: IntArray
    ) -> npt.NDArray[np.bool_]:
        """Compare rows, whose bytes are in ``values[places]``, with the digests in their marks."""
        marks = np.empty((len(rows), _MARK_BYTES), np.uint8)
        read_rows(self._files["marks"], rows, marks)
        sound = np.empty(len(rows), dtype=bool)
        for i, (place, mark) in enumerate(zip(places, map(bytes, marks), strict=True)):
            sound[i] = _digest(mark[:KEY_BYTES], values[place]) == mark[KEY_BYTES:]
        self._sound[rows[sound]] = True
        self._damaged.difference_update(rows[sound].tolist())
        self._damaged.update(rows[~sound].tolist())
        if self._damaged and not self._told:
            self._told = True
            message = f"rows of the cache {self.path} are damaged and are made again"
            warnings.warn(message, UcdsWarning, stacklevel=4)
        return sound

    def _known_sound(self, rows: IntArray) -> npt.NDArray[np.bool_]:
        """Return for each row whether it was read and found sound before."""
        with self._thread_lock:
            beyond = int(rows.max(initial=-1)) + 1 - len(self._sound)
            if beyond > 0:
                self._sound = np.concatenate([self._sound, np.zeros(beyond + len(self._sound), dtype=bool)])
            return self._sound[rows]

    def _refresh(self) -> None:
        """Take note of the rows that were added since the last call, here or by other processes."""
        with self._thread_lock:
            end = len(self)  # once: rows that others add meanwhile are for the next call
            new = np.arange(self._scanned, end)
            marks = np.empty((len(new), _MARK_BYTES), np.uint8)
            read_rows(self._files["marks"], new, marks)
            self._known.add(marks[:, :KEY_BYTES], self._scanned)
            self._scanned = max(self._scanned, end)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other threads and processes out; the system frees the lock if the process dies."""
        with self._thread_lock:
            fcntl.flock(self._files["lock"], fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._files["lock"], fcntl.LOCK_UN)


def _name_of(layout: int, kind: str) -> str:
    return hashlib.sha256(f"{layout}|{kind}".encode()).hexdigest()[:32]


def _digest(key: bytes, row: npt.NDArray[np.uint8]) -> bytes:
    digest = hashlib.blake2b(key, digest_size=_DIGEST_BYTES)
    digest.update(row.data)
    return digest.digest()
