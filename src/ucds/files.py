"""Writes files whole or not at all, and computes digests of their contents."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from ucds.errors import DamagedFileError, InputError, NoSpaceError, first_problem, one_line, warn
from ucds.received import open_received, read_text

if TYPE_CHECKING:
    from pydantic import BaseModel

Form = TypeVar("Form", bound="BaseModel")

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, None)  # NumPy gives no number
_LOCKED = (errno.EROFS, errno.EACCES, errno.EPERM)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TEMPORARY = ".ucds-tmp"
_OURS = re.compile(rf"\..+\.[0-9a-f]{{16}}{re.escape(_TEMPORARY)}", re.DOTALL)
_STALE_SECONDS = 86400.0
_LEAST_FREE = 2**20  # bytes of a disk that is not full


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the errors of the system into ones that name ``path`` and not a temporary file.

    Raises:
        NoSpaceError: the code in the block could not write, because the disk is full or the place is
            read-only.
        OSError: the code could not write for another reason.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            remedy = "free some space, then run the same again (a training with `resume=True`)"
        elif error.errno in _LOCKED:
            remedy = "choose a place that you may write to"
        else:
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise NoSpaceError(f"cannot write {path}: {error.strerror or one_line(error)}; {remedy}") from None


def require_space(place: Path, needed: int, remedy: str, *, files: int = 1) -> None:
    """Make sure, before long work, that the disk of a place has room for the bytes and files that are needed.

    The place need not exist yet. The remedy is further advice, after the words "free some space".
    """
    there = next(parent for parent in (place, *place.absolute().parents) if parent.exists())
    disk, short = shutil.disk_usage(there), ""
    if disk.total and disk.free < needed:  # some disks do not tell their size
        short = f"about {needed / 1e9:.2g} GB, and {disk.free / 1e9:.2g} GB are free"
    if sys.platform != "win32" and (entries := os.statvfs(there)).f_files and entries.f_favail < files:
        short = f"{files:,} more {'file' if files == 1 else 'files'}, and its disk takes {entries.f_favail:,}"
    if short:
        raise NoSpaceError(f"{place} needs {short}: free some space, {remedy}")


def require_writable(path: Path, *suffixes: str, inputs: Iterable[Path] = (), needed: int = 0) -> Path:
    """Return the path that an output is written to, links followed, or refuse it before any work.

    Its name ends in one of the suffixes, if there are any, and it is none of the ``inputs``, which need not
    exist. A pipe, or a device such as /dev/stdout, may have any name. It will have the ``needed`` bytes, if
    that is known.
    """
    try:
        if _is_stream(path):
            return path
        target = path.resolve() if path.is_symlink() else path
        above = next(parent for parent in target.absolute().parents if parent.exists())
        is_there = target.exists() or target.is_symlink()  # a loop of links
    except (OSError, RuntimeError) as error:  # a name that is too long, a loop of links
        reason = getattr(error, "strerror", None) or one_line(error)
        raise InputError(f"{path} cannot be written: {reason}") from None
    if target.is_dir():
        raise InputError(f"{path} is a folder: name the file to write")
    if suffixes and not {path.suffix.lower(), target.suffix.lower()} <= {*suffixes}:
        leads = "" if target == path else f", but the link leads to {target}"
        raise InputError(f"{path} must end in {' or '.join(suffixes)}{leads}")
    if not above.is_dir():
        raise InputError(f"{path} cannot be written: {above} is a file, not a folder")
    if (is_there and not target.is_file()) or (path.is_symlink() and above != target.parent):
        raise InputError(f"{path} cannot be written: its link leads to a place where no file can be")
    if not os.access(above, os.W_OK):
        raise InputError(
            f"{path} cannot be written: {above} is read-only; choose a place that you may write to"
        )
    if is_there and any(one.exists() and one.samefile(target) for one in inputs):
        raise InputError(f"{path} is read by this command: name another file to write")
    require_space(target, max(needed, _LEAST_FREE), "or name another place")
    return target


def _is_stream(path: Path) -> bool:
    """Return whether a path is a pipe or a character device, which no file may replace."""
    return path.is_fifo() or path.is_char_device()


def refuse_inside(out: Path, inputs: Path) -> None:
    """Make sure that results do not go below the folder of the inputs, where they would become inputs."""
    if inputs.is_dir() and out.resolve().is_relative_to(inputs.resolve()):
        raise InputError(f"{out} lies inside {inputs}, whose images are read: choose a place beside it")


def make_private(folder: Path) -> None:
    """Make a folder that its owner alone may enter; one that exists stays as it is."""
    try:
        with writing(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot create the folder {folder}: {error.strerror}; choose another") from None


@contextmanager
def making(folder: Path) -> Iterator[Path]:
    """Provide a temporary folder that becomes ``folder`` after the block; if the block fails, it is removed.

    If ``folder`` exists, maybe as a link or a mounted disk, the files are moved into it in the order of their
    making.
    """
    there = folder.is_dir()
    partial = _temporary(folder / "new" if there else folder)
    try:
        with writing(folder):
            partial.mkdir(parents=True)
            sweep(partial.parent, older_than=_STALE_SECONDS)
        try:
            yield partial
        except NoSpaceError as error:
            raise NoSpaceError(str(error).replace(str(partial), str(folder))) from None
        with writing(folder):
            if not there:
                partial.replace(folder)
                return
            for path in sorted(partial.rglob("*"), key=lambda path: path.lstat().st_ctime_ns):
                place, is_folder = folder / path.relative_to(partial), path.is_dir() and not path.is_symlink()
                (place if is_folder else place.parent).mkdir(parents=True, exist_ok=True)
                if not is_folder:
                    path.replace(place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _temporary(path: Path) -> Path:
    """Return a temporary name beside a path, of the form that :func:`sweep` recognises."""
    return path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}{_TEMPORARY}")


def sweep(folder: Path, *, older_than: float = 0.0) -> None:
    """Remove temporary files and folders that killed processes left more than some seconds ago."""
    for path in folder.glob(f".*{_TEMPORARY}"):
        with suppress(OSError):
            if _OURS.fullmatch(path.name) and time.time() - path.lstat().st_mtime >= older_than:
                path.unlink() if path.is_symlink() or path.is_file() else shutil.rmtree(path)


def write_atomically(path: Path, write: Callable[[IO[bytes]], object], *, is_private: bool = False) -> None:
    """Write a file so that a crash leaves the old one or the new one, never half of either.

    The folder is made if it does not exist. A link is replaced, and not followed. A pipe or device stays, and
    gets the content; a pipe that no program reads gets none, with a warning. Only its owner may read a
    private file.
    """
    with writing(path):
        if _is_stream(path):
            _write_through(path, write)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent, older_than=_STALE_SECONDS)
        temporary = _temporary(path)
        # Made by its name, so that the system takes the umask into account: a program can only learn the
        # umask by changing it, for all of its threads.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        handle = os.open(temporary, flags, 0o600 if is_private else 0o666)
        try:
            with os.fdopen(handle, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _write_through(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write into a pipe or device; a pipe without a reader would make the writer wait for ever."""
    try:
        handle = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        warn(f"no program reads the pipe {path}: nothing is written")
        return
    if sys.platform != "win32":
        os.set_blocking(handle, True)
    with os.fdopen(handle, "wb") as file:
        write(file)


def write_text_atomically(path: Path, text: str) -> None:
    """Write text in UTF-8, all of it or none; see :func:`write_atomically`."""
    write_atomically(path, lambda file: file.write(text.encode()))


def write_sealed(path: Path, seal: str, content: bytes | memoryview) -> None:
    """Write a file that begins with a line of its seal and SHA-256, by which :func:`read_sealed` checks it.

    The seal is the name of the kind of file, without blanks; otherwise like :func:`write_atomically`.
    """
    head = f"{seal} {digest_of(content)}\n".encode()
    write_atomically(path, lambda file: file.writelines((head, content)))


def read_sealed(path: Path, seal: str) -> bytes:
    """Read a file that :func:`write_sealed` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedFileError: the file cannot be read, or was changed after it was written.
    """
    try:
        with open_received(path) as file:
            head, _, content = file.read().partition(b"\n")
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
        return form.model_validate_json(read_text(Path(path)).removeprefix(_BYTE_ORDER_MARK))
    except OSError as error:
        raise InputError(f"cannot read the {what} {path}: {error.strerror}") from None
    except ValidationError as error:
        raise DamagedFileError(f"{path} is not a usable {what}: {first_problem(error)}") from None


def read_object(path: Path, form: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """Read a JSON object that a run may hold, maybe somebody else's; ``None`` if there is no such file.

    The form names kinds of entries, such as ``str | None``, or forms of objects that may be missing.
    """
    try:
        content = parse_json(read_text(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict) or not _is_of(form or {}, content):
        raise DamagedFileError(f"{path} is damaged: delete it, and go on without it")
    return content


def _is_of(form: Any, value: Any) -> bool:
    if not isinstance(form, Mapping):
        return isinstance(value, form)
    entries = value.get if isinstance(value, dict) else None
    return value is None or (entries is not None and all(_is_of(form[name], entries(name)) for name in form))


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Read a TOML file; ``what`` is its kind in messages, such as "configuration"."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"cannot read the {what} {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # arrays may be nested too deeply for the parser
        raise InputError(f"{path} is not TOML: {error}") from None


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; a ValueError says that the text is not JSON, or is nested too deeply for the parser."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def append_line(path: Path, line: str) -> None:
    """Append a line to a private file, new or old; the line is on disk when this returns.

    The line is given without its line feed. Several processes that write take turns. A last line that a crash
    left without its line feed is removed first.
    """
    with writing(path), open_received(path, "a+b") as file:
        lock(file, waits=True)
        whole = size = file.seek(0, os.SEEK_END)
        while whole and (file.seek(whole - 1), file.read(1)) != (whole - 1, b"\n"):
            whole -= 1
        if whole < size:
            file.truncate(whole)
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def lock(file: IO[bytes], *, waits: bool = False) -> bool:
    """Keep other processes from locking an open file until it is closed; return whether none had locked it.

    With ``waits``, wait until the others have closed the file.
    """
    from filelock import lock_descriptor  # here, because most commands lock nothing

    return lock_descriptor(file.fileno(), blocking=waits, poll_interval=0.01)


def digest_of(*parts: bytes | memoryview) -> str:
    """Compute the SHA-256 of some bytes, one part after the other, in hexadecimal."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
