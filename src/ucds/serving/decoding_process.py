"""One process that decodes images: takes files, answers with pixels or a reason, until its caller ends."""

from __future__ import annotations

import json
import resource
import socket
import sys
import warnings
from pathlib import Path

from PIL import Image

from ucds.data.decode import UnusableImageError, decode_image
from ucds.serving.sandbox import confine

DONE, UNUSABLE = b"\0", b"\1"
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")


def main(number: int, seconds: float, memory_bytes: int, max_pixels: int, formats: list[str]) -> None:
    """Answer on an open socket, by its number; the other arguments are the bounds on one image."""
    warnings.simplefilter("ignore")
    Image.init()  # all that will be loaded is loaded now, and counts as memory of the start
    if sys.platform == "linux":
        _bound(resource.RLIMIT_AS, _memory_taken() + memory_bytes)
    _bound(resource.RLIMIT_CORE, 0)
    confine(map(Path, (*sys.path, *_LIBRARIES)))  # some modules are loaded when they are needed
    caller = socket.socket(fileno=number).makefile("rwb")
    caller.write(DONE)
    caller.flush()
    while head := caller.read(8):
        size, data = int.from_bytes(head[:4]), caller.read(int.from_bytes(head[4:]))
        # If the caller was killed, nobody is left to kill this process.
        _bound(resource.RLIMIT_CPU, int(_seconds_used() + seconds) + 2)
        try:
            pixels = decode_image(data, size, formats=tuple(formats), max_pixels=max_pixels)
            kind, answer = DONE, pixels.tobytes()
        except UnusableImageError as error:
            kind, answer = UNUSABLE, error.reason.encode()[:4096]
        del data
        caller.write(kind + len(answer).to_bytes(4) + answer)
        caller.flush()


def _bound(what: int, value: int) -> None:
    """Lower the soft limit; the kernel holds this process to it."""
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _memory_taken() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _seconds_used() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main(int(sys.argv[1]), **json.loads(sys.argv[2]))
