"""Keeps the runs of a script beside it: a line of JSON for each, with the revision of the code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import TypeAdapter
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from ucds.experiments.revision import code_revision
from ucds.files import append_line, write_text_atomically

if TYPE_CHECKING:
    from typing_extensions import TypeForm

Run = TypeVar("Run")
Row = dict[str, Any]
"""A run by the names of its entries."""

UNKNOWN = "not recorded"


class Records(Generic[Run]):
    """Runs of one script, from `NAME.jsonl` beside `NAME.py`.

    Args:
        script: the script's `__file__`.
        kind: :data:`Row`, or dataclass of a run.

    Attributes:
        runs: all runs that are recorded, in the order in which they were made.
    """

    def __init__(self, script: str, kind: TypeForm[Run]) -> None:
        self._revision = code_revision()
        self._kind = TypeAdapter(kind)
        self._path = Path(script).with_suffix(".jsonl")
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        rows = [json.loads(line) for line in lines]
        self._revisions = {row.pop("revision", UNKNOWN) for row in rows}
        self.runs = [self._kind.validate_python(row) for row in rows]

    def add(self, run: Run) -> None:
        """Record a run, and print it; it is on the disk when this returns."""
        row = self._kind.dump_python(run)
        append_line(self._path, json.dumps(row | {"revision": self._revision}))
        self.runs.append(run)
        self._revisions.add(self._revision)
        print(f"{run!s:.200}", flush=True)

    def complete(
        self: Records[Row],
        jobs: Iterable[tuple[Row, Callable[[], Iterable[Row]]]],
        page: Callable[[Sequence[Row]], str],
    ) -> None:
        """Do the jobs of whose entries there is no run yet, on one thread, and write the page of all runs."""
        with threadpool_limits(1):
            for entries, job in jobs:
                if not any(entries.items() <= run.items() for run in self.runs):
                    for run in job():
                        self.add(run)
        self.write_page(page(self.runs))

    def write_page(self, text: str) -> None:
        """Write `NAME.md`: a text, and the revisions of the runs that it was made from."""
        revisions = ", ".join(sorted(self._revisions))
        write_text_atomically(self._path.with_suffix(".md"), f"{text}\nRevisions of the code: {revisions}.\n")


def line(cells: Iterable[str]) -> str:
    """Write a row of a table in Markdown."""
    return f"| {' | '.join(cells)} |\n"


def spread(values: Sequence[float]) -> str:
    """Write the mean of some values, and their standard deviation."""
    return f"{mean(values):.1f} +- {stdev(values):.1f}" if len(values) > 1 else "missing"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write rows of cells as a table in Markdown."""
    return "".join(map(line, (header, ["---"] * len(header), *rows))).rstrip("\n")
