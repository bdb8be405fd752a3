"""Shows the progress of a run: a live bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import ClassVar, Protocol, runtime_checkable

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

from ucds.errors import printable
from ucds.training.processes import is_first_process

STARTING, WORKING = "starting", "working"
"""Titles while the length of the work is not known."""

_SHORT = 5.0  # seconds of work that a log file needs one line for, at its end
_LONG = 60.0  # seconds of work that are told of before a tenth is done
_MEASURED = 3.0  # seconds after which a speed is worth telling


@runtime_checkable
class Reporter(Protocol):
    """Receives the progress of a long piece of work."""

    def show(self, title: str, done: int, total: int, figures: Mapping[str, float] | None = None) -> None:
        """Show that ``done`` of ``total`` steps are done, with the latest losses and measures by name.

        A new title begins a piece of work, which ends when all its steps are done. A total of 0 stands for
        work of unknown length, which ends when another piece begins.
        """
        return

    def say(self, message: str) -> None:
        """Show a message on a line of its own."""
        return


class Quiet(Reporter):
    """Shows nothing; for use as a library."""


class Lines(Quiet):
    """Prints a line for about every tenth of some work, more often if it is long; for log files and pipes."""

    _title: str | None = None

    def show(self, title: str, done: int, total: int, figures: Mapping[str, float] | None = None) -> None:
        """See :class:`Reporter`."""
        now = time.monotonic()
        if title != self._title:
            self._title, self._first, self._start = title, done, now
            self._next, self._said = done + total / 10, False
        nothing_new = done == self._first and done < total
        if total == 0 or nothing_new:
            return
        elapsed = now - self._start
        left = elapsed / max(1, done - self._first) * (total - done)
        long = not self._said and elapsed >= _MEASURED and left > _LONG
        due = elapsed >= _SHORT and done + 0.5 >= self._next
        if long or due or done >= total:
            self._next, self._said = done + total / 10, True
            words = [title, f"{done}/{total}", _figures(figures), f"({left:.0f} s left)"]
            self.say(" ".join(filter(None, words)))
        if done >= total:
            self._title = None

    def say(self, message: str) -> None:
        """See :class:`Reporter`."""
        print_line(message)


class Bar:
    """Shows a live progress bar, as wide as the terminal, with the time left and the latest figures.

    The terminal of a ``command`` belongs to this bar until :func:`end_bar` is called. A moving bar then shows
    between two pieces of work that something goes on.
    """

    _shown: ClassVar[Bar | None] = None
    """Bar that is on the terminal; there is at most one."""

    def __init__(self, *, command: bool = False) -> None:
        self._console = Console(stderr=True)
        self._progress: Progress | None = None
        self._title: str | None = None
        self._task, self._command = TaskID(0), command

    def show(self, title: str, done: int, total: int, figures: Mapping[str, float] | None = None) -> None:
        """See :class:`Reporter`."""
        if title != self._title:
            self._begin(title, done, total)
        if self._progress is not None:
            self._progress.update(self._task, completed=done, figures=_figures(figures))
        if done >= total > 0:
            self.clear()
            if self._command:
                self.show(WORKING, 0, 0)

    def _begin(self, title: str, done: int, total: int) -> None:
        end_bar()
        columns: tuple[ProgressColumn, ...] = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
        )
        if total:
            count = TextColumn("{task.completed:,.0f}/{task.total:,.0f}")
            # The figures take the room that is left, and are cut to fit.
            room = Column(no_wrap=True, overflow="ellipsis", ratio=1)
            figures = TextColumn("{task.fields[figures]}", markup=False, table_column=room)
            columns += (count, TimeRemainingColumn(compact=True), TextColumn("left"), figures)
        else:
            columns += (TimeElapsedColumn(),)
        # Standard output is for results: what is printed there must not be sent to the terminal.
        self._progress = Progress(
            *columns, console=self._console, redirect_stdout=False, expand=total > 0, transient=not total
        )
        Bar._shown, self._title = self, title
        self._progress.start()
        self._task = self._progress.add_task(title, total=total or None, completed=done, figures="")

    def say(self, message: str) -> None:
        """See :class:`Reporter`."""
        self._console.print(printable(message), highlight=False, markup=False, emoji=False, soft_wrap=True)

    def clear(self) -> None:
        """Remove the bar from the terminal."""
        if self._progress is not None:
            self._progress.stop()
            self._progress, self._title, Bar._shown = None, None, None


def print_line(message: str) -> None:
    """Print a message as one line on standard error; if that cannot be written, go on without it."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(printable(message), file=sys.stderr, flush=True)


def end_bar() -> None:
    """Remove any bar from the terminal, before a question, a result or an error message."""
    if Bar._shown is not None:
        Bar._shown.clear()


def terminal_reporter(*, command: bool = False) -> Reporter:
    """Make a bar on a terminal and plain lines elsewhere; of several processes only the first reports."""
    if not is_first_process():
        return Quiet()
    able = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return Bar(command=command) if able else Lines()


def _figures(figures: Mapping[str, float] | None) -> str:
    return " ".join(f"{name} {value:.4g}" for name, value in (figures or {}).items())
