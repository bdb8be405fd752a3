"""Shows the progress of a run: a live bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class Reporter(Protocol):
    """Receives the progress of a long piece of work."""

    def begin(self, title: str, total: int, done: int = 0) -> None:
        """Start to show a piece of work of ``total`` steps, ``done`` of which were done before."""
        return

    def advance(self, done: int, figures: Mapping[str, float]) -> None:
        """Show that ``done`` steps are done, with the latest losses and measures by name."""
        return

    def say(self, message: str) -> None:
        """Show a message on a line of its own."""
        return

    def end(self) -> None:
        """Show that the piece of work is finished."""
        return


class Quiet(Reporter):
    """Shows nothing; for use as a library."""


class Lines(Quiet):
    """Prints a plain line about every tenth of a piece of work; for log files and pipes."""

    _title, _total, _next, _start, _first = "", 0, 0.0, 0.0, 0

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


class Bar:
    """Shows a live progress bar with the latest figures and the time left."""

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
    """Make a callback ``(done, total)`` that reports a simple piece of work."""
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
    """Make a bar on a terminal and plain lines elsewhere; of several processes only the first reports."""
    if os.environ.get("LOCAL_RANK", "0") != "0":
        return Quiet()
    return Bar() if sys.stderr.isatty() else Lines()


def _figures(figures: Mapping[str, float]) -> str:
    return " ".join(f"{name} {value:.4g}" for name, value in figures.items())
