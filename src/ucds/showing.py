"""Lets results print themselves: in one line, and as a table in a notebook."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_FEW, _LONG = 3, 60  # entries of a sequence, and letters of a value, that are shown
_ROWS = 10  # of a table


def shows(*names: str) -> Callable[[type[T]], type[T]]:
    """Let the objects of a class print some of their attributes in short, however long these are.

    All fields are printed if no names are given. Those with a value for each sample are the columns of the
    table; without any, the table has a row for each attribute.
    """

    def decorate(kind: type[T]) -> type[T]:
        chosen = names or tuple(inspect.get_annotations(kind))
        kind.__repr__ = lambda self: _line(self, chosen)  # type: ignore[method-assign]
        kind._repr_html_ = lambda self: _table(self, chosen)  # type: ignore[attr-defined]
        return kind

    return decorate


def _values(shown: object, names: Sequence[str]) -> dict[str, Any]:
    values = {name: getattr(shown, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _line(shown: object, names: Sequence[str]) -> str:
    values = ", ".join(f"{name}={_brief(value)}" for name, value in _values(shown, names).items())
    return f"{type(shown).__name__}({values})"


def _table(shown: object, names: Sequence[str]) -> str:
    values = _values(shown, names)
    arrays = [value for value in values.values() if _axes(value) == 1]
    if not arrays:
        return _html(type(shown).__name__, [], [(name, _brief(value)) for name, value in values.items()])
    size = len(arrays[0])
    columns = {name: value for name, value in values.items() if _is_sequence(value) and len(value) == size}
    rows = [tuple(_brief(value[row]) for value in columns.values()) for row in range(min(size, _ROWS))]
    more = f"; {size - _ROWS:,} more rows" if size > _ROWS else ""
    return _html(_line(shown, names) + more, list(columns), rows)


def _html(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table in HTML, with all markup in the values escaped."""
    lines = [f"<caption>{escape(caption)}</caption>"]
    for tag, cells in [("th", heads), *(("td", row) for row in rows)]:
        lines.append("<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>")
    return f"<table>{''.join(lines)}</table>"


def _is_sequence(value: object) -> bool:
    return _axes(value) == 1 or (isinstance(value, Sequence) and not isinstance(value, str | bytes))


def _axes(value: object) -> int:
    """Return the number of axes of an array, 0 for anything else."""
    return len(getattr(value, "shape", ()))


def _brief(value: Any) -> str:
    """Write a value in short, on one line: if it has many entries, the first ones and their number."""
    if _axes(value) > 1:
        return f"<{value.dtype} {value.shape}>"
    if _is_sequence(value):
        first = [_brief(entry) for entry in value[:_FEW]]
        return f"[{', '.join(first)}{_rest(value)}]"
    if isinstance(value, Mapping):
        first = [f"{_brief(name)}: {_brief(value[name])}" for name in list(value)[:_FEW]]
        return f"{{{', '.join(first)}{_rest(value)}}}"
    value = value.item() if hasattr(value, "item") else str(value) if isinstance(value, Path) else value
    text = f"{value:.4g}" if isinstance(value, float) else " ".join(repr(value).split())
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."


def _rest(value: Any) -> str:
    return f", ... {len(value):,} in all" if len(value) > _FEW else ""
