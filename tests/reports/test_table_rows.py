"""Tests of choosing the records that count in a table."""

from __future__ import annotations

from typing import Any

import pytest
from grid_kit import record

from ucds.experiments.grid import Benchmark
from ucds.reports.table_rows import RowKey, collect


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


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        # One record serves every row that means the same.
        ([("", 0.1)], {"": 0.1, "again": 0.1, "twin": 0.1}),
        # A record that was made for a row's own variant wins there, in whichever order they come.
        ([("", 0.1), ("again", 0.2)], {"": 0.1, "again": 0.2, "twin": 0.2}),
        ([("again", 0.2), ("", 0.1)], {"": 0.1, "again": 0.2, "twin": 0.1}),
        # Of several of its own, and of several of others, the latest.
        ([("again", 0.2), ("again", 0.3), ("", 0.1)], {"": 0.1, "again": 0.3, "twin": 0.1}),
        # A variant that the benchmark no longer has is one of the others.
        ([("twin", 0.4), ("gone", 0.5)], {"": 0.5, "again": 0.5, "twin": 0.4}),
    ],
)
def test_a_record_of_ones_own_variant_wins_over_a_later_one(
    records: list[tuple[str, float]], expected: dict[str, float]
) -> None:
    assert chosen(benchmark("again", "twin"), [made(*given) for given in records]) == expected


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
