"""Writes files so that nobody ever sees half of one, and computes digests of their contents."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from ucds.errors import DamagedFileError, InputError, NoSpaceError, first_problem

if TYPE_CHECKING:
    from pydantic import BaseModel

Form = TypeVar("Form", bound="BaseModel")

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LOCKED = (errno.EROFS, errno.EACCES, errno.EPERM)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TEMPORARY = ".ucds-tmp"
_STALE_SECONDS = 86400.0


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the errors of the system into ones that name ``path`` and not a temporary file.

    Raises:
        NoSpaceError: the code in the block could not write, because the disk is full or the place is locked.
        OSError: it could not write for another reason.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            remedy = "free some space, then run the same command again, a training with --resume"
        elif error.errno in _LOCKED:
            remedy = "choose a place that you may write to"
        else:
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise NoSpaceError(f"cannot write {path}: {error.strerror}; {remedy}") from None


def require_space(folder: Path, needed: int, remedy: str) -> None:
    """Make sure, before long work, that the disk of a folder has room for so many bytes.

    The folder need not exist yet. The remedy is further advice, to follow the words "free some space".

    Raises:
        NoSpaceError: less is free.
    """
    place = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(place).free
    if free < needed:
        raise NoSpaceError(
            f"{folder} needs about {needed / 1e9:.2g} GB, and {free / 1e9:.2g} GB are free: "
            f"free some space, {remedy}"
        )


def require_writable(path: Path) -> None:
    """Make sure, before any work, that a file can be written.

    Raises:
        InputError: the path is a folder, or lies below a file.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder: name the file to write")
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if not above.is_dir():
        raise InputError(f"{path} cannot be written: {above} exists, and is a file")


def refuse_inside(out: Path, inputs: Path) -> None:
    """Make sure that a folder of results is not below the folder of the inputs, where it would become input.

    Raises:
        InputError: it is.
    """
    if inputs.is_dir() and out.resolve().is_relative_to(inputs.resolve()):
        raise InputError(f"{out} lies inside {inputs}, whose images are read: choose a place beside it")


def make_private(folder: Path) -> None:
    """Make a folder that its owner alone may enter; one that exists stays as it is."""
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def making(folder: Path) -> Iterator[Path]:
    """Give a temporary folder to fill; it becomes ``folder``, or is removed if the block fails.

    The ``folder`` itself is absent or empty until then.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        yield partial
        partial.replace(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def sweep(folder: Path, *, older_than: float = 0.0) -> None:
    """Remove the temporary files of a least age in seconds that killed processes left in a folder."""
    for path in folder.glob(f".*{_TEMPORARY}"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime >= older_than:
                path.unlink()


def open_private(path: Path, flags: int) -> int:
    """Open a file that its owner alone may read, under any umask and whatever its mode was before."""
    handle = os.open(path, flags, 0o600)
    if os.fstat(handle).st_mode & 0o777 != 0o600:
        os.fchmod(handle, 0o600)
    return handle


def write_atomically(path: Path, write: Callable[[IO[bytes]], object], *, is_private: bool = False) -> None:
    """Write a file so that a crash leaves the old one or the new one, never half of either.

    Args:
        path: file to write; its folder is made if it does not exist.
        write: writes the content into the open file that it is given.
        is_private: whether its owner alone may read the file.

    Raises:
        NoSpaceError: the disk is full, or the folder is not writable.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent, older_than=_STALE_SECONDS)
        temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}{_TEMPORARY}"
        # Made by its name, so that the system takes the umask into account: a program can only learn the
        # umask by changing it, for all of its threads.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        handle = open_private(temporary, flags) if is_private else os.open(temporary, flags, 0o666)
        try:
            with os.fdopen(handle, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def write_text_atomically(path: Path, text: str) -> None:
    """Write text in UTF-8, all of it or none; see :func:`write_atomically`."""
    write_atomically(path, lambda file: file.write(text.encode()))


def write_sealed(path: Path, seal: str, content: bytes | memoryview) -> None:
    """Write a file that tells later whether it is whole: a line with its seal and SHA-256, then the content.

    The seal is the name of the kind of file, without blanks; otherwise like :func:`write_atomically`.
    """
    head = f"{seal} {digest_of(content)}\n".encode()
    write_atomically(path, lambda file: file.writelines((head, content)))


def read_sealed(path: Path, seal: str) -> bytes:
    """Read a file that :func:`write_sealed` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedFileError: it cannot be read, or is not as it was written.
    """
    try:
        head, _, content = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read ({error.strerror})") from None
    if head != f"{seal} {digest_of(content)}".encode():
        raise DamagedFileError(f"{path} is damaged (its digest does not match)")
    return content


def read_json(path: str | Path, form: type[Form], what: str) -> Form:
    """Read a JSON file whose form is known; ``what`` is its kind in messages, such as "label file".

    A byte order mark at its beginning is left out.

    Raises:
        InputError: the file cannot be read.
        DamagedFileError: the content has another form.
    """
    from pydantic import ValidationError  # here, because most commands read no such file

    try:
        return form.model_validate_json(Path(path).read_bytes().removeprefix(_BYTE_ORDER_MARK))
    except OSError as error:
        raise InputError(f"cannot read the {what} {path}: {error.strerror}") from None
    except ValidationError as error:
        raise DamagedFileError(f"{path} is not a usable {what}: {first_problem(error)}") from None


def read_object(path: Path) -> dict[str, Any] | None:
    """Read a JSON object that a run may hold; ``None`` if there is no such file.

    Raises:
        DamagedFileError: the file holds something else; what it says can be done without.
    """
    if not path.exists():
        return None
    try:
        content = parse_json(path.read_bytes())
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict):
        raise DamagedFileError(f"{path} is damaged: delete it, to do without what it says")
    return content


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Read a TOML file; ``what`` is its kind in messages, such as "configuration".

    Raises:
        InputError: the file cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"cannot read the {what} {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # arrays may be nested too deeply for the parser
        raise InputError(f"{path} is not TOML: {error}") from None


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; a ValueError says that the text is none, or is nested too deeply for the parser."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def append_line(path: Path, line: str) -> None:
    """Add a line to a private file, which is made if it does not exist; it is on disk when this returns.

    The line is given without its line feed. Writers follow one another. An end without a line feed, which a
    crash left, is removed first.

    Raises:
        NoSpaceError: the disk is full, or the file is not writable.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
    with writing(path), os.fdopen(open_private(path, flags), "a+b") as file:
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
