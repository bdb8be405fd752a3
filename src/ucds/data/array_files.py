"""Reads files of NumPy arrays, whatever is in them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np
import numpy.typing as npt

from ucds.errors import DamagedFileError, one_line

_ZIP_HEADER = 30  # bytes before the name of a file in an archive
_AT_A_TIME = 2**20


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of an archive by their names, or a single array under the name of its file.

    Arrays are mapped into memory, not loaded, unless an archive is compressed.

    Args:
        path: file in one of NumPy's formats, ``.npy`` or ``.npz``.

    Raises:
        OSError: the file cannot be opened.
        DamagedFileError: it is of another format, damaged, or holds Python objects.
    """
    with path.open("rb"):  # an error of the system says more than the library's
        pass
    try:
        opened = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(opened, np.ndarray):
            return {path.stem: opened}
        with opened:
            mapped = {name: _map_member(path, opened.zip, name) for name in opened.files}
            arrays = {name: opened[name] if array is None else array for name, array in mapped.items()}
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise ValueError("a file in the archive is not an array")
        return arrays
    except Exception as error:  # damaged bytes raise nearly anything: TokenError, zlib.error ..
        raise DamagedFileError(
            f"{path} is not a readable .npy or .npz file of numbers ({one_line(error, 160)})"
        ) from None


def _map_member(path: Path, archive: ZipFile, name: str) -> npt.NDArray[Any] | None:
    """Map an array of an archive into memory; ``None`` if it is compressed or cannot be mapped."""
    info = archive.NameToInfo.get(f"{name}.npy")
    if info is None or info.compress_type != ZIP_STORED:
        return None
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(member)
        elif version == (2, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(member)
        else:
            return None
        header = member.tell()
        if dtype.hasobject or 0 in shape:
            return None
        while member.read(_AT_A_TIME):  # to the end, where the checksum is compared
            pass
    if info.file_size != header + dtype.itemsize * int(np.prod(shape, dtype=np.int64)):
        raise ValueError("an array of the archive has another length than its header says")
    order: Any = "F" if fortran else "C"
    return np.memmap(path, dtype, "r", _begin_of(path, info) + header, shape, order)


def _begin_of(path: Path, info: ZipInfo) -> int:
    """Return the position of the first byte of an uncompressed file inside an archive."""
    with path.open("rb") as file:
        file.seek(info.header_offset)
        name, extra = struct.unpack("<HH", file.read(_ZIP_HEADER)[-4:])
    return info.header_offset + _ZIP_HEADER + int(name) + int(extra)
