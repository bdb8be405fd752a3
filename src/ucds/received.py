"""Opens files that may come from somebody else: in run folders and features folders, labels, answers, names.

What others hand over can hold links to any file of the receiver, pipes that never answer, and files that
claim more than they hold. So no link is followed below the folder that the user names, nothing but a regular
file is opened, and its size is compared with what lies on the disk before it is read.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal

from ucds.errors import DamagedFileError, brief

MOST_TEXT, MOST_ENTRIES = 2**28, 6 * 2**20
"""Most bytes and entries of a JSON text that is read: enough for the labels of two million samples."""

Mode = Literal["rb", "r+b", "a+b"]

# Not every system has each of these flags. Without O_NONBLOCK, a pipe would wait for a writer.
_NO_LINK, _NO_WAIT = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_NONBLOCK", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_PATH", os.O_RDONLY)
_MAY_BE_HOLLOW = 2**26  # bytes
_LONGEST_HEADER = 2**24  # bytes of a safetensors file: names and shapes of a hundred thousand tensors


def open_inside(folder: Path, name: str, mode: Mode = "rb") -> IO[bytes]:
    """Open a regular file by its path below a folder that the user named; the folder may be a link.

    A writing mode makes the file, which only its owner may read.

    Raises:
        OSError: there is no such file, or it cannot be opened.
        DamagedFileError: the file is a link or not regular, lies outside the folder, or is mostly holes.
    """
    parts = PurePosixPath(name).parts
    if not parts or "\0" in name or {"/", "//", ".."} & set(parts):
        raise DamagedFileError(f"{brief(name)} names no file inside {folder}")
    return open(folder / name, mode, opener=partial(_descriptor, folder, parts))


def open_received(path: Path, mode: Mode = "rb", *, follow: bool = False) -> IO[bytes]:
    """Open a file in a folder that the user named; with ``follow``, the file itself may be a link."""
    place = path.resolve() if follow else path
    return open_inside(place.parent, place.name, mode)


def read_text(path: Path) -> bytes:
    """Read a JSON text in a folder that the user named; see :func:`open_inside` and :func:`require_few`."""
    with open_received(path) as file:
        if os.fstat(file.fileno()).st_size > MOST_TEXT:
            raise DamagedFileError(f"{path} is too large to be read (over {MOST_TEXT / 1e6:,.0f} MB)")
        return require_few(file.read(), path)


def read_tensors(path: Path, framework: Literal["np", "pt"]) -> tuple[dict[str, Any], Mapping[str, str]]:
    """Read a safetensors file: its arrays, or PyTorch's tensors, by name, and the texts beside them.

    Raises:
        OSError: it cannot be opened.
        SafetensorError: it is of another format, or damaged.
        DamagedFileError: it is a link.
    """
    from safetensors import SafetensorError, safe_open

    with open_received(path) as file:
        if int.from_bytes(file.read(8), "little") > _LONGEST_HEADER:
            raise SafetensorError("its header is too long")
    with safe_open(path, framework) as opened:  # it compares the sizes of all tensors with the file's
        try:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        except TypeError as error:  # a type that NumPy does not have
            raise SafetensorError(str(error)) from None
        return tensors, opened.metadata() or {}


def require_few(text: bytes, what: object) -> bytes:
    """Return JSON unless it has too many entries: in memory, one may take a hundred times its length."""
    if text.count(b",") + text.count(b"[") + 2 * text.count(b"{") > MOST_ENTRIES:
        raise DamagedFileError(f"{what} is too large to be read (over {MOST_ENTRIES:,} entries)")
    return text


def _descriptor(folder: Path, parts: Sequence[str], path: str, flags: int) -> int:
    """Open a file of a folder with the flags of ``open``, and refuse anything but an ordinary file."""
    writes = flags & os.O_RDWR
    open_part = _open_from_folder_to_folder if os.open in os.supports_dir_fd else _open_after_looking
    try:
        found = open_part(folder, parts, flags | _NO_LINK | _NO_WAIT | (os.O_CREAT if writes else 0))
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise _refusal(path) from None
        raise OSError(error.errno, error.strerror, path) from None
    status = os.fstat(found)
    shared = writes and status.st_nlink > 1  # with a file elsewhere, which would be written too
    if not stat.S_ISREG(status.st_mode) or shared or _is_hollow(found, status):
        os.close(found)
        raise _refusal(path)
    if sys.platform != "win32" and writes and status.st_mode & 0o777 != 0o600:
        os.fchmod(found, 0o600)
    return found


def _open_from_folder_to_folder(folder: Path, parts: Sequence[str], flags: int) -> int:
    """Open a path folder by folder, so that no link is followed, not even one that is made meanwhile."""
    within = os.open(folder, _FOLDER)
    try:
        for part in parts[:-1]:
            above, within = within, os.open(part, _FOLDER | _NO_LINK, dir_fd=within)
            os.close(above)
        return os.open(parts[-1], flags, 0o600, dir_fd=within)
    finally:
        os.close(within)


def _open_after_looking(folder: Path, parts: Sequence[str], flags: int) -> int:
    """Open a path where folders cannot be opened (Windows); a link that is made meanwhile is followed."""
    path = folder
    for part in parts:
        path /= part
        is_there = os.path.lexists(path)
        if is_there and not (path.exists() and os.path.samestat(path.lstat(), path.stat())):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return os.open(path, flags, 0o600)


def _is_hollow(handle: int, status: os.stat_result) -> bool:
    """Return whether a large file is mostly holes, which take no disk space but much memory when read."""
    if sys.platform == "win32":
        return False
    if status.st_size < _MAY_BE_HOLLOW or 1024 * status.st_blocks > status.st_size:
        return False
    hole = os.lseek(handle, 0, os.SEEK_HOLE)  # few blocks may also mean compression, or a server of files
    os.lseek(handle, 0, os.SEEK_SET)
    return hole < status.st_size


def _refusal(path: str) -> DamagedFileError:
    kind = (
        "a link" if Path(path).is_symlink() else "a folder" if Path(path).is_dir() else "hollow or not a file"
    )
    return DamagedFileError(f"{path} is {kind}, and is not opened: put an ordinary file in its place")
