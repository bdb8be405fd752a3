"""Chooses the records that a benchmark's table and figures are made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from ucds.experiments.grid import Benchmark, Cell
from ucds.experiments.methods import method_named
from ucds.experiments.records import describe, identity, origin_of
from ucds.experiments.scoring import COLUMNS, Record, column_of


class RowKey(NamedTuple):
    """A row of a table: a method under a variant."""

    variant: str
    method: str


@dataclass(frozen=True)
class TableRecords:
    """The records that count in a benchmark."""

    benchmark: Benchmark
    rows: tuple[RowKey, ...]  # in the order of the table
    frame: pd.DataFrame  # a line for each record: number of its row, task and seed, itself, and its columns
    wanted: int  # number of cells of the whole grid

    def of(self, row: RowKey, dataset: str, target: str) -> dict[int, Record]:
        """Return the record of each seed in an entry of the table."""
        lines = self.frame[self.frame["row"] == self.rows.index(row)] if row in self.rows else self.frame[:0]
        lines = lines[(lines["dataset"] == dataset) & (lines["target"] == target)]
        return dict(zip(lines["seed"], lines["record"], strict=True))

    def title(self, row: RowKey) -> str:
        """Return the title of a row: the method, the variant, or both if both vary."""
        title = method_named(row.method).title
        if not row.variant:
            return title
        several = len({other.method for other in self.rows}) > 1
        return f"{title}, {row.variant}" if several else row.variant


def collect(benchmark: Benchmark, records: Sequence[Record]) -> TableRecords:
    """Choose the records that belong to the present form of a benchmark.

    A record counts if it has the settings, encoder and seed of a cell, and the same weights and data as the
    latest such record. Of several records, the latest counts. One record serves all equal cells.
    """
    cells: dict[str, list[Cell]] = defaultdict(list)
    for cell in benchmark.cells():
        cells[identity(describe(cell))].append(cell)
    fitting = [(record, cells[key]) for record in records if (key := identity(record)) in cells]
    latest = {_made_alike(same[0]): origin_of(record) for record, same in fitting}
    rows = tuple(
        RowKey(variant.name, method)
        for variant in benchmark.all_variants
        for method in benchmark.methods_of(variant)
    )
    runs: dict[tuple[int, str, str, str, int], Record] = {}
    for record, same in fitting:
        for cell in same:
            if latest[_made_alike(cell)] == origin_of(record):
                row = rows.index(RowKey(cell.variant, cell.method))
                runs[row, cell.dataset, cell.target, record["subset"], cell.seed] = record
    lines = [
        (*entry, record, *(column_of(record, name) for name in COLUMNS)) for entry, record in runs.items()
    ]
    names = ("row", "dataset", "target", "subset", "seed", "record", *COLUMNS)
    frame = pd.DataFrame(lines, columns=names).astype(dict.fromkeys(COLUMNS, float))
    return TableRecords(benchmark, rows, frame, sum(map(len, cells.values())))


def _made_alike(cell: Cell) -> object:
    """Return a key that is equal for cells that need the same weights and data in one table."""
    condition = cell.condition
    return cell.dataset, condition.source, condition.target, method_named(cell.method).encoders
