"""Tests of the figures of a benchmark: drawn from records alone, or said to be missing."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grid_kit import record
from PIL import Image

from ucds.experiments.grid import Benchmark
from ucds.experiments.methods import method_named
from ucds.reports import COLOURS, figures
from ucds.reports.figures import draw_figures
from ucds.reports.table_rows import collect

Draw = Callable[[Path], None]

NAMES = ("cat", "dog", "owl")
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
    asked = benchmark({"kind": "proportions", "target": "b"})
    other = KNOWN | {"true_proportions": [0.5, 0.5]}
    records = [made("pcd", "b", 0, 0.5, **KNOWN), made("pcd", "a", 0, 0.5, **other)]
    (text,) = drawn(asked, records, tmp_path / "small")
    assert shown == [([0.75, 0.25], [0.7, 0.3], ["x", "y"], tmp_path / "small" / "proportions")]
    assert text == "![True and estimated proportions of b, PCD, seed 0](small/proportions.svg)"


def test_figures_are_written_in_both_formats(tmp_path: Path) -> None:
    drawn(benchmark({"kind": "proportions"}), [made("pcd", "a", 0, 0.5, **KNOWN)], tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"proportions.svg", "proportions.png"}


def test_features_of_two_methods_lie_beside_each_other(tmp_path: Path) -> None:
    plane = {"sample_classes": [0, 1, 12, 12], "prototype_points": [[0.0, 1.0], [2.0, 1.0]]}
    plane |= {"sample_points": [[0.0, 0.5], [2.0, 0.5], [1.0, 3.0], [1.5, 3.0]]}
    records = [made(method, "a", 0, accuracy, **plane) for method, accuracy in (("to", 0.5), ("pcd", 0.75))]
    (text,) = drawn(benchmark({"kind": "tsne"}), records, tmp_path / "small")
    titles = f"{method_named('to').title} (50.0 %), PCD (75.0 %)"
    assert text == f"![Features of a in the plane, seed 0: {titles}](small/tsne.svg)"
    with Image.open(tmp_path / "small" / "tsne.png") as picture:
        shown = picture.convert("RGB")
    colours = {f"#{r:02X}{g:02X}{b:02X}" for _, (r, g, b) in shown.getcolors(2**24) or ()}
    assert {COLOURS[0], COLOURS[1], COLOURS[2]} <= colours  # the thirteenth class has the third's colour


def test_what_a_figure_lacks_is_said(tmp_path: Path) -> None:
    asked = benchmark({"kind": "proportions"}, {"kind": "sensitivity"}, {"kind": "tsne"})
    assert drawn(asked, [], tmp_path) == [
        "Figure proportions: missing (no record of pcd on a with seed 0).",
        "Figure sensitivity: missing (no records of two weights of one loss on a).",
        "Figure tsne: missing (no record of to on a with seed 0).",
    ]
    old = [made("pcd", "a", 0, 0.5)]
    assert "the record is older than the figure" in drawn(asked, old, tmp_path)[0]
    assert not list(tmp_path.iterdir())


def test_without_seaborn_a_figure_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "seaborn", None)
    (text,) = drawn(benchmark({"kind": "proportions"}), [made("pcd", "a", 0, 0.5, **KNOWN)], tmp_path)
    assert text == "Figure proportions: missing (figures need seaborn: pip install 'ucds[figures]')."


def test_lines_of_a_sensitivity_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(figures, "sensitivity", lambda lines, path: shown.append(lines))
    asked = benchmark(
        {"kind": "sensitivity"},
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
        settings={"pcd": {"mixing_weight": 3.0}},
        sweeps=[{"setting": "mixing_weight", "values": [5.0]}],
    )
    drawn(
        asked,
        [made("pcd", "a", 0, 0.5, settings={"mixing_weight": weight}) for weight in (3.0, 5.0)],
        tmp_path,
    )
    assert list(shown[0]["CutMix"]) == [3.0, 5.0]


def draw_proportions(path: Path) -> None:
    figures.proportions([0.5, 0.3, 0.2], [0.4, 0.3, 0.2, 0.1], NAMES, path)


def draw_sensitivity(path: Path) -> None:
    lines = {"CutMix": {0.6: [60.0, 62.0], 1.0: [63.0], 5.0: [40.0, 44.0]}, "transport": {1.0: [63.0, 61.0]}}
    figures.sensitivity(lines, path)


@pytest.fixture
def text_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes text in SVG files as text, for tests to read."""
    monkeypatch.setitem(figures.STYLE, "svg.fonttype", "none")


def svg_texts(path: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", path.with_suffix(".svg").read_text(encoding="utf-8"))


@pytest.mark.parametrize("draw", [draw_proportions, draw_sensitivity])
def test_both_formats_are_written_and_equal_data_give_equal_files(draw: Draw, tmp_path: Path) -> None:
    for path in (tmp_path / "a" / "figure.png", tmp_path / "b" / "figure"):
        draw(path)
    for suffix in (".png", ".svg"):
        one, other = (tmp_path / name / f"figure{suffix}" for name in "ab")
        assert one.read_bytes() == other.read_bytes()
        assert b"dc:date" not in one.read_bytes()
    assert len(list((tmp_path / "a").iterdir())) == 2
    with Image.open(tmp_path / "a" / "figure.png") as image:
        assert image.width == figures.PAGE_WIDTH * figures.DOTS_PER_INCH
        assert np.ptp(np.asarray(image.convert("L"))) > 200


def test_the_callers_settings_stay_untouched(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, matplotlib; before = matplotlib.rcParams.copy();"
        "from ucds.reports import figures;"
        "figures.proportions([1.0], [1.0], ['a'], pathlib.Path(sys.argv[1]));"
        "sys.exit(matplotlib.rcParams.copy() != before)"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path / "figure"], check=False).returncode == 0


@pytest.mark.usefixtures("text_as_text")
def test_proportions_say_their_distances(tmp_path: Path) -> None:
    """By hand: |0.5 - 0.4| + 0.1 of no class = 0.2; uniform 1/6 + 1/30 + 4/30 = 1/3."""
    draw_proportions(tmp_path / "proportions")
    texts = svg_texts(tmp_path / "proportions")
    assert "L1 distance to the true proportions: estimated 0.200, uniform 0.333" in texts
    assert {*NAMES, "no class", "true", "estimated", "uniform"} <= set(texts)


def test_the_uniform_line_is_the_share_of_a_class_when_all_are_equal(tmp_path: Path) -> None:
    """Clusters without a class have bars, but no share of the line."""
    figures.proportions([0.5, 0.5], [0.4, 0.3, 0.2, 0.1], ("cat", "dog"), tmp_path / "f")
    svg = (tmp_path / "f.svg").read_text()
    (line,) = re.findall(r'd="M [\d.]+ ([\d.]+) \nL [\d.]+ ([\d.]+) \n"[^>]*stroke-dasharray', svg)
    colour = COLOURS[0].lower()
    (bar, *_) = re.findall(rf'd="(M [^"]*z)\n"[^>]*fill: {colour}', svg)
    assert line[0] == line[1] == min(re.findall(r"[ML] [\d.]+ ([\d.]+)", bar), key=float)


@pytest.mark.usefixtures("text_as_text")
def test_weights_and_losses_are_named(tmp_path: Path) -> None:
    draw_sensitivity(tmp_path / "lines")
    texts = svg_texts(tmp_path / "lines")
    assert {"0.6", "1", "5", "CutMix", "transport", "weight of the loss"} <= set(texts)
