"""Images inside tar files, as WebDataset writes them: found by their headers, read in place.

Nothing is unpacked, so no name in an archive ever becomes a path on the disk.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ucds.errors import InputError, one_line
from ucds.math.arrays import IntArray

SHARD_SUFFIX = ".tar"

_LONGEST_HEADER = 2**20
"""Bytes of one header with its long names; a real one has some hundreds."""


class Span(NamedTuple):
    """Place of an image inside a tar file.

    Attributes:
        archive: path of the tar file, relative to the same folder as the image's own path.
        offset: position of its first byte.
        length: number of its bytes.
    """

    archive: str
    offset: int
    length: int


@dataclass(frozen=True, eq=False)
class Spans:
    """Places of many images inside tar files; some of the images may be files of their own.

    Attributes:
        archives: paths of the tar files.
        archive: ``(n,)`` position of each image's tar file in ``archives``, -1 for a file of its own.
        offset: ``(n,)`` position of the first byte.
        length: ``(n,)`` number of bytes.
    """

    archives: tuple[str, ...]
    archive: IntArray
    offset: IntArray
    length: IntArray

    @classmethod
    def of(cls, spans: Sequence[Span | None]) -> Spans:
        """Gather places; ``None`` stands for a file of its own."""
        archives = tuple(dict.fromkeys(span.archive for span in spans if span is not None))
        number = {name: place for place, name in enumerate(archives)}
        rows = [(-1, 0, 0) if span is None else (number[span.archive], *span[1:]) for span in spans]
        archive, offset, length = np.array(rows, np.int64).reshape(-1, 3).T.copy()
        return cls(archives, archive, offset, length)

    def at(self, position: int) -> Span | None:
        """Return the place of an image; ``None`` for a file of its own."""
        if self.archive[position] < 0:
            return None
        archive = self.archives[self.archive[position]]
        return Span(archive, int(self.offset[position]), int(self.length[position]))

    def take(self, index: IntArray) -> Spans:
        """Choose images by position, in the order given."""
        return Spans(self.archives, self.archive[index], self.offset[index], self.length[index])


class _Headers(FileIO):
    """A file of which only headers are read: whoever asks for more at once has been given a wrong length."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read at most ``size`` bytes.

        Raises:
            tarfile.ReadError: more is wanted than any header has.
        """
        if size is None or not 0 <= size <= _LONGEST_HEADER:
            raise tarfile.ReadError("a header of more than 1 MiB")
        return super().read(size) or b""


def list_shard(root: Path, archive: str) -> dict[str, Span]:
    """Find the regular files of a tar file by their headers.

    Folders, links, devices and files with holes are left out: they hold no bytes of an image.

    Args:
        root: folder that the archive's path is relative to.
        archive: path of the tar file.

    Returns:
        Place of each file by its path: the archive's path, a slash, and the name inside.

    Raises:
        InputError: the file is compressed, damaged, cut off or no tar file, or a name occurs twice in it.
    """
    path = root / archive
    found: dict[str, Span] = {}
    if not path.is_file():  # opening a named pipe would wait for a writer for ever
        raise InputError(f"There is no file {path}.")
    try:
        size = path.stat().st_size
        with _Headers(path) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # millions of them would fill the memory
                if not member.isreg() or member.issparse():
                    continue
                name = f"{archive}/{member.name}"
                if name in found:
                    raise tarfile.ReadError(f"two files of the name {member.name!r}")
                if member.size < 0 or member.offset_data + member.size > size:
                    raise tarfile.ReadError("a length beyond the end of the file")
                found[name] = Span(archive, member.offset_data, member.size)
            # The library takes a damaged header for the end, which is marked by zeros or by nothing.
            if any(os.pread(file.fileno(), tarfile.BLOCKSIZE, tar.offset)):
                raise tarfile.ReadError("a damaged header")
    except (tarfile.TarError, ValueError, OverflowError, OSError) as error:
        raise InputError(f"{path} cannot be read as a tar file: {_reason(path, error)}") from None
    return found


def _reason(path: Path, error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if _is_compressed(path):
        return "it is compressed; unpack it to a plain .tar, which can be read at any place"
    return one_line(error, 120)


def _is_compressed(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            start = file.read(6)
    except OSError:
        return False
    return start.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd"))


def read_span(descriptor: int, span: Span) -> bytes:
    """Read the bytes of one image from an open tar file; fewer if the file has become shorter."""
    data = b""
    while part := os.pread(descriptor, span.length - len(data), span.offset + len(data)):
        data += part
    return data
