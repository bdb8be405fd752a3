"""Reads the bytes of image files: files of their own, or places inside tar files, as WebDataset writes them.

Nothing is unpacked, so no name in an archive ever becomes a path on the disk.
"""

from __future__ import annotations

import os
import stat
import tarfile
from pathlib import Path
from typing import NamedTuple

from ucds.data.decode import UnusableImageError
from ucds.errors import InputError, one_line

TAR_SUFFIX = ".tar"
MAX_FILE_BYTES = 256 * 2**20
Stamp = tuple[int, int, int]


class Span(NamedTuple):
    """Place of an image inside a tar file."""

    archive: str
    offset: int
    length: int


def list_tar(root: Path, archive: str) -> dict[str, Span]:
    """Find the regular files of a tar file by their headers.

    Folders, links, devices and files with holes are left out: they hold no bytes of an image.
    """
    path = root / archive
    found: dict[str, Span] = {}
    if not path.is_file():  # opening a named pipe would wait for a writer for ever
        raise InputError(f"There is no file {path}.")
    try:
        size = path.stat().st_size
        with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
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
        reason = f"{one_line(error, 120)}; a compressed one has to be unpacked to a plain .tar"
        raise InputError(f"{path} cannot be read as a tar file: {reason}") from None
    return found


def read_image_bytes(path: str | Path, span: Span | None = None) -> bytes:
    """Read the contents of a regular file of an acceptable length, or of a part of one.

    Args:
        path: file to read.
        span: place of the image in the file, if that is an archive; the whole file if ``None``.

    Raises:
        UnusableImageError: the file is missing, unreadable, not a regular one or shorter than the span; or
            the image is empty or larger than 256 MiB.
    """
    try:
        # Non-blocking: opening a named pipe would otherwise wait for a writer for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UnusableImageError(path, "not a regular file")
            length = status.st_size if span is None else span.length
            if length == 0:
                raise UnusableImageError(path, "empty file")
            if length > MAX_FILE_BYTES:
                raise UnusableImageError(path, f"too large a file (over {MAX_FILE_BYTES // 2**20} MiB)")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                if span is None:
                    return file.read()
                file.seek(span.offset)
                if len(data := file.read(length)) < length:
                    raise UnusableImageError(path, "the archive is cut off")
                return data
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UnusableImageError(path, f"cannot be read ({error.strerror})") from None


def stamp(path: str | Path) -> Stamp | None:
    """Return the length in bytes and the times in nanoseconds of a file, ``None`` if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116  (strings: much faster than paths on many files)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns
