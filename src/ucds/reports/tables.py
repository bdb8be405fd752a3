"""Makes a benchmark's page from its records: accuracies beside the paper's, comparisons, missing cells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ucds.experiments.datasets import objects_in
from ucds.experiments.grid import Benchmark, Published
from ucds.experiments.records import FILE, read_records, settings_hash
from ucds.experiments.scoring import COLUMNS, Record
from ucds.files import require_writable, write_text_atomically
from ucds.reports.figures import draw_figures
from ucds.reports.statistics import Interval, compare
from ucds.reports.table_rows import RowKey, TableRecords, collect

MISSING, NOTHING = "missing", "-"
ALSO = (
    *("nmi", "ari", "oracle_accuracy", "proportions_l1", "uniform_l1", "seconds", "images_per_second"),
    *("parameters", "peak_memory_mib"),
)
"""Columns of the table of further measures."""


@dataclass(frozen=True)
class Table:
    """A table of texts; names of reference rows stand between two stars, as bold."""

    title: str
    frame: pd.DataFrame


def write_table(benchmark: Benchmark, folder: Path) -> str:
    """Write a benchmark's page from the records in a folder, and return it in Markdown.

    Figures go into the folder; the page is written beside it, as ``folder.md``.
    """
    path = require_writable(folder.with_name(f"{folder.name}.md"))
    results = collect(benchmark, read_records(folder / FILE))
    text = page(results, all_tables(results), draw_figures(results, folder))
    write_text_atomically(path, text)
    return text


def page(results: TableRecords, tables: Sequence[Table], pictures: Sequence[str]) -> str:
    """Compose a benchmark's page in Markdown."""
    note = results.benchmark.note.strip()
    parts = [f"# {results.benchmark.title}", *([note] if note else []), *map(to_markdown, tables), *pictures]
    return "\n\n".join([*parts, "\n".join(_provenance(results))]) + "\n"


def all_tables(results: TableRecords) -> list[Table]:
    """Make all tables of a benchmark: accuracies or its own columns, comparisons, other figures."""
    if results.benchmark.measures:
        return [_costs(results)]
    datasets = results.benchmark.grid.targets.items()
    accuracies = [_accuracies(results, dataset, targets) for dataset, targets in datasets]
    others = pd.DataFrame({COLUMNS[key].title: _mean_text(results, key) for key in ALSO})
    title = "What else was measured, as means over targets and seeds."
    compared = [*_comparisons(results), *_above_plain(results)]
    return [*accuracies, *compared, _table(results, title, others)]


def to_markdown(table: Table) -> str:
    """Write a table as a pipe table below its title."""
    columns = list(table.frame.columns)
    lines = [columns, ["---"] * len(columns), *table.frame.itertuples(index=False)]
    return "\n".join([table.title, "", *(f"| {' | '.join(line)} |" for line in lines)])


def reference(results: TableRecords, row: RowKey) -> RowKey:
    """Return the row that a row is compared with: the first of these that exists.

    - the row that the benchmark names as its reference;
    - with several methods: PCD, or the grid's first method, under the same variant;
    - with one method: the unchanged grid;
    - the first row.
    """
    named = [other for other in results.rows if results.title(other) == results.benchmark.reference]
    several = len({other.method for other in results.rows}) > 1
    of_variant = [RowKey(row.variant, method) for method in ("pcd", results.benchmark.grid.methods[0])]
    ours = of_variant if several else [RowKey("", row.method)]
    return next(other for other in (*named, *ours, results.rows[0]) if other in results.rows)


def _accuracies(results: TableRecords, dataset: str, targets: Sequence[str]) -> Table:
    """Show accuracies by target, with the paper's figures beside them."""
    own, rows = results.frame[results.frame["dataset"] == dataset], range(len(results.rows))
    pivot = own.groupby(["row", "target"])["accuracy"]
    shown = _wide(pivot.apply(_spread), rows, targets).astype(object).fillna(MISSING)
    published = _published(results, targets)
    theirs = published.map(_entry).add_prefix("paper ")
    if len(targets) > 1:
        shown["mean"] = _wide(pivot.mean(), rows, targets).mean(axis=1, skipna=False).map(_number(MISSING))
        theirs["paper mean"] = published.map(_centre).mean(axis=1, skipna=False).map(_number(NOTHING))
    named = f" on {dataset}" if len(results.benchmark.grid.targets) > 1 else ""
    title = f"Clustering accuracy{named} in percent: mean +- standard deviation over seeds (their number)."
    return _table(results, title, shown if published.isna().all(axis=None) else shown.join(theirs))


def _costs(results: TableRecords) -> Table:
    """Show the benchmark's own measures, with the paper's figures."""
    published = _published(results, results.benchmark.measures)
    rows = range(len(results.rows))
    empty = [NOTHING if row in set(results.frame["row"]) else MISSING for row in rows]
    frame = pd.DataFrame(index=rows)
    for key in results.benchmark.measures:
        title, means = COLUMNS[key].title, _mean_text(results, key)
        frame[title] = means.where(means != NOTHING, empty)
        if not published.isna().all(axis=None):
            frame[f"paper: {title}"] = [_entry(figure, COLUMNS[key].digits) for figure in published[key]]
    return _table(results, "Means over targets and seeds.", frame)


PLAIN = ("kmeans", "kmeans-100", "umap")
"""Methods that a user would choose instead of this package."""

TaskRuns = dict[tuple[str, str, str], dict[int, float]]
"""Accuracies by data set, target and subset, and within these by seed."""

_COMPARED = (
    "Points of accuracy above {}, paired by task and seed, with 95 % intervals: for these tasks with other "
    "seeds (Satterthwaite's t), and for other tasks too (two-level bootstrap; rough with so few tasks). "
    "Targets that show the same objects are not independent, and are drawn together."
)


def _comparisons(results: TableRecords) -> list[Table]:
    """Compare every row with its reference, paired by task and seed, in one table for each reference."""
    lines: dict[RowKey, list[tuple[str, ...]]] = defaultdict(list)
    for row in results.rows:
        ours = reference(results, row)
        if row != ours:
            compared = _compare(_by_task(results, row), _by_task(results, ours))
            lines[ours].append((results.title(row), *compared))
    return [
        Table(_COMPARED.format(results.title(ours)), pd.DataFrame(compared, columns=_COMPARISON))
        for ours, compared in lines.items()
    ]


def _above_plain(results: TableRecords) -> list[Table]:
    """Compare every other row with the best plain clustering of each task, if UMAP is among them."""
    lines = []
    for row in results.rows:
        rivals = [other for other in results.rows if other.method in PLAIN and other.variant == row.variant]
        if row in rivals or "umap" not in {rival.method for rival in rivals}:
            continue
        runs = [_by_task(results, rival) for rival in rivals]
        best = {
            task: max((of_rival[task] for of_rival in runs), key=lambda own: float(np.mean([*own.values()])))
            for task in runs[0]
            if all(task in of_rival for of_rival in runs)
        }
        lines.append((results.title(row), *_compare(_by_task(results, row), best)))
    title = (
        "Points of accuracy above the best of what a user could have had: k-means or UMAP + k-means, "
        "whichever is better on average on a target. Ground truth makes that choice."
    )
    return [Table(title, pd.DataFrame(lines, columns=_COMPARISON))] if lines else []


_COMPARISON = ("method", "difference", "other seeds", "other tasks", "tasks", "independent", "pairs")


def _compare(ours: TaskRuns, theirs: TaskRuns) -> tuple[str, ...]:
    """Compare the runs of two rows; targets that show the same objects count as one independent task."""
    found = compare(ours, theirs, group=lambda task: (task[0], objects_in(task[0], task[1])))
    if found is None:
        return (NOTHING,) * 6
    counts = (str(found.tasks), str(found.groups), str(found.pairs))
    return f"{found.difference:+.1f}", _interval(found.over_seeds), _interval(found.over_tasks), *counts


def _by_task(results: TableRecords, row: RowKey) -> TaskRuns:
    """Return the accuracies of a row by task and seed; another subset is another task."""
    found: TaskRuns = defaultdict(dict)
    for line in results.frame[results.frame["row"] == results.rows.index(row)].itertuples():
        found[line.dataset, line.target, line.subset][line.seed] = line.accuracy
    return dict(found)


def _table(results: TableRecords, title: str, frame: pd.DataFrame) -> Table:
    """Put the names of the rows before a table; names of reference rows are bold."""
    names = [results.title(row) for row in results.rows]
    bold = [row == reference(results, row) for row in results.rows]
    frame.insert(0, "method", [f"**{n}**" if own else n for n, own in zip(names, bold, strict=True)])
    return Table(title, frame)


def _wide(values: pd.Series, rows: Iterable[int], targets: Sequence[str]) -> pd.DataFrame:
    """Lay values by row and target out as a table with all rows and targets."""
    return values.unstack("target").reindex(index=list(rows), columns=list(targets))


def _mean_text(results: TableRecords, key: str) -> pd.Series:
    """Write the mean of a column over all records of each row."""
    means = results.frame.groupby("row")[key].mean().reindex(range(len(results.rows)))
    return means.map(_number(NOTHING, COLUMNS[key].digits))


def _spread(values: pd.Series) -> str:
    """Write mean, sample standard deviation and number of values."""
    deviation = f" +- {values.std():.1f}" if len(values) > 1 else ""
    return f"{values.mean():.1f}{deviation} ({len(values)})"


def _number(otherwise: str, digits: int = 1) -> Callable[[float], str]:
    """Return a function that writes a number, or ``otherwise`` if there is none."""
    return lambda value: otherwise if np.isnan(value) else f"{value:.{digits}f}"


def _interval(found: Interval) -> str:
    finite = np.isfinite([found.low, found.high]).all()
    return f"{found.low:+.1f} to {found.high:+.1f}" if finite else NOTHING


def _published(results: TableRecords, keys: Sequence[str]) -> pd.DataFrame:
    """Return the paper's figures of all rows."""
    papers = {variant.name: variant.paper for variant in results.benchmark.all_variants}
    of_rows = [papers[row.variant].get(row.method, {}) for row in results.rows]
    return pd.DataFrame([[figures.get(key) for key in keys] for figures in of_rows], columns=keys)


def _entry(figure: Published | None, digits: int = 1) -> str:
    """Write a figure of the paper: its mean, or mean and standard deviation."""
    if isinstance(figure, tuple):
        return " +- ".join(f"{value:.{digits}f}" for value in figure)
    return _number(NOTHING, digits)(_centre(figure))


def _centre(figure: Published | None) -> float:
    value = figure[0] if isinstance(figure, tuple) else figure
    return np.nan if value is None else value


def _provenance(results: TableRecords) -> list[str]:
    used = list(results.frame["record"])
    if not used:
        return ["No records yet."]

    def listed(texts: Iterable[str]) -> str:
        return ", ".join(sorted(set(texts)))

    return [
        f"{len(used)} of {results.wanted} cells have a record.",
        *dict.fromkeys(map(_origin, used)),
        f"Settings {listed(map(settings_hash, used))}; "
        f"{listed('{device} ({threads} threads)'.format_map(record) for record in used)}; "
        f"torch {listed(record['versions']['torch'] for record in used)}.",
        f"Revisions {listed(record['revision'] for record in used)}.",
        "Seconds leave out cached features; SO, AO and PCD include stage 1.",
        "Generated by `ucds table` from the records in `runs.jsonl`; do not edit.",
    ]


def _origin(record: Record) -> str:
    pair = " -> ".join(dict.fromkeys((record["source_backbone"], record["backbone"])))
    both = " -> ".join(dict.fromkeys((record["source_weights"], record["weights"])))
    return f"Backbone {pair}, weights {both}, data {record['data']}."
