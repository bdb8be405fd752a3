"""Shows the progress of a run: a live bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import ClassVar, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from ucds.training.processes import is_first_process

STARTING, WORKING = "starting", "working"
"""Titles of the time in which the length of the work is not known."""

_SHORT = 5.0  # seconds of work that a log file needs one line for, at its end
_LONG = 60.0  # seconds of work that are told of before a tenth is done
_MEASURED = 3.0  # seconds after which a speed is worth telling


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
    """Prints a line about every tenth of some work, and sooner if it is long; for log files and pipes."""

    def begin(self, title: str, total: int, done: int = 0) -> None:
        """See :class:`Reporter`."""
        self._title, self._total, self._first = title, total, done
        self._start, self._next, self._said = time.monotonic(), done + total / 10, False

    def advance(self, done: int, figures: Mapping[str, float]) -> None:
        """See :class:`Reporter`."""
        if done <= self._first:
            return
        elapsed = time.monotonic() - self._start
        left = elapsed / (done - self._first) * (self._total - done)
        long = not self._said and elapsed >= _MEASURED and left > _LONG
        due = elapsed >= _SHORT and done + 0.5 >= self._next
        if long or due or done >= self._total:
            self._next, self._said = done + self._total / 10, True
            words = [self._title, f"{done}/{self._total}", _figures(figures), f"({left:.0f} s left)"]
            self.say(" ".join(filter(None, words)))

    def say(self, message: str) -> None:
        """See :class:`Reporter`."""
        print(message, file=sys.stderr, flush=True)


class Bar:
    """Shows a live progress bar with the time left and the latest figures, as wide as the terminal.

    Args:
        command: whether the terminal belongs to this bar until :func:`end_bar` is called. A moving bar then
            shows between two pieces of work that something goes on.
    """

    _shown: ClassVar[Bar | None] = None
    """Bar that is on the terminal; there cannot be a second one."""

    def __init__(self, *, command: bool = False) -> None:
        self._console = Console(stderr=True)
        self._progress: Progress | None = None
        self._task, self._command = TaskID(0), command

    def begin(self, title: str, total: int, done: int = 0) -> None:
        """See :class:`Reporter`; a ``total`` of 0 stands for work of unknown length."""
        end_bar()
        columns: tuple[ProgressColumn, ...] = (TextColumn("{task.description}"), BarColumn(bar_width=20))
        if total:
            count = TextColumn("{task.completed:,.0f}/{task.total:,.0f}")
            # The figures take the room that is left, and are cut to fit.
            room = Column(no_wrap=True, overflow="ellipsis", ratio=1)
            figures = TextColumn("{task.fields[figures]}", table_column=room)
            columns += (count, TimeRemainingColumn(compact=True), TextColumn("left"), figures)
        else:
            columns += (TimeElapsedColumn(),)
        # Standard output is for results: what is printed there must not be sent to the terminal.
        self._progress = Progress(
            *columns, console=self._console, redirect_stdout=False, expand=total > 0, transient=not total
        )
        Bar._shown = self
        self._progress.start()
        self._task = self._progress.add_task(title, total=total or None, completed=done, figures="")

    def advance(self, done: int, figures: Mapping[str, float]) -> None:
        """See :class:`Reporter`."""
        if self._progress is not None:
            self._progress.update(self._task, completed=done, figures=_figures(figures))

    def say(self, message: str) -> None:
        """See :class:`Reporter`."""
        self._console.print(message, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def end(self) -> None:
        """See :class:`Reporter`."""
        self.clear()
        if self._command:
            self.begin(WORKING, 0)

    def clear(self) -> None:
        """Leave the terminal."""
        if self._progress is not None:
            self._progress.stop()
            self._progress, Bar._shown = None, None


def end_bar() -> None:
    """Take the bar off the terminal, if there is one: before a question, a result or an error message."""
    if Bar._shown is not None:
        Bar._shown.clear()


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


def terminal_reporter(*, command: bool = False) -> Reporter:
    """Make a bar on a terminal and plain lines elsewhere; of several processes only the first reports.

    Args:
        command: whether the terminal belongs to the reporter, see :class:`Bar`.
    """
    if not is_first_process():
        return Quiet()
    able = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return Bar(command=command) if able else Lines()


def _figures(figures: Mapping[str, float]) -> str:
    return " ".join(f"{name} {value:.4g}" for name, value in figures.items())
