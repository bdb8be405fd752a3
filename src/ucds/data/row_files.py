"""Reads and writes rows of one length in an open file, at any place, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ucds.errors import NoSpaceError, UserError
from ucds.math.arrays import IntArray


def read_rows(descriptor: int, rows: IntArray, out: npt.NDArray[np.uint8]) -> None:
    """Read rows into ``(b, bytes of a row)``, neighbours in one call; what the file lacks is zero."""
    start = 0
    for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1):
        if len(run):
            part = out[start : start + len(run)].reshape(-1)
            part[_read_into(descriptor, part.data, int(run[0]) * out.shape[1]) :] = 0
        start += len(run)


def _read_into(descriptor: int, buffer: memoryview, offset: int) -> int:
    """Fill a buffer from a place in a file, and return the number of bytes that the file had."""
    position = 0
    while position < len(buffer):
        count = os.preadv(descriptor, [buffer[position:]], offset + position)
        if count == 0:
            break
        position += count
    return position


def write_all(descriptor: int, data: memoryview, offset: int) -> None:
    """Write all bytes of ``data`` at a place in a file."""
    position = 0
    while position < len(data):
        position += os.pwrite(descriptor, data[position:], offset + position)


@contextmanager
def explained(path: Path, kind: type[UserError] = NoSpaceError) -> Iterator[None]:
    """Turn an error of the file system into one that names the cache and the remedy."""
    try:
        yield
    except OSError as error:
        message = f"The cache {path} cannot be used ({error.strerror}); free space or choose another folder."
        raise kind(message) from None
