"""What the rooms share: types of arrays, the callback that watches long work, and the processors for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
"""Single precision, for features and what is computed from them."""

DoubleArray = NDArray[np.float64]
"""Double precision: statistics, proportions and points of figures."""

IntArray = NDArray[np.int64]

Watch = Callable[[str, int, int], None]
"""Function of the name of some work, the number of finished parts, and the number of all parts.

An exception that it raises ends the work."""

Part = TypeVar("Part")


def counted(watch: Watch | None, work: str, parts: Sequence[Part]) -> Iterator[Part]:
    """Yield the parts of some work, and report to a watch, if any, how many are done, from none to all."""
    for done, part in enumerate(parts):
        if watch is not None:
            watch(work, done, len(parts))
        yield part
    if watch is not None:
        watch(work, len(parts), len(parts))


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
