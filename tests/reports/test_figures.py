"""Tests of the figures: what they say, that equal data give equal files, and what they refuse."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from math import gcd
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ucds.math import plane
from ucds.math.plane import to_plane
from ucds.reports import figures
from ucds.reports.figures import FigureFiles

Draw = Callable[[Path], FigureFiles]

NAMES = ("cat", "dog", "owl")


def blobs(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features ``(30, 8)`` around three prototypes ``(8, 3)``, and their classes."""
    rng = np.random.default_rng(seed)
    prototypes = rng.normal(size=(8, 3))
    classes = np.arange(30) % 3
    return prototypes.T[classes] + 0.1 * rng.normal(size=(30, 8)), prototypes, classes


def draw_proportions(path: Path) -> FigureFiles:
    return figures.proportions([0.5, 0.3, 0.2], [0.4, 0.3, 0.2, 0.1], NAMES, path)


def draw_tsne(path: Path) -> FigureFiles:
    features, prototypes, classes = blobs()
    panels = {
        "before": to_plane(features[:, :5], None, classes, 0),
        "after": to_plane(features, prototypes, classes, 0),
    }
    return figures.features_in_plane(panels, path, names=NAMES)


def draw_sensitivity(path: Path) -> FigureFiles:
    lines = {"CutMix": {0.6: [60.0, 62.0], 1.0: [63.0], 5.0: [40.0, 44.0]}, "transport": {1.0: [63.0, 61.0]}}
    return figures.sensitivity(lines, path)


@pytest.fixture
def text_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes text in SVG files as text, for tests to read."""
    monkeypatch.setitem(figures.STYLE, "svg.fonttype", "none")


def svg_texts(files: FigureFiles) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", files.svg.read_text(encoding="utf-8"))


@pytest.mark.parametrize("draw", [draw_proportions, draw_tsne, draw_sensitivity])
def test_both_formats_are_written_and_equal_data_give_equal_files(draw: Draw, tmp_path: Path) -> None:
    first, again = draw(tmp_path / "a" / "figure.png"), draw(tmp_path / "b" / "figure")
    assert first == (tmp_path / "a" / "figure.png", tmp_path / "a" / "figure.svg")
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["figure.png", "figure.svg"]
    for one, other in zip(first, again, strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert b"dc:date" not in first.svg.read_bytes()
    with Image.open(first.png) as image:
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
    texts = svg_texts(draw_proportions(tmp_path / "proportions"))
    assert "L1 distance to the true proportions: estimated 0.200, uniform 0.333" in texts
    assert {*NAMES, "no class", "true", "estimated", "uniform"} <= set(texts)


def test_the_uniform_line_is_the_share_of_a_class_when_all_are_equal(tmp_path: Path) -> None:
    """Clusters without a class have bars, but no share of the line."""
    svg = figures.proportions(
        [0.5, 0.5], [0.4, 0.3, 0.2, 0.1], ("cat", "dog"), tmp_path / "f"
    ).svg.read_text()
    (line,) = re.findall(r'd="M [\d.]+ ([\d.]+) \nL [\d.]+ ([\d.]+) \n"[^>]*stroke-dasharray', svg)
    colour = figures.COLOURS[0].lower()
    (bar, *_) = re.findall(rf'd="(M [^"]*z)\n"[^>]*fill: {colour}', svg)
    assert line[0] == line[1] == min(re.findall(r"[ML] [\d.]+ ([\d.]+)", bar), key=float)


@pytest.mark.usefixtures("text_as_text")
def test_embedding_names_classes_and_prototypes(tmp_path: Path) -> None:
    assert {*NAMES, "prototype", "before", "after"} <= set(svg_texts(draw_tsne(tmp_path / "tsne")))


@pytest.mark.usefixtures("text_as_text")
def test_many_samples_are_thinned_and_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plane, "MAX_POINTS", 20)
    assert "before (20 of 30 samples)" in svg_texts(draw_tsne(tmp_path / "tsne"))


def test_looks_tell_seventy_classes_apart() -> None:
    assert gcd(len(figures.COLOURS), len(figures.MARKERS)) == 1
    assert len({figures.colour_and_marker(klass) for klass in range(70)}) == 70


def test_degenerate_features_are_still_drawn(tmp_path: Path) -> None:
    """A collapsed model must be seen in a figure, not hide behind an error (or a crash, in scikit-learn)."""
    classes = np.arange(6) % 2
    for features in (np.zeros((6, 4)), np.ones((6, 4)), np.outer(np.arange(6), np.ones(4))):
        points = to_plane(features, np.ones((4, 2)), classes, 0)
        files = figures.features_in_plane({"collapsed": points}, tmp_path / "figure")
        assert files.svg.is_file()


@pytest.mark.usefixtures("text_as_text")
def test_weights_and_losses_are_named(tmp_path: Path) -> None:
    texts = svg_texts(draw_sensitivity(tmp_path / "lines"))
    assert {"0.6", "1", "5", "CutMix", "transport", "weight of the loss"} <= set(texts)
