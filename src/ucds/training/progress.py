"""Shows the progress of a run: a live bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import ClassVar, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from ucds.training.processes import is_first_process

STARTING, WORKING = "starting", "working"
"""Titles of the time in which the length of the work is not known."""

_SHORT = 5.0  # seconds of work that a log file needs one line for, at its end
_LONG = 60.0  # seconds of work from which on an estimate is given before it
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


class Pace:
    """Speed of a piece of work, and the time that is left.

    Args:
        title: name of the work.
        total: number of its steps.
        done: number of steps that were done before.
    """

    def __init__(self, title: str, total: int, done: int = 0) -> None:
        self.title, self.total, self._first = title, total, done
        self._start, self._told = time.monotonic(), False
        self.elapsed = 0.0
        """Seconds from the beginning to the last step that was done."""
        self.left: float | None = None
        """Estimate of the seconds that are left; ``None`` before the first step."""

    def advance(self, done: int) -> str | None:
        """Measure the speed when ``done`` steps are done.

        Returns:
            A sentence on the time that long work takes, once, as soon as the speed is known; else ``None``.
        """
        if done <= self._first:
            return None
        self.elapsed = time.monotonic() - self._start
        self.left = self.elapsed / (done - self._first) * (self.total - done)
        if self._told or self.elapsed < _MEASURED:
            return None
        self._told = True
        return f"{self.title}: about {_in_words(self.left)} left" if self.left > _LONG else None


class Lines(Quiet):
    """Prints a plain line about every tenth of a piece of work; for log files and pipes."""

    def __init__(self) -> None:
        self._pace, self._next = Pace("", 0), 0.0

    def begin(self, title: str, total: int, done: int = 0) -> None:
        """See :class:`Reporter`."""
        self._pace, self._next = Pace(title, total, done), done + total / 10

    def advance(self, done: int, figures: Mapping[str, float]) -> None:
        """See :class:`Reporter`."""
        pace, estimate = self._pace, self._pace.advance(done)
        if estimate is not None:
            self.say(estimate)
        due = pace.elapsed >= _SHORT and done + 0.5 >= self._next
        if pace.left is None or not (due or done >= pace.total):
            return
        self._next = done + pace.total / 10
        words = [pace.title, f"{done}/{pace.total}", _figures(figures), f"({pace.left:.0f} s left)"]
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
        self._task, self._pace, self._command = TaskID(0), Pace("", 0), command

    def begin(self, title: str, total: int, done: int = 0) -> None:
        """See :class:`Reporter`; a ``total`` of 0 stands for work of unknown length."""
        end_bar()
        self._pace = Pace(title, total, done)
        named = TextColumn("{task.description}", table_column=Column(no_wrap=True))
        # Standard output is for results: what is printed there must not be sent to the terminal.
        if total:
            columns = (named, BarColumn(bar_width=20), _text("count"), _text("left"), _text("figures", 1))
            self._progress = Progress(*columns, console=self._console, redirect_stdout=False, expand=True)
        else:
            pulse = (named, BarColumn(bar_width=20), TimeElapsedColumn())
            self._progress = Progress(*pulse, console=self._console, redirect_stdout=False, transient=True)
        Bar._shown = self
        self._progress.start()
        self._task = self._progress.add_task(title, total=total or None, count="", left="", figures="")
        self.advance(done, {})

    def advance(self, done: int, figures: Mapping[str, float]) -> None:
        """See :class:`Reporter`."""
        pace, estimate = self._pace, self._pace.advance(done)
        if estimate is not None:
            self.say(estimate)
        if self._progress is not None and pace.total:
            self._progress.update(
                self._task,
                completed=done,
                count=f"{done:,}/{pace.total:,}",
                left="" if pace.left is None else f"{_clock(pace.left)} left",
                figures=_figures(figures),
            )

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


def _text(field: str, ratio: int | None = None) -> TextColumn:
    """Make a column of a bar; one with a ratio takes the room that the others leave, and is cut to fit."""
    return TextColumn(
        f"{{task.fields[{field}]}}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=ratio)
    )


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


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02}"


def _in_words(seconds: float) -> str:
    """Write a time in minutes, or in hours from an hour and a half on."""
    if seconds < 5400:
        minutes = max(round(seconds / 60), 1)
        return f"{minutes} minute{'s' if minutes > 1 else ''}"
    return f"{seconds / 3600:.1f} hours"


def _figures(figures: Mapping[str, float]) -> str:
    return " ".join(f"{name} {value:.4g}" for name, value in figures.items())
