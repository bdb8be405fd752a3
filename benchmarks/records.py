"""What the scripts share: their runs, kept as lines of JSON beside them, and the tables of their pages."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pandas as pd
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from ucds.experiments.revision import code_revision
from ucds.files import append_line, write_text_atomically

Row = dict[str, Any]
"""A run by the names of its entries."""


def complete(
    script: str,
    jobs: Iterable[tuple[Row, Callable[[], Iterable[Row]]]],
    page: Callable[[Sequence[Row]], str],
) -> list[Row]:
    """Do the jobs that are not recorded yet, on one thread, write the page of all runs, and return these.

    The runs of `NAME.py` are lines of `NAME.jsonl` beside it, each with the revision of the code; its page is
    `NAME.md`. A run is on the disk before the next one begins, so that the work can be done in pieces.

    Args:
        script: the script's `__file__`.
        jobs: entries of a job's runs, and the job; it is left out if a recorded run has these entries.
        page: writes the page of some runs.
    """
    path, revision = Path(script).with_suffix(".jsonl"), code_revision()
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    runs: list[Row] = [json.loads(line) for line in lines]
    with threadpool_limits(1):
        for entries, job in jobs:
            if not any(entries.items() <= run.items() for run in runs):
                for made in job():
                    runs.append(made | {"revision": revision})
                    append_line(path, json.dumps(runs[-1]))
                    print(f"{made!s:.200}", flush=True)
    revisions = ", ".join(sorted({run.get("revision", "not recorded") for run in runs}))
    write_text_atomically(path.with_suffix(".md"), f"{page(runs)}\nRevisions of the code: {revisions}.\n")
    return runs


def time_call(call: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def spread(values: Sequence[float]) -> str:
    """Write the mean of some values, and their standard deviation."""
    return f"{mean(values):.1f} +- {stdev(values):.1f}" if len(values) > 1 else "missing"


def table(rows: pd.DataFrame | Sequence[Row], columns: str = "") -> str:
    """Write a table in Markdown.

    Args:
        rows: cells of each row by the titles of the columns.
        columns: "l" for each column of words and "r" for each of numbers, as in LaTeX; all words if empty.
    """
    frame = pd.DataFrame(rows).astype(str)
    marks = ["---:" if one == "r" else "---" for one in columns or "l" * frame.shape[1]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (map(str, frame), marks, *frame.to_numpy()))
