"""Tests of the figures of a benchmark: drawn from records alone, or said to be missing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grid_kit import record

from ucds.errors import UserError
from ucds.experiments.cells import POINTS
from ucds.experiments.grid import Benchmark
from ucds.experiments.points import read_points
from ucds.reports import figures
from ucds.reports.benchmark_figures import draw_figures
from ucds.reports.table_rows import collect

KNOWN = {
    "classes": ["x", "y"],
    "true_proportions": [0.75, 0.25],
    "estimated_proportions": [0.7, 0.3],
}


def benchmark(*pictures: dict[str, Any], **changes: Any) -> Benchmark:
    grid = {"backbone": "net", "targets": ["a", "b"], "methods": ["to", "pcd"], "seeds": [0, 1]}
    return Benchmark(**{"title": "T", "grid": grid, "figures": pictures} | changes)


def drawn(asked: Benchmark, records: list[dict[str, Any]], folder: Path) -> list[str]:
    return draw_figures(collect(asked, records), folder)


def made(method: str, target: str, seed: int, accuracy: float, **more: Any) -> dict[str, Any]:
    return record(method, target, seed, accuracy, **{"settings": {}} | more)


def test_proportions_of_the_run_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(figures, "proportions", lambda *arguments: shown.append(arguments))
    asked = benchmark({"kind": "proportions", "target": "b", "seed": 1, "name": "bars"})
    other = KNOWN | {"true_proportions": [0.5, 0.5]}
    records = [made("pcd", "b", 1, 0.5, **KNOWN), made("pcd", "a", 1, 0.5, **other)]
    (text,) = drawn(asked, records, tmp_path / "small")
    assert shown == [([0.75, 0.25], [0.7, 0.3], ["x", "y"], tmp_path / "small" / "bars")]
    assert text == "![True and estimated proportions of b, PCD, seed 1](small/bars.svg)"


def test_figures_are_written_in_both_formats(tmp_path: Path) -> None:
    drawn(benchmark({"kind": "proportions"}), [made("pcd", "a", 0, 0.5, **KNOWN)], tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"proportions.svg", "proportions.png"}


def test_what_a_figure_lacks_is_said(tmp_path: Path) -> None:
    asked = benchmark({"kind": "proportions"}, {"kind": "tsne"}, {"kind": "sensitivity"})
    assert drawn(asked, [], tmp_path) == [
        "Figure proportions: missing (no record of pcd on a with seed 0).",
        "Figure tsne: missing (no record of pcd on a with seed 0).",
        "Figure sensitivity: missing (no records of two weights of one loss on a).",
    ]
    old = [made("pcd", "a", 0, 0.5)]
    for text in drawn(asked, old, tmp_path)[:2]:
        assert "the record is older than the figure" in text
    lost = [made("pcd", "a", 0, 0.5, points="gone.npz")]
    assert "gone.npz is missing or damaged" in drawn(asked, lost, tmp_path)[1]
    assert not list(tmp_path.iterdir())


def test_without_seaborn_a_figure_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "seaborn", None)
    (text,) = drawn(benchmark({"kind": "proportions"}), [made("pcd", "a", 0, 0.5, **KNOWN)], tmp_path)
    assert text == "Figure proportions: missing (figures need seaborn: pip install 'ucds[figures]')."


def test_points_are_drawn_beside_each_other(tmp_path: Path) -> None:
    (tmp_path / POINTS).mkdir()
    rng = np.random.default_rng(0)
    for method in ("to", "pcd"):
        np.savez(
            tmp_path / POINTS / f"{method}.npz",
            samples=rng.normal(size=(9, 2)),
            prototypes=rng.normal(size=(2, 2)),
            classes=np.arange(9) % 2,
            total=9,
        )
    records = [made(m, "a", 0, accuracy, points=f"{m}.npz") for m, accuracy in (("to", 0.5), ("pcd", 0.75))]
    (text,) = drawn(benchmark({"kind": "tsne", "methods": ["to", "pcd"]}), records, tmp_path)
    assert text.startswith("![Features of a in the plane, seed 0: TO (50.0 %), PCD (75.0 %)](")
    assert (tmp_path / "tsne.svg").is_file()


def test_damaged_points_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"PK no archive")
    with pytest.raises(UserError, match=r"x\.npz is missing or damaged"):
        read_points(tmp_path, "x.npz")


def test_lines_of_a_sensitivity_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(figures, "sensitivity", lambda lines, path: shown.append(lines))
    asked = benchmark(
        {"kind": "sensitivity", "methods": ["pcd"]},
        sweeps=[
            {"setting": "mixing_weight", "values": [5.0, 0.6]},
            {"setting": "transport_weight", "values": [2.0]},
            {"setting": "information_weight", "values": [2.0]},
        ],
    )
    records = [
        made("pcd", "a", 0, 0.5),
        made("pcd", "a", 1, 0.6),
        made("pcd", "a", 0, 0.3, settings={"mixing_weight": 5.0}),
        made("pcd", "a", 0, 0.4, settings={"mixing_weight": 0.6}),
        made("pcd", "b", 0, 0.9, settings={"mixing_weight": 0.6}),
        made("pcd", "a", 1, 0.7, settings={"transport_weight": 2.0}),
    ]
    drawn(asked, records, tmp_path)
    (lines,) = shown
    own = pytest.approx([50.0, 60.0])
    assert list(lines) == ["CutMix", "transport"]  # of the information there is the grid's own weight only
    assert lines["CutMix"] == {0.6: pytest.approx([40.0]), 1.0: own, 5.0: pytest.approx([30.0])}
    assert list(lines["CutMix"]) == [0.6, 1.0, 5.0]
    assert lines["transport"] == {1.0: own, 2.0: pytest.approx([70.0])}


def test_the_grids_own_weight_is_the_one_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(figures, "sensitivity", lambda lines, path: shown.append(lines))
    asked = benchmark(
        {"kind": "sensitivity"},
        settings={"mixing_weight": 3.0},
        sweeps=[{"setting": "mixing_weight", "values": [5.0]}],
    )
    drawn(
        asked,
        [made("pcd", "a", 0, 0.5, settings={"mixing_weight": weight}) for weight in (3.0, 5.0)],
        tmp_path,
    )
    assert list(shown[0]["CutMix"]) == [3.0, 5.0]
