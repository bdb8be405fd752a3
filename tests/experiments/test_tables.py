"""Tests of tables: figures by hand, and what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ucds.config import Config
from ucds.experiments.benchmark import Benchmark, append_records
from ucds.experiments.tables import markdown_table, write_table


def benchmark(**changes: Any) -> Benchmark:
    values: dict[str, Any] = {
        "title": "Small",
        "grid": {"backbone": "net", "targets": ["a", "b"], "methods": ["kmeans", "pcd"], "seeds": [0, 1, 2]},
        "settings": {"epsilon": 0.02},
        "paper": {"pcd": {"a": 46.8}},
    }
    return Benchmark(**values | changes)


def record(method: str, target: str, seed: int, accuracy: float, **more: Any) -> dict[str, Any]:
    config = Config(epsilon=more.pop("epsilon", 0.02))
    return {
        "method": method,
        "target": target,
        "seed": seed,
        "accuracy": accuracy,
        "nmi": 0.5,
        "ari": 0.25,
        "seconds": 2.0,
        "peak_memory_mib": 100,
        "backbone": "net",
        "weights": "none",
        "data": "aa",
        "config": config.model_dump(),
        "config_hash": config.hash,
        "device": "cpu",
        "threads": 1,
        "versions": {"torch": "2"},
    } | more


RECORDS = [
    record("kmeans", "a", 0, 0.60, nmi=0.4),
    record("kmeans", "a", 1, 0.70, nmi=0.6),
    record("kmeans", "a", 2, 0.80, nmi=0.8),
    record("kmeans", "b", 0, 0.30, nmi=0.2, seconds=6.0),
    record("pcd", "a", 0, 0.50, oracle_accuracy=0.55, proportions_l1=0.1, uniform_l1=0.3),
]


def rows(text: str, first: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith(f"| {first}")
    ]


def test_mean_and_standard_deviation_by_hand() -> None:
    text = markdown_table(benchmark(), RECORDS)
    accuracy, other = rows(text, "frozen k-means")
    # 60, 70, 80: mean 70, sample standard deviation 10. The mean over targets is of their means.
    assert accuracy[1:] == ["70.0 +- 10.0 (3)", "30.0 (1)", "50.0", "-", "-"]
    # NMI over all four records: (40 + 60 + 80 + 20) / 4; seconds: (2 + 2 + 2 + 6) / 4.
    assert other[1:] == ["50.0", "25.0", "-", "-", "-", "3.0", "100"]


def test_what_is_missing_is_called_missing_and_the_papers_figures_stand_beside() -> None:
    text = markdown_table(benchmark(), RECORDS)
    accuracy, other = rows(text, r"**PCD**")
    assert accuracy[1:] == ["50.0 (1)", "missing", "missing", "46.8", "-"]
    assert other[1:] == ["50.0", "25.0", "55.0", "0.10", "0.30", "2.0", "100"]
    assert rows(text, "method")[0][1:] == ["a", "b", "mean", "paper a", "paper b"]


def test_without_records_the_table_says_so() -> None:
    text = markdown_table(benchmark(), [])
    assert rows(text, "**PCD**")[0][1:] == ["missing", "missing", "missing", "46.8", "-"]
    assert text.endswith("No records yet.\n")


def test_without_published_figures_there_are_no_such_columns() -> None:
    text = markdown_table(benchmark(paper={}), RECORDS)
    assert rows(text, "method")[0][1:] == ["a", "b", "mean"]
    assert all(len(row) == 4 for row in rows(text, "frozen")[:1])


def test_records_of_other_settings_do_not_count() -> None:
    foreign = [record("pcd", "b", 0, 0.99, epsilon=0.03), record("kmeans", "a", 0, 0.01, epsilon=0.03)]
    assert markdown_table(benchmark(), [*RECORDS, *foreign]) == markdown_table(benchmark(), RECORDS)


def test_a_seed_counts_once_and_the_latest_record_of_it() -> None:
    text = markdown_table(benchmark(), [*RECORDS, record("pcd", "a", 0, 0.40)])
    assert rows(text, "**PCD**")[0][1] == "40.0 (1)"


def test_provenance_is_told() -> None:
    text = markdown_table(benchmark(), RECORDS)
    settings = Config(epsilon=0.02).hash
    assert "Backbone net, weights none, data aa." in text
    assert f"Settings {settings}, 5 records, cpu (1 threads), torch 2." in text


def test_every_row_of_a_table_is_as_long_as_its_head() -> None:
    lines = [line for line in markdown_table(benchmark(), RECORDS).splitlines() if line.startswith("|")]
    first, second = lines[:4], lines[4:]
    for part in (first, second):
        assert len({line.count("|") for line in part}) == 1
        assert set(part[1]) == {"|", "-", " "}


def test_a_page_is_written_from_the_records_on_disk(tmp_path: Path) -> None:
    append_records(tmp_path / "small" / "runs.jsonl", RECORDS)
    text = write_table(benchmark(), tmp_path / "small")
    assert text == markdown_table(benchmark(), RECORDS)
    (page,) = tmp_path.glob("**/*.md")
    assert page.read_text() == text


@pytest.mark.parametrize("method", ["kmeans", "po", "so", "to", "ao", "pcd"])
def test_every_method_has_a_name(method: str) -> None:
    grid = {"backbone": "net", "targets": ["a"], "methods": [method]}
    text = markdown_table(benchmark(grid=grid), [record(method, "a", 0, 0.5)])
    assert "| 50.0 (1) | 50.0 |" in text


def test_records_of_other_encoders_weights_data_and_seeds_do_not_count() -> None:
    others: list[dict[str, Any]] = [{"backbone": "x"}, {"weights": "x"}, {"data": "x"}]
    strange = [record("pcd", "b", 0, 0.9, **other) for other in others]
    strange.append(record("pcd", "b", 7, 0.9))
    page = markdown_table(benchmark(), [*strange, *RECORDS])
    row = next(line for line in page.splitlines() if "PCD" in line)
    assert row.count("missing") == 2  # target b, and therefore the mean
