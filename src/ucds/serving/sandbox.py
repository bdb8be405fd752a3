"""Confines a process that handles files of strangers: it opens no file, reaches nobody, and cannot be read.

Linux alone has the means: Landlock (kernel 5.13 or later) and `prctl`. They need no privilege.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all processors
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_NO_NEW_PRIVILEGES, _SET_DUMPABLE = 38, 4
_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Number of kinds of access to files that each version knows; later versions know those of version 5."""
_NETWORK, _SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals


def hide_memory() -> None:
    """Keep other processes of the same user from reading this process's memory and environment."""
    if sys.platform == "linux":
        _libc().prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def can_confine() -> bool:
    """Return whether the kernel has Landlock."""
    return _landlock_version() > 0


def confine(readable: Iterable[Path]) -> bool:
    """Take from this process, for good, all files but some to read, the network, and signals to others.

    What is open already stays open. Without Landlock the files stay within reach.

    Args:
        readable: folders and files that may still be read, such as the modules of Python.

    Returns:
        Whether Landlock is in force.

    Raises:
        OSError: the kernel has Landlock and refuses to use it.
    """
    hide_memory()
    version = _landlock_version()
    if not version:
        return False
    ruleset = _make_ruleset(version)
    try:
        for path in readable:
            _allow_reading(ruleset, path)
        _call_prctl(_NO_NEW_PRIVILEGES, 1)
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return True


def _landlock_version() -> int:
    """Return the version of the kernel's Landlock; 0 without it."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)))


def _make_ruleset(version: int) -> int:
    """Make a set of rules that forbids all that a version of Landlock knows; return its open file."""
    files = (1 << _FILE_RIGHTS.get(version, 16)) - 1
    words = [files]
    if version >= 4:
        words.append(_NETWORK)
    if version >= 6:
        words.append(_SCOPES)
    attributes = struct.pack(f"={len(words)}Q", *words)
    return _call(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)


def _allow_reading(ruleset: int, path: Path) -> None:
    """Permit reading below a path; one that is not there needs no rule."""
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rights = _READ if path.is_dir() else _READ_FILE
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, opened), 0)
    finally:
        os.close(opened)


def _call(number: int, *arguments: object) -> int:
    """Call the kernel by a number.

    Raises:
        OSError: the kernel refuses.
    """
    result = int(_libc().syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _call_prctl(option: int, value: int) -> None:
    if _libc().prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
