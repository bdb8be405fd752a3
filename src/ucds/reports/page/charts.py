"""Charts of a report as data for its template, which draws them as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ucds.math.cluster_number import ClusterNumber
from ucds.reports.page.record import Curves

WIDTH, HEIGHT = 320.0, 120.0
"""Size of the area of a curve, in units of its drawing."""

_FLOOR, _STEP = 160.0, 26.0  # lower edge of the bars, and width of a bar with its gap


@dataclass(frozen=True)
class Curve:
    """One figure in the course of a stage.

    Attributes:
        title: name of the figure.
        path: points of the line, as SVG writes them.
        first: value at the first step.
        last: value at the last step.
        low: smallest value.
        high: largest value.
        steps: number of the last step.
    """

    title: str
    path: str
    first: str
    last: str
    low: str
    high: str
    steps: int


def draw_curves(curves: Curves) -> dict[str, list[Curve]]:
    """Lay out the curves of each stage; figures with a single value have no curve."""
    drawn = {
        stage: [_draw(name, points) for name, points in figures.items() if len(points) > 1]
        for stage, figures in curves.items()
    }
    return {stage: lines for stage, lines in drawn.items() if lines}


def _draw(name: str, points: list[tuple[int, float]]) -> Curve:
    finite = [(step, value) for step, value in points if math.isfinite(value)] or [(0, 0.0)]
    steps, values = [step for step, _ in finite], [value for _, value in finite]
    low, high = min(values), max(values)
    # A change of less than two percent must not fill the whole height.
    across, up = max(steps[-1] - steps[0], 1), max(high - low, 0.02 * max(abs(high), abs(low)), 1e-9)
    middle = (high + low) / 2
    path = " ".join(
        f"{WIDTH * (step - steps[0]) / across:.1f},{HEIGHT * (0.5 - (value - middle) / up):.1f}"
        for step, value in finite
    )
    first, last, lowest, highest = (f"{value:.4g}" for value in (values[0], values[-1], low, high))
    return Curve(name.replace("_", " "), path, first, last, lowest, highest, steps[-1])


@dataclass(frozen=True)
class Bar:
    """The share of one cluster.

    Attributes:
        number: number of the cluster.
        x: left edge of the bar.
        y: upper edge of the bar.
        height: height of the bar.
        dot: height at which the estimated share is drawn.
        share: share of the samples, in words.
        estimate: share that the model estimated, in words.
    """

    number: int
    x: float
    y: float
    height: float
    dot: float
    share: str
    estimate: str


@dataclass(frozen=True)
class Bars:
    """Shares of all clusters beside each other.

    Attributes:
        bars: one bar for each cluster.
        thick: thickness of a bar.
        width: width of the drawing.
        uniform: height at which equal shares are drawn.
    """

    bars: list[Bar]
    thick: float
    width: float
    uniform: float


def draw_bars(sizes: Sequence[int], estimated: Sequence[float]) -> Bars:
    """Lay out the shares of the clusters as bars, the estimated shares as dots, and the uniform share.

    Args:
        sizes: ``(K,)`` number of samples of each cluster.
        estimated: ``(K,)`` shares that the model estimated.
    """
    total, top = max(sum(sizes), 1), max(max(sizes) / max(sum(sizes), 1), *estimated, 1 / len(sizes))

    def level(share: float) -> float:
        return round(_FLOOR - (_FLOOR - 10) * share / top, 1)

    bars = [
        Bar(
            number=number,
            x=round(number * _STEP + _STEP * 0.1, 1),
            y=level(size / total),
            height=round(_FLOOR - level(size / total), 1),
            dot=level(estimate),
            share=f"{size / total:.1%}",
            estimate=f"{estimate:.1%}",
        )
        for number, (size, estimate) in enumerate(zip(sizes, estimated, strict=True))
    ]
    return Bars(bars, _STEP * 0.8, _STEP * len(bars), level(1 / len(bars)))


@dataclass(frozen=True)
class Choice:
    """The evidence for a number of clusters.

    Attributes:
        stability: points of the line of the stability, as SVG writes them.
        separation: points of the line of the separation.
        score: points of the line of the score.
        chosen: place of the chosen number.
        low: left edge of the interval.
        width: width of the interval.
        rows: number, stability, separation and score of each candidate, in words.
    """

    stability: str
    separation: str
    score: str
    chosen: float
    low: float
    width: float
    rows: list[tuple[int, str, str, str]]


def draw_choice(found: ClusterNumber) -> Choice:
    """Lay out stability, separation and score over the numbers of clusters; heights are 0 to 1."""
    first, last = found.candidates[0], found.candidates[-1]

    def across(k: int) -> float:
        return round(WIDTH * (k - first) / max(last - first, 1), 1)

    def line(values: Sequence[float]) -> str:
        points = zip(found.candidates, values, strict=True)
        return " ".join(f"{across(k):.1f},{HEIGHT * (1 - min(value, 1)):.1f}" for k, value in points)

    columns = zip(found.candidates, found.stability, found.separation, found.scores, strict=True)
    return Choice(
        stability=line(found.stability),
        separation=line(found.separation),
        score=line(found.scores),
        chosen=across(found.number),
        low=across(found.low),
        width=round(max(across(found.high) - across(found.low), 2.0), 1),
        rows=[(k, f"{a:.2f}", f"{b:.2f}", f"{c:.2f}") for k, a, b, c in columns],
    )
