"""Tables of numbers, and their text in Markdown and in LaTeX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ucds.reports.statistics import Interval

MISSING = "missing"
NOTHING = "-"


@dataclass(frozen=True)
class Number:
    """A mean, with the standard deviation and the number of its values where they are known."""

    mean: float
    deviation: float | None = None
    count: int | None = None
    digits: int = 1
    signed: bool = False


Entry = str | Number | Interval


@dataclass(frozen=True)
class Row:
    """A row of a table: its name, and an entry for each further column."""

    name: str
    entries: tuple[Entry, ...]
    emphasised: bool = False


@dataclass(frozen=True)
class Table:
    """A table with a name for each column; the first column holds the names of the rows."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def summarise(values: ArrayLike, digits: int = 1) -> Entry:
    """Compute mean, sample standard deviation and number of values; "missing" if there are none."""
    array = np.asarray(values, dtype=np.float64)
    if not array.size:
        return MISSING
    deviation = float(array.std(ddof=1)) if array.size > 1 else None
    return Number(float(array.mean()), deviation, array.size, digits)


def to_markdown(table: Table) -> str:
    """Write a table as a pipe table below its title."""
    head = [list(table.columns), ["---"] * len(table.columns)]
    body = [
        [f"**{row.name}**" if row.emphasised else row.name, *map(_plain, row.entries)] for row in table.rows
    ]
    lines = [f"| {' | '.join(cells)} |" for cells in (*head, *body)]
    return "\n".join([table.title, "", *lines])


def to_latex(table: Table) -> str:
    """Write a table as a ``tabular`` in the style of the booktabs package, with a caption."""
    body = [
        [rf"\textbf{{{_escaped(row.name)}}}" if row.emphasised else _escaped(row.name)]
        + [_latex(entry) for entry in row.entries]
        for row in table.rows
    ]
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escaped(table.title)}}}",
        rf"\begin{{tabular}}{{l{'c' * (len(table.columns) - 1)}}}",
        r"\toprule",
        " & ".join(map(_escaped, table.columns)) + r" \\",
        r"\midrule",
        *(" & ".join(cells) + r" \\" for cells in body),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines)


def _plain(entry: Entry) -> str:
    return _written(entry, " +- ", str)


def _latex(entry: Entry) -> str:
    text = _written(entry, r" \pm ", lambda text: f"${text}$")
    if text == NOTHING:
        return "--"
    return _escaped(text) if isinstance(entry, str) else text


def _written(entry: Entry, plus_minus: str, wrapped: Callable[[str], str]) -> str:
    if isinstance(entry, str):
        return entry
    if isinstance(entry, Interval):
        if not np.isfinite([entry.low, entry.high]).all():
            return NOTHING
        return wrapped(f"{entry.low:+.1f}") + " to " + wrapped(f"{entry.high:+.1f}")
    text = f"{entry.mean:{'+' if entry.signed else ''}.{entry.digits}f}"
    if entry.deviation is not None:
        text += f"{plus_minus}{entry.deviation:.{entry.digits}f}"
    return wrapped(text) + (f" ({entry.count})" if entry.count is not None else "")


_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    ">": r"\textgreater{}",
    "<": r"\textless{}",
} | {character: "\\" + character for character in "&%$#_{}"}


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(character, character) for character in text).replace("+-", r"$\pm$")
