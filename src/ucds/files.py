"""Writes files so that nobody ever sees half of one, and computes digests of their contents."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ucds.errors import NoSpaceError

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the errors of a full disk or an unwritable folder into one that names ``path``.

    Raises:
        NoSpaceError: the code in the block could not write for such a reason.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _UNWRITABLE:
            raise NoSpaceError(f"cannot write {path}: {error.strerror}") from None
        raise


def write_atomically(path: Path, write: Callable[[IO[bytes]], object], *, keep: Path | None = None) -> None:
    """Write a file so that a crash leaves the old one or the new one, never half of either.

    Args:
        path: file to write; its folder is made if it does not exist.
        write: writes the content into the open file that it is given.
        keep: path at which the file that is replaced stays; it is lost if ``None``.

    Raises:
        NoSpaceError: the disk is full, or the folder is not writable.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            umask = os.umask(0)
            os.umask(umask)
            Path(temporary).chmod(0o666 & ~umask)
            if keep is not None and path.exists():
                path.replace(keep)
            Path(temporary).replace(path)
        finally:
            Path(temporary).unlink(missing_ok=True)


def write_text_atomically(path: Path, text: str) -> None:
    """Write text in UTF-8, all of it or none; see :func:`write_atomically`."""
    write_atomically(path, lambda file: file.write(text.encode()))


def append_line(path: Path, line: str) -> None:
    """Add a line to a file, which is made if it does not exist; the line is on disk when this returns.

    Writers follow one another. An end without a line feed, which a crash left, is removed first.

    Args:
        path: file to write.
        line: line without its line feed.

    Raises:
        NoSpaceError: the disk is full, or the file is not writable.
    """
    with writing(path), path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        whole = size = file.seek(0, os.SEEK_END)
        while whole and os.pread(file.fileno(), 1, whole - 1) != b"\n":
            whole -= 1
        if whole < size:
            file.truncate(whole)
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def digest_of(*parts: bytes | memoryview) -> str:
    """Compute the SHA-256 of some bytes, one part after the other, in hexadecimal."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
