"""Tests of pages: which records count, figures by hand, what is missing, what is compared with what."""

from pathlib import Path
from typing import Any

import pytest
from grid_kit import record

from ucds.config import PCDSettings
from ucds.experiments.grid import Benchmark
from ucds.experiments.records import FILE, append_record
from ucds.reports.table_rows import RowKey, collect
from ucds.reports.tables import all_tables, page, reference, write_table

pytestmark = pytest.mark.torch


def benchmark(*, grid: dict[str, Any] | None = None, **changes: Any) -> Benchmark:
    usual = {"backbone": "net", "targets": ["a", "b"], "methods": ["kmeans", "pcd"], "seeds": [0, 1, 2]}
    values = {"settings": {"pcd": {"epsilon": 0.02}}, "paper": {"pcd": {"a": 46.8}}} | changes
    return Benchmark(title="Small", grid=usual | (grid or {}), **values)


RECORDS = [
    record("kmeans", "a", 0, 0.60, nmi=0.4),
    record("kmeans", "a", 1, 0.70, nmi=0.6),
    record("kmeans", "a", 2, 0.80, nmi=0.8),
    record("kmeans", "b", 0, 0.30, nmi=0.2, seconds=6.0),
    record("pcd", "a", 0, 0.50, oracle_accuracy=0.55, proportions_l1=0.1, uniform_l1=0.3),
]


def text_of(asked: Benchmark, records: list[dict[str, Any]]) -> str:
    results = collect(asked, records)
    return page(results, all_tables(results), [])


@pytest.fixture(scope="module")
def text() -> str:
    """The page of the records above."""
    return text_of(benchmark(), RECORDS)


def rows(text: str, first: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith(f"| {first}")
    ]


def test_mean_and_standard_deviation_by_hand(text: str) -> None:
    accuracy, compared, other = rows(text, "frozen k-means")
    # 60, 70, 80: mean 70, sample standard deviation 10. The mean over targets is of their means.
    assert accuracy[1:] == ["70.0 +- 10.0 (3)", "30.0 (1)", "50.0", "-", "-", "-"]
    assert compared[1:] == ["+10.0", "-", "-", "1", "1", "1"]
    # NMI over all four records: (40 + 60 + 80 + 20) / 4; seconds: (2 + 2 + 2 + 6) / 4.
    assert other[1:] == ["50.0", "25.0", "-", "-", "-", "3.0", "-", "-", "100"]


def test_what_is_missing_is_called_missing_and_the_papers_figures_stand_beside(text: str) -> None:
    accuracy, other = rows(text, r"**PCD**")
    assert accuracy[1:] == ["50.0 (1)", "missing", "missing", "46.8", "-", "-"]
    assert other[1:] == ["50.0", "25.0", "55.0", "0.10", "0.30", "2.0", "-", "-", "100"]
    assert rows(text, "method")[0][1:] == ["a", "b", "mean", "paper a", "paper b", "paper mean"]
    assert "5 of 12 cells have a record." in text
    assert text_of(benchmark(), []).endswith("No records yet.\n")
    assert rows(text_of(benchmark(paper={}), RECORDS), "method")[0][1:] == ["a", "b", "mean"]
    whole = text_of(benchmark(paper={"pcd": {"a": 40.0, "b": [60.0, 2.5]}}), RECORDS)
    assert rows(whole, r"**PCD**")[0][4:] == ["40.0", "60.0 +- 2.5", "50.0"]


@pytest.mark.parametrize(
    "other",
    [
        {"settings": PCDSettings(epsilon=0.03).model_dump(mode="json")},
        {"backbone": "x"},
        {"source_backbone": "x"},
        {"subset": "imbalanced"},
        {"pooled_source": True},
        {"start": "source weights"},
        {"seed": 7},
        {"dataset": "elsewhere"},
    ],
)
def test_records_of_other_conditions_do_not_count(other: dict[str, Any], text: str) -> None:
    strange = record("pcd", "b", 0, 0.9) | other
    assert text_of(benchmark(), [*RECORDS, strange]) == text


@pytest.mark.parametrize("other", [{"weights": "x"}, {"data": "x"}, {"source_weights": "x"}])
def test_records_of_other_files_than_the_latest_do_not_count(other: dict[str, Any], text: str) -> None:
    strange = record("pcd", "b", 0, 0.9) | other
    assert text_of(benchmark(), [strange, *RECORDS]) == text
    # If it is the latest, its files are what counts.
    assert rows(text_of(benchmark(), [*RECORDS, strange]), "**PCD**")[0][1:3] == ["missing", "90.0 (1)"]


def test_provenance_is_told(text: str) -> None:
    settings = ", ".join(sorted([PCDSettings(epsilon=0.02).hash, "none"]))
    assert "Backbone net, weights none, data aa." in text
    assert f"Settings {settings}; cpu (1 threads); torch 2." in text
    assert "Revisions 0123456789ab." in text


VARIANTS = [
    {"name": "pooled source", "pooled_source": True, "paper": {"pcd": {"a": [45.6, 1.0]}}},
    {"name": "again"},
]


def test_variants_of_one_method_are_rows_by_their_names() -> None:
    asked = benchmark(grid={"targets": ["a"], "methods": ["pcd"], "seeds": [0, 1]}, variants=VARIANTS)
    made = [record("pcd", "a", seed, 0.5 + seed / 10) for seed in (0, 1)]
    pooled = [record("pcd", "a", seed, 0.52 + seed / 10, pooled_source=True) for seed in (0, 1)]
    text = text_of(asked, [*made, *pooled])
    assert rows(text, "method")[0] == ["method", "a", "paper a"]
    assert rows(text, "**PCD**")[0][1:] == ["55.0 +- 7.1 (2)", "46.8"]
    accuracy, compared, _ = rows(text, "pooled source")
    assert accuracy[1:] == ["57.0 +- 7.1 (2)", "45.6 +- 1.0"]
    assert compared[1:] == ["+2.0", "+2.0 to +2.0", "-", "1", "1", "2"]


def test_methods_are_compared_with_pcd_of_their_own_variant() -> None:
    results = collect(benchmark(variants=VARIANTS), [])
    assert reference(results, RowKey("again", "kmeans")) == RowKey("again", "pcd")
    assert reference(results, RowKey("", "kmeans")) == RowKey("", "pcd")
    named = benchmark(variants=VARIANTS, reference="frozen k-means")
    assert reference(collect(named, []), RowKey("again", "pcd")) == RowKey("", "kmeans")


def test_without_pcd_methods_are_compared_with_the_first_of_their_own_variant() -> None:
    variants = [{"name": "V"}, {"name": "W", "methods": ["po"]}]
    results = collect(benchmark(grid={"methods": ["kmeans", "po"]}, variants=variants), [])
    assert reference(results, RowKey("V", "po")) == RowKey("V", "kmeans")
    assert reference(results, RowKey("W", "po")) == RowKey("", "kmeans")


def test_the_best_of_what_a_user_could_have_had_is_chosen_by_target() -> None:
    asked = benchmark(grid={"methods": ["kmeans", "umap", "pcd"], "seeds": [0, 1]}, paper={})
    plain = {("kmeans", "a"): 0.5, ("umap", "a"): 0.7, ("kmeans", "b"): 0.6, ("umap", "b"): 0.3}
    made = [record(m, target, seed, accuracy) for (m, target), accuracy in plain.items() for seed in (0, 1)]
    made += [record("pcd", target, seed, 0.8) for target in "ab" for seed in (0, 1)]
    text = text_of(asked, made)
    # 80 against 70 of UMAP on a, and 60 of k-means on b: 15 points on average.
    assert rows(text, "**PCD**")[-1][0] == "**PCD**"
    assert [row[1:3] for row in rows(text, "PCD |")] == [["+15.0", "+15.0 to +15.0"]]
    # Without UMAP's runs on a target nothing is said of it.
    fewer = [r for r in made if (r["method"], r["target"]) != ("umap", "b")]
    assert rows(text_of(asked, fewer), "PCD |")[0][1:5:3] == ["+10.0", "1"]


def test_a_part_of_the_samples_is_another_task() -> None:
    asked = benchmark(variants=[{"name": "part", "subset": "imbalanced"}], reference="PCD")
    part = record("pcd", "a", 0, 0.1, subset="imbalanced")
    compared = rows(text_of(asked, [*RECORDS, part]), "PCD, part")[1]
    assert compared[1:] == ["-"] * 6


def test_targets_that_show_the_same_objects_are_one_independent_task() -> None:
    domains = ["amazon", "webcam", "dslr"]
    asked = benchmark(grid={"dataset": "office31", "targets": domains}, paper={})
    made = [
        record(method, target, seed, accuracy, dataset="office31")
        for method, accuracy in (("kmeans", 0.5), ("pcd", 0.4))
        for target in domains
        for seed in (0, 1)
    ]
    compared = rows(text_of(asked, made), "frozen k-means")[1]
    assert compared[1:] == ["+10.0", "+10.0 to +10.0", "+10.0 to +10.0", "3", "2", "6"]


def test_each_data_set_has_a_table() -> None:
    asked = benchmark(grid={"targets": {"one": ["a"], "two": ["a", "b"]}, "methods": ["pcd"]}, paper={})
    made = [record("pcd", "a", 0, 0.5, dataset="one"), record("pcd", "a", 0, 0.7, dataset="two")]
    first, second, *_ = rows(text_of(asked, made), "**PCD**")
    assert first[1:] == ["50.0 (1)"]
    assert second[1:] == ["70.0 (1)", "missing", "missing"]


def test_a_table_of_costs() -> None:
    asked = benchmark(
        measures=["parameters", "seconds_per_batch"], paper={"pcd": {"parameters": 11.32}}, note="Why."
    )
    made = [
        record("pcd", "a", 0, 0.5, parameters=11_316_288, images_per_second=640.0),
        record("pcd", "b", 0, 0.5, parameters=11_316_288, images_per_second=320.0),
    ]
    text = text_of(asked, made)
    assert "\n\nWhy.\n\n" in text
    # 64 images take 0.1 and 0.2 seconds.
    assert rows(text, "**PCD**") == [["**PCD**", "11.32", "11.32", "0.150", "-"]]
    assert rows(text, "frozen")[0][1:] == ["missing", "-", "missing", "-"]
    without = asked.model_copy(update={"paper": {}})
    assert rows(text_of(without, made), "**PCD**") == [["**PCD**", "11.32", "0.150"]]


def test_a_page_is_written_from_the_records_on_disk(tmp_path: Path, text: str) -> None:
    for record_ in RECORDS:
        append_record(tmp_path / "small" / FILE, record_)
    assert write_table(benchmark(), tmp_path / "small") == text
    assert (tmp_path / "small.md").read_text() == text


def alike(*variants: str) -> Benchmark:
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
        found = chosen(alike("again", "twin"), [made(*given) for given in records])
        assert found == {"": 0.1, "again": 0.1, "twin": 0.1}


def test_all_cells_are_wanted_and_each_record_is_used_where_it_counts() -> None:
    found = collect(alike("again"), [made("", 0.1), made("", 0.2)])
    assert found.wanted == 2
    assert [used["accuracy"] for used in found.frame["record"]] == [0.2, 0.2]
    assert found.of(RowKey("again", "kmeans"), "", "a") == {}


def test_rows_have_the_title_of_what_varies() -> None:
    asked = alike("again")
    one = collect(asked, [])
    assert (one.title(RowKey("", "pcd")), one.title(RowKey("again", "pcd"))) == ("PCD", "again")
    several = asked.model_copy(update={"grid": asked.grid.model_copy(update={"methods": ("pcd", "to")})})
    assert collect(several, []).title(RowKey("again", "to")) == "TO, again"
