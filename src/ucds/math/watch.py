"""Lets long computations be watched: between their parts they call a function, which may also stop them."""

from __future__ import annotations

from collections.abc import Callable

Watch = Callable[[str, int, int], None]
"""Function that is given the name of some work, the number of its parts that are done, and that of all parts.

An exception that it raises ends the work."""


def unwatched(work: str, done: int, total: int) -> None:
    """Do nothing."""


def count_parts(watch: Watch, work: str, total: int) -> Callable[[], None]:
    """Tell a watch that some work begins, and return a function to call after each of its parts.

    Args:
        watch: function to tell.
        work: name of the work.
        total: number of its parts.
    """
    done = 0
    watch(work, done, total)

    def advance() -> None:
        nonlocal done
        done += 1
        watch(work, done, total)

    return advance
