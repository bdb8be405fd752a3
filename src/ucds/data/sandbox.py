"""A confined process that decodes strangers' images: it cannot open files or connections, nor be read.

It takes image files from its caller, and answers each with pixels or a reason, until the caller ends.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path

from PIL import AvifImagePlugin

from ucds.data.confinement import confine
from ucds.data.decode import Bounds, UnusableImageError, decode_image

DONE, UNUSABLE = b"\0", b"\1"
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")


def main(
    number: int, size: int, seconds: float, memory_bytes: int, max_pixels: int, formats: list[str]
) -> None:
    """Answer on the open socket of a given number; the other arguments are the bounds on one image."""
    warnings.simplefilter("ignore")
    bounds = Bounds(max_pixels, memory_bytes, float("inf"))  # the kernel keeps the time
    _load_decoders(tuple(formats))  # what is loaded now counts as memory of the start
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


def _load_decoders(formats: tuple[str, ...]) -> None:
    """Load all that decoding needs, before it is needed, and keep libraries to one thread."""
    with suppress(UnusableImageError):
        decode_image(b"", 1, formats=formats)  # loads all that Pillow decodes
    AvifImagePlugin.DEFAULT_MAX_THREADS = 1
    if "DICOM" in formats and find_spec("pydicom"):
        import_module("pydicom.pixels.processing")


def _bound(what: int, value: int) -> None:
    """Lower the soft limit, to which the kernel holds this process."""
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


if __name__ == "__main__":
    main(int(sys.argv[1]), **json.loads(sys.argv[2]))
