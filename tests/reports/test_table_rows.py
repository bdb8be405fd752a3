"""Tests of choosing the records that count in a table."""

from typing import Any

import pytest
from grid_kit import record

from ucds.experiments.grid import Benchmark
from ucds.reports.table_rows import RowKey, collect

pytestmark = pytest.mark.torch


def benchmark(*variants: str) -> Benchmark:
    """A grid of one cell, and variants that mean the same by other names."""
    grid = {"backbone": "net", "targets": ["a"], "methods": ["pcd"], "seeds": [0]}
    return Benchmark(**{"title": "T", "grid": grid, "variants": [{"name": name} for name in variants]})


def made(variant: str, accuracy: float) -> dict[str, Any]:
    return record("pcd", "a", 0, accuracy, variant=variant, settings={})


def chosen(asked: Benchmark, records: list[dict[str, Any]]) -> dict[str, float]:
    """The accuracy in each row."""
    found = collect(asked, records)
    entries = {row.variant: found.of(row, "", "a") for row in found.rows}
    return {variant: runs[0]["accuracy"] for variant, runs in entries.items() if runs}


def test_the_latest_record_serves_every_row_that_means_the_same() -> None:
    for records in ([("", 0.1)], [("again", 0.2), ("", 0.1)], [("twin", 0.2), ("gone", 0.1)]):
        found = chosen(benchmark("again", "twin"), [made(*given) for given in records])
        assert found == {"": 0.1, "again": 0.1, "twin": 0.1}


def test_all_cells_are_wanted_and_each_record_is_used_where_it_counts() -> None:
    found = collect(benchmark("again"), [made("", 0.1), made("", 0.2)])
    assert found.wanted == 2
    assert [used["accuracy"] for used in found.frame["record"]] == [0.2, 0.2]
    assert found.of(RowKey("again", "kmeans"), "", "a") == {}


def test_rows_have_the_title_of_what_varies() -> None:
    asked = benchmark("again")
    one = collect(asked, [])
    assert (one.title(RowKey("", "pcd")), one.title(RowKey("again", "pcd"))) == ("PCD", "again")
    several = asked.model_copy(update={"grid": asked.grid.model_copy(update={"methods": ("pcd", "to")})})
    assert collect(several, []).title(RowKey("again", "to")) == "TO, again"
