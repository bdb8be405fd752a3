"""Rows of equal size on disk, written once and read at random: decoded images, features.

A row is marked complete only after its bytes have reached the disk, so that a process may be killed at
any moment, and several may fill the same store.
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
from ucds.errors import InputError

_LAYOUT = 1


def default_cache_dir() -> Path:
    """The user's cache folder for this package, by the custom of the operating system."""
    return Path(platformdirs.user_cache_dir("ucds"))


class RowStore:
    """A bounded, resumable file of equal rows, shared between runs and processes.

    Rows are found by the key of the content they were made from, whatever its name or position. Two
    files lie in a folder of their own: `rows`, the values one after the other, and `marks`, the
    16-byte key of each complete row. What lies beyond the last whole mark is written anew.

    Values are read with `pread` into memory of the caller's: unlike the pages of a memory map they
    do not count as memory of the process.

    Args:
        folder: where stores lie.
        key: what the rows are; stores of different keys, shapes or types are apart.
        row_shape: shape of one row.
        dtype: type of the values.
        capacity: largest number of rows this store may grow to.

    Raises:
        UserError: the folder cannot be written.
    """

    def __init__(
        self, folder: str | Path, key: str, row_shape: Sequence[int], dtype: npt.DTypeLike, capacity: int
    ) -> None:
        self.row_shape = tuple(row_shape)
        self.dtype = np.dtype(dtype)
        self.row_bytes = int(np.prod(self.row_shape, dtype=np.int64)) * self.dtype.itemsize
        self.capacity = capacity
        name = hashlib.sha256(f"{_LAYOUT}|{key}|{self.row_shape}|{self.dtype.str}".encode()).hexdigest()[:32]
        self.path = Path(folder) / name
        self._thread_lock = threading.RLock()
        self._descriptors: list[int] = []
        self._known: dict[bytes, int] = {}
        self._scanned = 0
        with _in_words(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock_file = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        with self._locked():
            self._open()

    def __len__(self) -> int:
        """The number of complete rows."""
        return os.fstat(self._marks).st_size // KEY_BYTES

    def rows_of(self, keys: Sequence[bytes]) -> IntArray:
        """The row of each content key, -1 where there is none yet; sees other processes' rows too."""
        self._refresh()
        return np.array([self._known.get(key, -1) for key in keys], dtype=np.int64)

    def append(self, keys: Sequence[bytes], values: npt.NDArray[Any]) -> IntArray:
        """Store `values` `(b, *row_shape)` under their content keys, each content once.

        Returns:
            `(b,)` the row of each, -1 where the store had no room left.

        Raises:
            UserError: the disk is full or fails.
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
        """The values of complete rows, in the order given: `(b, *row_shape)`.

        Args:
            rows: `(b,)` rows.
            out: memory to read into, contiguous; allocated when omitted.

        Raises:
            UserError: the file has been shortened or fails.
        """
        rows = np.asarray(rows, dtype=np.int64)
        if out is None:
            out = np.empty((len(rows), *self.row_shape), self.dtype)
        buffer = out.reshape(-1).view(np.uint8).data if out.size else memoryview(b"")
        # Neighbouring rows are read in one call.
        breaks = np.flatnonzero(np.diff(rows) != 1) + 1
        starts, ends = [0, *breaks.tolist()], [*breaks.tolist(), len(rows)]
        with _in_words(self.path):
            for start, end in zip(starts, ends, strict=True):
                if end > start:
                    part = buffer[start * self.row_bytes : end * self.row_bytes]
                    _read_all(self._rows, part, int(rows[start]) * self.row_bytes)
        return out

    def clear(self) -> None:
        """Forget all rows. Processes that have the store open keep reading the old files."""
        with self._locked():
            for name in ("marks", "rows"):
                (self.path / name).unlink(missing_ok=True)
            self._known, self._scanned = {}, 0
            self._open()

    def close(self) -> None:
        """Give the files back; the store cannot be used afterwards."""
        for descriptor in (*self._descriptors, self._lock_file):
            os.close(descriptor)
        self._descriptors, self._lock_file = [], -1

    def __del__(self) -> None:
        if getattr(self, "_lock_file", -1) >= 0:
            self.close()

    def _open(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []
        with _in_words(self.path):
            for name in ("rows", "marks"):
                self._descriptors.append(os.open(self.path / name, os.O_RDWR | os.O_CREAT, 0o666))

    @property
    def _rows(self) -> int:
        return self._descriptors[0]

    @property
    def _marks(self) -> int:
        return self._descriptors[1]

    def _put(self, first: int, values: npt.NDArray[Any], keys: Sequence[bytes]) -> None:
        """Write rows from `first` on, wait until they are on the disk, and only then mark them."""
        data = np.ascontiguousarray(values, dtype=self.dtype)
        assert data.shape == (len(keys), *self.row_shape)
        assert all(len(key) == KEY_BYTES for key in keys)
        if len(keys):
            with _in_words(self.path):
                _write_all(self._rows, data.reshape(-1).view(np.uint8).data, first * self.row_bytes)
                os.fsync(self._rows)
                _write_all(self._marks, memoryview(b"".join(keys)), first * KEY_BYTES)

    def _read_marks(self, first: int = 0) -> bytearray:
        data = bytearray(max(0, len(self) - first) * KEY_BYTES)
        _read_all(self._marks, memoryview(data), first * KEY_BYTES)
        return data

    def _refresh(self) -> None:
        """Learn of the rows that were added since the last look, here or by other processes."""
        with self._thread_lock:
            marks = bytes(self._read_marks(self._scanned))
            for offset in range(0, len(marks), KEY_BYTES):
                row = self._scanned + offset // KEY_BYTES
                self._known.setdefault(marks[offset : offset + KEY_BYTES], row)
            self._scanned += len(marks) // KEY_BYTES

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone among threads and processes; the system lets go of the lock if the process dies."""
        with self._thread_lock:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._lock_file, fcntl.LOCK_UN)


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
def _in_words(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"The cache {path} cannot be used ({error.strerror}); free space or choose another folder."
        raise InputError(message) from None
