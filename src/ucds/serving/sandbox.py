"""A confined process that decodes images of strangers: it opens no file, reaches nobody, and cannot be read.

It takes files from its caller and answers with pixels or a reason, until the caller ends. Linux alone has the
means to confine it: Landlock (kernel 5.13 or later) and `prctl`. They need no privilege.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import struct
import sys
import warnings
from collections.abc import Iterable
from multiprocessing.connection import Connection
from pathlib import Path

from PIL import Image

from ucds.data.decode import Bounds, UnusableImageError, decode_image

DONE, UNUSABLE = b"\0", b"\1"
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all processors
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_NO_NEW_PRIVILEGES, _SET_DUMPABLE = 38, 4
_EXECUTE, _READ_FILE, _READ_FOLDER = 1 << 0, 1 << 2, 1 << 3
_KINDS_OF_ACCESS = {1: 13, 2: 14, 3: 15, 4: 15}  # to files, by the kernel's version; 16 from version 5 on
_NETWORK, _SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals
_LIBC = ctypes.CDLL(None, use_errno=True)


def main(
    number: int, size: int, seconds: float, memory_bytes: int, max_pixels: int, formats: list[str]
) -> None:
    """Answer on an open socket, by its number; the other arguments are the bounds on one image."""
    warnings.simplefilter("ignore")
    bounds = Bounds(max_pixels, memory_bytes, float("inf"))  # the kernel keeps the time
    Image.init()  # all that will be loaded is loaded now, and counts as memory of the start
    if sys.platform == "linux":
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        _bound(resource.RLIMIT_AS, taken + memory_bytes)
    _bound(resource.RLIMIT_CORE, 0)
    confine(map(Path, (*sys.path, *_LIBRARIES)))  # some modules are loaded when they are needed
    caller = Connection(number)
    caller.send_bytes(DONE)
    while True:
        # Also if the caller was killed, when nobody is left to end this process.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            data = caller.recv_bytes()
        except EOFError:
            return
        try:
            pixels = decode_image(data, size, formats=tuple(formats), bounds=bounds)
            answer = DONE + pixels.tobytes()
        except UnusableImageError as error:
            answer = UNUSABLE + error.reason.encode()[:4096]
        del data
        caller.send_bytes(answer)


def hide_memory() -> None:
    """Keep other processes of the same user from reading this process's memory and environment."""
    if sys.platform == "linux":
        _LIBC.prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def landlock_version() -> int:
    """Return the version of the kernel's Landlock; 0 without it."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)))


def confine(readable: Iterable[Path]) -> None:
    """Take from this process, for good, all files but some to read, the network, and signals to others.

    What is open already stays open. Without Landlock, the files stay within reach. OSError says that the
    kernel has Landlock and refuses to use it.
    """
    hide_memory()
    version = landlock_version()
    if not version:
        return
    words = [(1 << _KINDS_OF_ACCESS.get(version, 16)) - 1]
    words += [_NETWORK] if version >= 4 else []
    words += [_SCOPES] if version >= 6 else []
    forbidden = struct.pack(f"={len(words)}Q", *words)
    rules = _call(_CREATE_RULESET, forbidden, ctypes.c_size_t(len(forbidden)), 0)
    for path in filter(Path.exists, readable):
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rights = _EXECUTE | _READ_FILE | (_READ_FOLDER if path.is_dir() else 0)
        _call(_ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", rights, opened), 0)
        os.close(opened)
    if _LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs is refused")
    _call(_RESTRICT_SELF, rules, 0)
    os.close(rules)


def _bound(what: int, value: int) -> None:
    """Lower the soft limit; the kernel holds this process to it."""
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _call(number: int, *arguments: object) -> int:
    """Call the kernel by a number, and raise what it refuses."""
    result = int(_LIBC.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


if __name__ == "__main__":
    main(int(sys.argv[1]), **json.loads(sys.argv[2]))
