"""Parts: rows of equal size on disk, each written once and renamed, in caches and in folders of features.

A part is two files: ``NAME.npy`` holds the rows, and ``NAME.part`` describes them: content keys, and digests
of the rows and of itself. The description is written last, so a part that has one is whole. Nothing is ever
changed in place: processes that are killed, or that write at the same time, lose nothing and damage nothing,
and no file is locked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ValidationError

from ucds.data.content import KEY_TYPE, Column, keys_of
from ucds.errors import DamagedFileError, InputError, first_problem
from ucds.files import read_sealed, write_atomically, write_sealed
from ucds.math.arrays import IntArray

DESCRIPTION = ".part"
_SEAL = "ucds-part/1"
_ROWS = ".npy"
_READ_AT_A_TIME = 2**24

Form = TypeVar("Form", bound="Described")


class Described(BaseModel):
    """Description of a part."""

    keys: str
    digest: str


class Part:
    """Rows of one part, mapped into memory for each reading by itself: they do not count as memory in use."""

    def __init__(self, path: Path, described: Described) -> None:
        self.path, self._digest = path, described.digest
        try:
            self.keys: Column[bytes] = Column(np.frombuffer(bytes.fromhex(described.keys), KEY_TYPE))
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
        return np.array(mapped[index])

    def check(self) -> None:
        """Make sure that the rows are as they were written; all of them are read.

        Raises:
            DamagedFileError: they are not.
        """
        try:
            with rows_file(self.path).open("rb") as file:
                file.seek(self._offset)
                found = _digest(iter(lambda: file.read(_READ_AT_A_TIME), b""))
        except OSError as error:
            raise DamagedFileError(f"{rows_file(self.path)} cannot be read ({error.strerror})") from None
        if found != self._digest:
            raise DamagedFileError(f"{rows_file(self.path)} is damaged: delete it, and make it again")


def rows_file(path: Path) -> Path:
    """Return the file of a part's rows; ``path`` has no suffix."""
    return path.with_suffix(_ROWS)


def remove_part(path: Path) -> None:
    """Remove a part; a process that reads it meanwhile finds it damaged."""
    for file in (path.with_suffix(DESCRIPTION), rows_file(path)):
        file.unlink(missing_ok=True)


def describe_rows(keys: Sequence[bytes], rows: npt.NDArray[Any]) -> dict[str, str]:
    """Return the entries of the description of rows ``(n, ...)`` with their content keys."""
    return {"keys": keys_of(keys).array.tobytes().hex(), "digest": _digest([_bytes_of(rows)])}


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
        return form.model_validate_json(read_sealed(path, _SEAL))
    except FileNotFoundError:
        raise InputError(f"there is no part {path}") from None
    except ValidationError as error:
        raise DamagedFileError(f"{path} is not a usable part: {first_problem(error)}") from None


def _bytes_of(rows: npt.NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data


def _digest(pieces: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


class Rows:
    """Rows of several parts or arrays, one after the other; a type is brought about when they are read."""

    def __init__(self, parts: Sequence[Part | npt.NDArray[Any]], dtype: npt.DTypeLike) -> None:
        self.parts, self._dtype = list(parts), np.dtype(dtype)
        self._ends = np.cumsum([len(part) for part in self.parts], dtype=np.int64)
        self.shape = (int(self._ends[-1]), *self.parts[0].shape[1:])

    def __len__(self) -> int:
        return int(self.shape[0])

    def take(self, index: IntArray) -> npt.NDArray[Any]:
        """Return a copy of the rows at positions ``index``."""
        out = np.empty((len(index), *self.shape[1:]), self._dtype)
        with np.errstate(over="ignore"):  # what is too large for the type becomes infinity
            for number, here, rows in self.places(index):
                out[here] = self.parts[number][rows]
        return out

    def places(self, index: IntArray) -> list[tuple[int, IntArray, IntArray]]:
        """Return each part that rows lie in, with their positions in ``index`` and in the part."""
        index = np.asarray(index, np.int64)
        of_part = np.searchsorted(self._ends, index, side="right")
        found = []
        for number in np.unique(of_part).tolist():
            here = np.flatnonzero(of_part == number)
            found.append((number, here, index[here] - self._ends[number] + len(self.parts[number])))
        return found
