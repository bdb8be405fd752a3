"""Chooses the records that a benchmark's table and figures are made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ucds.experiments.grid import Benchmark, Cell
from ucds.experiments.methods import method_named
from ucds.experiments.records import identity_in, identity_of, origin_of
from ucds.experiments.scoring import Record


class RowKey(NamedTuple):
    """A row of a table: a method under a variant."""

    variant: str
    method: str


@dataclass(frozen=True)
class TableRecords:
    """The records that count in a benchmark."""

    benchmark: Benchmark
    rows: tuple[RowKey, ...]  # in the order of the table
    runs: Mapping[tuple[RowKey, str, str], Mapping[int, Record]]  # by row, data set and target; by seed
    wanted: int  # number of cells of the whole grid

    def of_row(self, row: RowKey) -> list[Record]:
        """Return all records of a row."""
        return [record for key, runs in self.runs.items() if key[0] == row for record in runs.values()]

    def of(self, row: RowKey, dataset: str, target: str) -> Mapping[int, Record]:
        """Return the record of each seed in an entry of the table."""
        return self.runs.get((row, dataset, target), {})

    def title(self, row: RowKey) -> str:
        """Return the title of a row: the method, the variant, or both where both vary."""
        title = method_named(row.method).title
        if not row.variant:
            return title
        several = len({other.method for other in self.rows}) > 1
        return f"{title}, {row.variant}" if several else row.variant

    @property
    def used(self) -> list[Record]:
        """All records that count."""
        return [record for runs in self.runs.values() for record in runs.values()]


def collect(benchmark: Benchmark, records: Sequence[Record]) -> TableRecords:
    """Choose the records that belong to a benchmark as it is now.

    A record counts if it has the settings, encoder and seed of a cell, and the weights and data of the latest
    such record. Of several records of one cell the latest counts; one made for the cell's own variant wins
    over one that was made for another variant of equal meaning.
    """
    cells: dict[str, list[Cell]] = defaultdict(list)
    for cell in benchmark.cells():
        cells[identity_of(cell)].append(cell)
    fitting = [(record, identity_in(record)) for record in records]
    fitting = [(record, identity) for record, identity in fitting if identity in cells]
    latest = {_made_alike(cells[identity][0]): origin_of(record) for record, identity in fitting}
    runs: dict[tuple[RowKey, str, str], dict[int, Record]] = defaultdict(dict)
    for record, identity in fitting:
        for cell in cells[identity]:
            if latest[_made_alike(cell)] != origin_of(record):
                continue
            found = runs[RowKey(cell.variant, cell.method), cell.dataset, cell.target]
            known = found.get(cell.seed)
            if known is None or record["variant"] == cell.variant or known["variant"] != cell.variant:
                found[cell.seed] = record
    rows = tuple(
        RowKey(variant.name, method)
        for variant in benchmark.all_variants
        for method in benchmark.methods_of(variant)
    )
    return TableRecords(benchmark, rows, dict(runs), sum(map(len, cells.values())))


def _made_alike(cell: Cell) -> object:
    """Return a key of the cells that must be made from the same weights and data to stand in one table."""
    condition = cell.condition
    return cell.dataset, condition.source, condition.target, method_named(cell.method).encoders
