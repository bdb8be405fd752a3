"""Parts: rows of equal size on disk, in folders of features and in stores that find rows by content.

A part is two files: ``NAME.npy`` holds the rows, and ``NAME.part`` describes them: content keys, and digests
of the rows and of itself. The description is written last, so a part that has one is whole. Files are never
changed in place. So processes that are killed, or that write at the same time, lose and damage nothing,
without locks.

A store is a folder of parts, which runs and processes share: each adds its own parts. If several rows have
one key, the oldest counts, so that a resumed run reads the same rows as before.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ValidationError

from ucds.data.content import KEY_BYTES, KEY_TYPE, Column, content_key, first_positions, keys_of
from ucds.errors import DamagedFileError, InputError, NoSpaceError, first_problem
from ucds.files import read_sealed, write_atomically, write_sealed
from ucds.math.arrays import IntArray
from ucds.received import open_received, require_few

DESCRIPTION = ".part"
_SEAL = "ucds-part/1"
_ROWS = ".npy"
_LINE_BYTES = 64  # of a processor's cache
_LOCKED = (errno.EACCES, errno.EPERM, errno.EROFS)
_PART_BYTES = 2**25
_PART_SECONDS = 30.0  # of work, at most, that a kill can lose
_ABANDONED_SECONDS = 86400.0

Form = TypeVar("Form", bound="Described")


class Described(BaseModel):
    """Description of a part."""

    keys: str
    digest: str


class Part:
    """Rows of one part, mapped into memory anew for each reading, and never counted as memory in use."""

    def __init__(self, path: Path, described: Described) -> None:
        self.path, self._digest = path, described.digest
        self._sound, self.lost = False, False  # what a check has found, and a reading
        try:
            self.keys: Column[bytes] = Column(np.frombuffer(bytes.fromhex(described.keys), KEY_TYPE))
            with open_received(rows_file(path)):
                mapped = np.load(rows_file(path), mmap_mode="r")
            self.shape, self.dtype, self._offset = mapped.shape, mapped.dtype, mapped.offset
        except Exception as error:  # damaged bytes raise nearly anything
            raise DamagedFileError(f"{rows_file(path)} cannot be read ({error})") from None
        if len(mapped) != len(self.keys):
            raise DamagedFileError(f"{rows_file(path)} does not fit its description")

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: IntArray) -> npt.NDArray[Any]:
        """Return a copy of some rows."""
        try:
            mapped = np.memmap(rows_file(self.path), self.dtype, "r", self._offset, self.shape)
        except (OSError, ValueError) as error:
            raise DamagedFileError(f"{rows_file(self.path)} cannot be read ({error})") from None
        return np.asarray(mapped[index])  # a copy, as an array of positions gives one

    def check(self) -> None:
        """Make sure that the rows are as they were written; the first call reads all of them."""
        if self._sound:
            return
        try:
            with open_received(rows_file(self.path)) as file:
                file.seek(self._offset)
                digest = hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=KEY_BYTES))  # type: ignore[arg-type]
                found = digest.hexdigest()
        except OSError as error:
            raise DamagedFileError(f"{rows_file(self.path)} cannot be read ({error.strerror})") from None
        if found != self._digest:
            raise DamagedFileError(f"{rows_file(self.path)} is damaged: delete it, and make it again")
        self._sound = True


def rows_file(path: Path) -> Path:
    """Return the file of a part's rows; ``path`` has no suffix."""
    return path.with_suffix(_ROWS)


def remove_part(path: Path) -> None:
    """Remove a part; a process that is reading it will find it damaged."""
    for file in (path.with_suffix(DESCRIPTION), rows_file(path)):
        file.unlink(missing_ok=True)


def describe_rows(keys: Sequence[bytes], rows: npt.NDArray[Any]) -> dict[str, str]:
    """Return the entries of the description of rows ``(n, ...)`` with their content keys."""
    return {"keys": keys_of(keys).array.tobytes().hex(), "digest": content_key(_bytes_of(rows)).hex()}


def write_part(path: Path, rows: npt.NDArray[Any], described: Described) -> None:
    """Write a part, all of it or none."""
    data = np.ascontiguousarray(rows)

    def write(file: Any) -> None:  # numpy.save says nothing of the reason where the disk is full
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(data))
        file.write(_bytes_of(data))

    write_atomically(rows_file(path), write)
    write_sealed(path.with_suffix(DESCRIPTION), _SEAL, described.model_dump_json().encode())


def read_description(path: Path, form: type[Form]) -> Form:
    """Read the description of a part; ``path`` has no suffix."""
    path = path.with_suffix(DESCRIPTION)
    try:
        return form.model_validate_json(require_few(read_sealed(path, _SEAL), path))
    except FileNotFoundError:
        raise InputError(f"there is no part {path}") from None
    except ValidationError as error:
        raise DamagedFileError(f"{path} is not a usable part: {first_problem(error)}") from None


def _bytes_of(rows: npt.NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data


def _empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Make an array whose memory begins at a multiple of 64 bytes, like PyTorch's.

    NumPy's begins at any multiple of 16. Libraries of linear algebra do not promise equal last bits of a
    product at different addresses, so equal runs could differ.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + _LINE_BYTES, np.uint8)
    start = -memory.ctypes.data % _LINE_BYTES
    return memory[start : start + size].view(dtype).reshape(shape)


class Rows:
    """Rows of several parts or arrays, one after the other; they get one type when they are read."""

    def __init__(self, parts: Sequence[Part | npt.NDArray[Any]], dtype: npt.DTypeLike) -> None:
        self.parts, self._dtype = list(parts), np.dtype(dtype)
        self._ends = np.cumsum([len(part) for part in self.parts], dtype=np.int64)
        self.shape = (int(self._ends[-1]), *self.parts[0].shape[1:])

    def __len__(self) -> int:
        return int(self.shape[0])

    def take(self, index: IntArray) -> npt.NDArray[Any]:
        """Return a copy of the rows at positions ``index``."""
        out = _empty((len(index), *self.shape[1:]), self._dtype)
        with np.errstate(over="ignore"):  # what is too large for the type becomes infinity
            for number, here, rows in self.places(index):
                out[here] = self.parts[number][rows]
        return out

    def places(self, index: IntArray) -> list[tuple[int, IntArray, IntArray]]:
        """Return each part that holds wanted rows, with their positions in ``index`` and in the part."""
        index = np.asarray(index, np.int64)
        of_part = np.searchsorted(self._ends, index, side="right")
        found = []
        for number in np.unique(of_part).tolist():
            here = np.flatnonzero(of_part == number)
            found.append((number, here, index[here] - self._ends[number] + len(self.parts[number])))
        return found


class PartStore:
    """Rows of one shape and type, found by the key of the content from which they were made.

    A part is checked as a whole when a process first reads from it; a damaged one is removed, and its rows
    are made again by the next run.

    Stores of rows of different kinds, shapes or types are apart in a folder.

    Attributes:
        path: folder of the store.
        writable: whether parts can be added to the folder.
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
        self._keys, self._rows, self._stale = np.empty(0, KEY_TYPE), np.empty(0, np.int64), False
        self._sweep()
        self.refresh()

    def __len__(self) -> int:
        """Return the number of rows seen so far; a row that is in several parts counts several times."""
        return sum(len(part) for part in self._parts if not part.lost)

    def refresh(self) -> None:
        """Find the parts that other processes have added."""
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
        """Return the row of each content key; -1 for a key without a row."""
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
        """Gather rows into parts of some megabytes, or of half a minute's work; a kill may lose one part.

        After an interruption, the gathered rows are still written; after a disk error, they are not.
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
        """Write rows, each content once, except those that other processes have added."""
        if not keys:
            return
        self.refresh()
        first = first_positions(keys)
        new = first[self.rows_of(keys)[first] < 0]
        if len(new):
            self.add([keys[i] for i in new], np.concatenate(values)[new])

    def read(self, rows: IntArray) -> npt.NDArray[Any]:
        """Read existing rows ``(b, *row_shape)``, in the order of ``rows``."""
        values = _empty((len(rows), *self.row_shape), self.dtype)
        for number, here, places in Rows(self._parts, self.dtype).places(rows) if len(rows) else ():
            part = self._parts[number]
            try:
                part.check()
                values[here] = part[places]
            except DamagedFileError:
                self._lose(part)
                reason = f"rows of the cache {self.path} are damaged or gone"
                raise DamagedFileError(f"{reason}: run again to make them anew") from None
        return values

    def make_room(self, rows: int, capacity: int, keep: Column[bytes]) -> None:
        """Remove parts that hold no key to keep, the oldest first, until ``rows`` more rows fit."""
        for part in self._parts:
            if len(self) + rows <= capacity:
                break
            if not part.lost and not np.isin(part.keys.array, keep.array).any():
                self._lose(part)

    def _lose(self, part: Part) -> None:
        """Forget a part, and remove it."""
        with self._lock:
            part.lost = self._stale = True
            self._remove(part.path)

    def _remove(self, path: Path) -> None:
        if self.writable:
            with suppress(OSError):
                remove_part(path)

    def _index(self) -> None:
        """Sort the keys of all parts; among equal keys, the first counts."""
        if not self._parts:
            return
        keys = np.concatenate([part.keys.array for part in self._parts])
        alive = [np.full(len(part), not part.lost) for part in self._parts]
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
