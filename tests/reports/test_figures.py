"""Tests of the figures of a benchmark: drawn from records alone, or said to be missing."""

import re
import sys
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import seaborn
from grid_kit import record
from PIL import Image

from ucds.experiments.grid import Benchmark
from ucds.experiments.methods import method_named
from ucds.reports import COLOURS, figures
from ucds.reports.figures import draw_figures
from ucds.reports.table_rows import collect

pytestmark = pytest.mark.torch

KNOWN = {"classes": ["x", "y"], "true_proportions": [0.75, 0.25], "estimated_proportions": [0.7, 0.3]}


def benchmark(*pictures: dict[str, Any], **changes: Any) -> Benchmark:
    grid = {"backbone": "net", "targets": ["a", "b"], "methods": ["to", "pcd"], "seeds": [0, 1]}
    return Benchmark(**{"title": "T", "grid": grid, "figures": pictures} | changes)


def drawn(asked: Benchmark, records: list[dict[str, Any]], folder: Path) -> list[str]:
    return draw_figures(collect(asked, records), folder)


def made(method: str, target: str, seed: int, accuracy: float, **more: Any) -> dict[str, Any]:
    return record(method, target, seed, accuracy, **{"settings": {}} | more)


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
        "Figure proportions: missing (there is no record of pcd on a with seed 0).",
        "Figure sensitivity: missing (there are no records of two weights of one loss on a).",
        "Figure tsne: missing (there is no record of to on a with seed 0).",
    ]
    old = [made("pcd", "a", 0, 0.5)]
    assert "the record lacks what the figure shows" in drawn(asked, old, tmp_path)[0]
    assert not list(tmp_path.iterdir())


def test_without_seaborn_a_figure_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "seaborn", None)
    (text,) = drawn(benchmark({"kind": "proportions"}), [made("pcd", "a", 0, 0.5, **KNOWN)], tmp_path)
    assert (
        text == "Figure proportions: missing (a figure needs further packages: pip install 'ucds[figures]')."
    )


SENSITIVE = {
    "settings": {"pcd": {"information_weight": 3.0}},
    "sweeps": [
        {"setting": "mixing_weight", "values": [5.0, 0.6]},
        {"setting": "transport_weight", "values": [2.0]},
        {"setting": "information_weight", "values": [2.0, 3.0]},
        {"setting": "distillation_weight", "values": [2.0]},
    ],
}


def weighted(seed: int, accuracy: float, **weights: float) -> dict[str, Any]:
    return made("pcd", "a", seed, accuracy, settings={"information_weight": 3.0} | weights)


WEIGHTED = [
    weighted(0, 0.5),
    weighted(1, 0.6),
    weighted(0, 0.3, mixing_weight=5.0),
    weighted(0, 0.4, mixing_weight=0.6),
    weighted(0, 0.9, mixing_weight=0.6) | {"target": "b"},
    weighted(1, 0.7, transport_weight=2.0),
    weighted(1, 0.8, information_weight=2.0),
]


def test_lines_of_a_sensitivity_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has the grid's own weight, whatever it is; one with no other weight is no line."""
    shown: dict[str, Any] = {}
    lineplot = seaborn.lineplot
    monkeypatch.setattr(seaborn, "lineplot", lambda **given: (shown.update(given), lineplot(**given)))
    drawn(benchmark({"kind": "sensitivity"}, **SENSITIVE), WEIGHTED, tmp_path)
    points = list(zip(shown["hue"], shown["x"], [round(y, 6) for y in shown["y"]], strict=True))
    assert points == [
        *(("CutMix", 0.6, 40.0), ("CutMix", 1.0, 50.0), ("CutMix", 1.0, 60.0), ("CutMix", 5.0, 30.0)),
        *(("transport", 1.0, 50.0), ("transport", 1.0, 60.0), ("transport", 2.0, 70.0)),
        *(("mutual information", 2.0, 80.0), ("mutual information", 3.0, 50.0)),
        ("mutual information", 3.0, 60.0),
    ]


NAMES = ("cat", "dog", "owl")
UNEVEN = {"true_proportions": [1 / 3, 1 / 2, 1 / 6], "estimated_proportions": [0.4, 0.3, 0.2, 0.1]}
"""Shares of three classes, the first of them a third, and of four clusters, the last of no class."""


def test_proportions_are_drawn_with_their_distances_and_a_uniform_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand: 2/30 + 6/30 + 1/30 + 0.1 of no class = 0.4; of uniform ones, 0 + 1/6 + 1/6.

    Clusters without a class have bars, but no share of the line, which the first true bar touches.
    """
    monkeypatch.setitem(figures.STYLE, "svg.fonttype", "none")  # text as text, to be read here
    before = matplotlib.rcParams.copy()
    records = [made("pcd", "b", 0, 0.5, classes=NAMES, **UNEVEN), made("pcd", "a", 0, 0.5, **KNOWN)]
    asked = benchmark({"kind": "proportions", "target": "b"})
    (text,), _ = (drawn(asked, records, tmp_path / folder) for folder in ("small", "again"))
    assert text == "![True and estimated proportions of b, PCD, seed 0](small/proportions.svg)"
    assert matplotlib.rcParams.copy() == before
    for suffix in (".png", ".svg"):
        one, other = (tmp_path / folder / f"proportions{suffix}" for folder in ("small", "again"))
        assert one.read_bytes() == other.read_bytes()
        assert b"dc:date" not in one.read_bytes()
    assert len(list((tmp_path / "small").iterdir())) == 2
    with Image.open(tmp_path / "small" / "proportions.png") as image:
        assert image.width == figures.PAGE_WIDTH * figures.DOTS_PER_INCH
        assert np.ptp(np.asarray(image.convert("L"))) > 200
    svg = (tmp_path / "small" / "proportions.svg").read_text()
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert "L1 distance to the true proportions: estimated 0.400, uniform 0.333" in texts
    assert {*NAMES, "no class", "true", "estimated", "uniform"} <= set(texts)
    (line,) = re.findall(r'd="M [\d.]+ ([\d.]+) \nL [\d.]+ ([\d.]+) \n"[^>]*stroke-dasharray', svg)
    (bar, *_) = re.findall(rf'd="(M [^"]*z)\n"[^>]*fill: {COLOURS[0].lower()}', svg)
    assert line[0] == line[1] == min(re.findall(r"[ML] [\d.]+ ([\d.]+)", bar), key=float)
