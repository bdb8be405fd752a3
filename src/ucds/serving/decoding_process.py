"""One process that decodes images: takes a file, answers with its pixels or a reason, until the pipe ends."""

from __future__ import annotations

import json
import resource
import sys
import warnings
from multiprocessing.connection import Connection
from pathlib import Path

from PIL import Image

from ucds.data.decode import UnusableImageError, decode_image
from ucds.serving.sandbox import confine
from ucds.serving.screening import TooElaborateError, check_structure

DONE, UNUSABLE = b"\0", b"\1"
IDLE_SECONDS = 60.0
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")


def main(number: int, seconds: float, memory_bytes: int, max_pixels: int, formats: list[str]) -> None:
    """Answer until the pipe ends, or nothing is asked for a minute.

    Args:
        number: number of the open file that is this end of the pipe.
        seconds: processor time after which the caller gives an image up.
        memory_bytes: memory that may be taken beyond that of the start.
        max_pixels: most pixels of one image.
        formats: formats that are read.
    """
    warnings.simplefilter("ignore")
    Image.init()  # all that will be loaded is loaded now, and counts as memory of the start
    if sys.platform == "linux":
        _bound(resource.RLIMIT_AS, _memory_taken() + memory_bytes)
    _bound(resource.RLIMIT_CORE, 0)
    confine(map(Path, (*sys.path, *_LIBRARIES)))  # some modules are loaded when they are needed
    pipe = Connection(number)
    pipe.send_bytes(DONE)
    while pipe.poll(IDLE_SECONDS):
        try:
            size, data = int.from_bytes(pipe.recv_bytes()), pipe.recv_bytes()
        except EOFError:
            return
        # If the caller was killed, nobody is left to kill this process.
        _bound(resource.RLIMIT_CPU, int(_seconds_used() + seconds) + 2)
        try:
            check_structure(data)
            pixels = decode_image(data, size, formats=tuple(formats), max_pixels=max_pixels)
            answer = DONE + pixels.tobytes()
        except TooElaborateError as error:
            answer = UNUSABLE + f"built to be slow to decode ({error})".encode()
        except UnusableImageError as error:
            answer = UNUSABLE + error.reason.encode()[:4096]
        del data
        pipe.send_bytes(answer)


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
