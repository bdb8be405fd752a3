"""Rows of equal size on disk, written once and read at random: decoded images, features.

A row is marked complete only after its bytes have reached the disk. A process may therefore be killed at any
moment, and several processes may fill the same store.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import platformdirs

from ucds.data.content import KEY_BYTES, IntArray
from ucds.errors import DamagedFileError, NoSpaceError, UserError

_LAYOUT = 1


def default_cache_dir() -> Path:
    """Return the user's cache folder for this package, as the operating system has it."""
    return Path(platformdirs.user_cache_dir("ucds"))


class RowStore:
    """A bounded, resumable file of equal rows, shared between runs and processes.

    Rows are found by the key of the content they were made from, whatever its name or position. A store is a
    folder with two files: ``rows``, the values one after the other, and ``marks``, the 16-byte key of each
    complete row. What lies beyond the last whole mark is written anew.

    Values are read with ``pread`` into the caller's memory: unlike the pages of a memory map they do not
    count as memory of the process.

    Args:
        folder: folder that holds all stores.
        key: name of the kind of rows; stores of different keys, shapes or types are apart.
        row_shape: shape of one row.
        dtype: type of the values.
        capacity: largest number of rows that the store may grow to.

    Raises:
        NoSpaceError: the folder cannot be written.
    """

    def __init__(
        self, folder: str | Path, key: str, row_shape: Sequence[int], dtype: npt.DTypeLike, capacity: int
    ) -> None:
        self._files: dict[str, int] = {}
        self.row_shape = tuple(row_shape)
        self.dtype = np.dtype(dtype)
        self.row_bytes = int(np.prod(self.row_shape, dtype=np.int64)) * self.dtype.itemsize
        self.capacity = capacity
        name = hashlib.sha256(f"{_LAYOUT}|{key}|{self.row_shape}|{self.dtype.str}".encode()).hexdigest()[:32]
        self.path = Path(folder) / name
        self._thread_lock = threading.RLock()
        self._known: dict[bytes, int] = {}
        self._scanned = 0
        with _explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._open("lock")
        with self._locked():
            self._open("rows", "marks")

    def __len__(self) -> int:
        """Return the number of complete rows."""
        return os.fstat(self._files["marks"]).st_size // KEY_BYTES

    def rows_of(self, keys: Sequence[bytes]) -> IntArray:
        """Return the row of each content key, -1 where there is none; other processes' rows are seen too."""
        self._refresh()
        return np.array([self._known.get(key, -1) for key in keys], dtype=np.int64)

    def append(self, keys: Sequence[bytes], values: npt.NDArray[Any]) -> IntArray:
        """Store values under their content keys, each content once.

        Args:
            keys: content keys of the values.
            values: ``(b, *row_shape)`` rows to store.

        Returns:
            ``(b,)`` row of each value, -1 where the store had no room left.

        Raises:
            NoSpaceError: the disk is full or fails.
        """
        with self._locked():
            self._refresh()
            fresh: dict[bytes, int] = {}
            for i, key in enumerate(keys):
                if key not in self._known:
                    fresh.setdefault(key, i)
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
            DamagedFileError: the file has been shortened, or the disk fails.
        """
        rows = np.asarray(rows, dtype=np.int64)
        if out is None:
            out = np.empty((len(rows), *self.row_shape), self.dtype)
        buffer = out.reshape(-1).view(np.uint8).data if out.size else memoryview(b"")
        start = 0
        with _explained(self.path, DamagedFileError):
            for run in np.split(
                rows, np.flatnonzero(np.diff(rows) != 1) + 1
            ):  # neighbouring rows in one call
                end = start + len(run) * self.row_bytes
                if len(run):
                    _read_all(self._files["rows"], buffer[start:end], int(run[0]) * self.row_bytes)
                start = end
        return out

    def clear(self) -> None:
        """Forget all rows. Processes that have the store open keep reading the old files."""
        with self._locked():
            for name in ("rows", "marks"):
                (self.path / name).unlink(missing_ok=True)
                os.close(self._files.pop(name))
            self._known, self._scanned = {}, 0
            self._open("rows", "marks")

    def close(self) -> None:
        """Close the files; the store cannot be used afterwards."""
        while self._files:
            os.close(self._files.popitem()[1])

    __del__ = close

    def _open(self, *names: str) -> None:
        with _explained(self.path):
            for name in names:
                self._files[name] = os.open(self.path / name, os.O_RDWR | os.O_CREAT, 0o666)

    def _put(self, first: int, values: npt.NDArray[Any], keys: Sequence[bytes]) -> None:
        """Write rows from ``first`` on, wait until they are on the disk, and only then mark them."""
        data = np.ascontiguousarray(values, dtype=self.dtype)
        assert data.shape == (len(keys), *self.row_shape)
        assert all(len(key) == KEY_BYTES for key in keys)
        if len(keys):
            with _explained(self.path):
                _write_all(self._files["rows"], data.reshape(-1).view(np.uint8).data, first * self.row_bytes)
                os.fsync(self._files["rows"])
                _write_all(self._files["marks"], memoryview(b"".join(keys)), first * KEY_BYTES)

    def _refresh(self) -> None:
        """Take note of the rows that were added since the last call, here or by other processes."""
        with self._thread_lock:
            marks = bytearray(max(0, len(self) - self._scanned) * KEY_BYTES)
            _read_all(self._files["marks"], memoryview(marks), self._scanned * KEY_BYTES)
            for offset in range(0, len(marks), KEY_BYTES):
                self._known.setdefault(bytes(marks[offset : offset + KEY_BYTES]), self._scanned)
                self._scanned += 1

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other threads and processes out; the system frees the lock if the process dies."""
        with self._thread_lock:
            fcntl.flock(self._files["lock"], fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._files["lock"], fcntl.LOCK_UN)


def _read_all(descriptor: int, buffer: memoryview, offset: int) -> None:
    position = 0
    while position < len(buffer):
        count = os.preadv(descriptor, [buffer[position:]], offset + position)
        if count == 0:
            raise OSError(0, "the file is shorter than it was")
        position += count


def _write_all(descriptor: int, data: memoryview, offset: int) -> None:
    position = 0
    while position < len(data):
        position += os.pwrite(descriptor, data[position:], offset + position)


@contextmanager
def _explained(path: Path, kind: type[UserError] = NoSpaceError) -> Iterator[None]:
    """Turn an error of the file system into one that names the cache and the remedy."""
    try:
        yield
    except OSError as error:
        message = f"The cache {path} cannot be used ({error.strerror}); free space or choose another folder."
        raise kind(message) from None
