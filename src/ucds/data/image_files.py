"""Reads the bytes of image files, in threads, before they are needed."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import TypeVar

from ucds.data.decode import UnusableImageError

MAX_FILE_BYTES = 256 * 2**20
Stamp = tuple[int, int, int]

T = TypeVar("T")
R = TypeVar("R")


def read_image_bytes(path: str | Path) -> bytes:
    """Read the contents of a regular file of an acceptable length."""
    try:
        status = os.stat(path)  # noqa: PTH116  (strings: much faster than paths on many files)
        if not stat.S_ISREG(status.st_mode):  # opening a named pipe would wait for a writer for ever
            raise UnusableImageError(path, "not a regular file")
        if status.st_size == 0:
            raise UnusableImageError(path, "empty file")
        if status.st_size > MAX_FILE_BYTES:
            raise UnusableImageError(path, f"too large a file (over {MAX_FILE_BYTES // 2**20} MiB)")
        return Path(path).read_bytes()
    except OSError as error:
        raise UnusableImageError(path, f"cannot be read ({error.strerror})") from None
    except ValueError:  # NUL
        raise UnusableImageError(path, "not the path of a file") from None


def stamp(path: str | Path) -> Stamp | None:
    """Return the length in bytes and the times in nanoseconds of a file; ``None`` if it does not exist."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def map_ahead(pool: Executor, work: Callable[[T], R], items: Iterable[T], ahead: int) -> Iterator[R]:
    """Yield the results of some work in the order of its items; an item is taken only when its turn comes.

    At most ``ahead`` results wait for their use, so that memory is bounded.
    """
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
