"""Tells a person how a run is going: a live bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class Reporter(Protocol):
    """What a long piece of work tells while it runs."""

    def begin(self, title: str, total: int, done: int = 0) -> None:
        """A piece of ``total`` steps starts, ``done`` of which were done before."""

    def advance(self, done: int, figures: Mapping[str, float]) -> None:
        """So many steps are done; the figures are the latest losses and measures."""

    def say(self, message: str) -> None:
        """Something worth a line of its own."""

    def end(self) -> None:
        """The piece is finished."""


class Quiet:
    """Says nothing: for library use."""

    def begin(self, title: str, total: int, done: int = 0) -> None:
        """See :class:`Reporter`."""

    def advance(self, done: int, figures: Mapping[str, float]) -> None:
        """See :class:`Reporter`."""

    def say(self, message: str) -> None:
        """See :class:`Reporter`."""

    def end(self) -> None:
        """See :class:`Reporter`."""


class Lines:
    """Prints a plain line about every tenth of a piece of work: for log files and pipes."""

    def __init__(self) -> None:
        self._title, self._total, self._next, self._start, self._first = "", 0, 0.0, 0.0, 0

    def begin(self, title: str, total: int, done: int = 0) -> None:
        """See :class:`Reporter`."""
        self._title, self._total, self._first = title, total, done
        self._next, self._start = done + total / 10, time.monotonic()

    def advance(self, done: int, figures: Mapping[str, float]) -> None:
        """See :class:`Reporter`."""
        if done + 0.5 < self._next and done < self._total:
            return
        self._next += self._total / 10
        elapsed = time.monotonic() - self._start
        left = elapsed / max(done - self._first, 1) * (self._total - done)
        self.say(f"{self._title} {done}/{self._total} {_figures(figures)} ({left:.0f} s left)")

    def say(self, message: str) -> None:
        """See :class:`Reporter`."""
        print(message, file=sys.stderr, flush=True)

    def end(self) -> None:
        """See :class:`Reporter`."""


class Bar:
    """A live progress bar with the latest figures and the time left."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._progress: Progress | None = None
        self._task = TaskID(0)

    def begin(self, title: str, total: int, done: int = 0) -> None:
        """See :class:`Reporter`."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
        )
        self._progress = Progress(*columns, console=self._console)
        self._progress.start()
        self._task = self._progress.add_task(title, total=total, completed=done, figures="")

    def advance(self, done: int, figures: Mapping[str, float]) -> None:
        """See :class:`Reporter`."""
        if self._progress is not None:
            self._progress.update(self._task, completed=done, figures=_figures(figures))

    def say(self, message: str) -> None:
        """See :class:`Reporter`."""
        self._console.print(message, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def end(self) -> None:
        """See :class:`Reporter`."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def told_to(reporter: Reporter, title: str) -> Callable[[int, int], None]:
    """A callback ``(done, total)`` that shows a simple piece of work as it goes."""
    begun = False

    def advance(done: int, total: int) -> None:
        nonlocal begun
        if not begun:
            reporter.begin(title, total)
            begun = True
        reporter.advance(done, {})
        if done >= total:
            reporter.end()

    return advance


def terminal_reporter() -> Reporter:
    """A bar where a person watches, plain lines where none does; of several processes one speaks."""
    if os.environ.get("LOCAL_RANK", "0") != "0":
        return Quiet()
    return Bar() if sys.stderr.isatty() else Lines()


def _figures(figures: Mapping[str, float]) -> str:
    return " ".join(f"{name} {value:.4g}" for name, value in figures.items())
