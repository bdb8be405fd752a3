"""Draws features in the plane, coloured by class, with prototypes as stars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ucds.math.arrays import DoubleArray, IntArray
from ucds.math.plane import PlanePoints, to_plane
from ucds.reports.canvas import PAGE_WIDTH, FigureFiles, blank_figure, colour_and_marker, save, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

MAX_LEGEND = 40


def draw_panels(
    panels: Mapping[str, PlanePoints], path: Path, *, names: Sequence[str] | None = None
) -> FigureFiles:
    """Draw embedded features side by side, coloured by class, prototypes as stars.

    Args:
        panels: points of each panel by its title.
        path: file to write; its suffix is replaced by ``.png`` and ``.svg``.
        names: names of the classes, for a legend.
    """
    with style():
        legend = _legend_entries(np.concatenate([points.classes for points in panels.values()]), names)
        side = PAGE_WIDTH / max(2, len(panels))
        figure = blank_figure(side * len(panels), side + 0.3 + 0.19 * legend.rows)
        row = figure.subplots(1, len(panels), squeeze=False)[0]
        for ax, (title, points) in zip(row, panels.items(), strict=True):
            m = len(points.samples)
            thinned = f" ({m:,} of {points.total:,} samples)" if m < points.total else ""
            extent = np.concatenate([points.samples, points.prototypes])
            _scatter(ax, points.samples, extent, points.classes, title + thinned)
            if len(points.prototypes):
                _stars(ax, points.prototypes)
        figure.legend(
            handles=legend.handles,
            loc="outside lower center",
            ncols=legend.columns,
            **{"fontsize": 8, "frameon": False, "handletextpad": 0.1, "borderpad": 0.1},
        )
        return save(figure, path)


def tsne_before_after(
    before_features: ArrayLike,
    after_features: ArrayLike,
    prototypes_after: ArrayLike,
    classes: ArrayLike,
    path: Path,
    seed: int,
    *,
    names: Sequence[str] | None = None,
    titles: tuple[str, str] = ("before", "after"),
) -> FigureFiles:
    """Draw features before and after training in the plane, embedded by :func:`ucds.math.plane.to_plane`.

    Args:
        before_features: features before training, ``(n, d)``.
        after_features: features after training, ``(n, d_f)``.
        prototypes_after: prototypes after training, ``(d_f, K)``, as the model holds them.
        classes: class of each sample, ``(n,)`` integers from 0, for colours and markers.
        path: file to write; its suffix is replaced by ``.png`` and ``.svg``.
        seed: seed of the embedding and of the choice of samples.
        names: names of the classes, for a legend.
        titles: titles of the two panels.

    Raises:
        ValueError: the shapes do not fit together, or there are fewer than 5 samples.
    """
    before = to_plane(before_features, None, classes, seed)
    after = to_plane(after_features, prototypes_after, classes, seed)
    return draw_panels(dict(zip(titles, (before, after), strict=True)), path, names=names)


def _scatter(ax: Axes, points: DoubleArray, extent: DoubleArray, classes: IntArray, title: str) -> None:
    """Draw samples in a square that holds all points of ``extent``."""
    size = float(np.clip(6000 / len(points), 5, 20))
    for klass in np.unique(classes):
        x, y = points[classes == klass].T
        colour, marker = colour_and_marker(klass)
        ax.scatter(x, y, size, color=colour, marker=marker, alpha=0.8, linewidths=0)
    centre = (extent.max(axis=0) + extent.min(axis=0)) / 2
    half = 1.06 * float(np.ptp(extent, axis=0).max()) / 2
    ax.set(xlim=(centre[0] - half, centre[0] + half), ylim=(centre[1] - half, centre[1] + half))
    ax.set(xticks=[], yticks=[], aspect="equal")
    ax.set_title(title)
    ax.spines[:].set_visible(True)
    ax.spines[:].set_color("#BBBBBB")


def _stars(ax: Axes, points: DoubleArray) -> None:
    size = float(np.clip(1500 / len(points), 35, 130))  # many stars must not hide the samples
    x, y = points.T
    ax.scatter(x, y, size, marker="*", color="black", edgecolors="white", linewidths=0.7, zorder=3)


class _Legend(NamedTuple):
    handles: list[Line2D]
    columns: int
    rows: int


def _legend_entries(classes: IntArray, names: Sequence[str] | None) -> _Legend:
    """Make an entry for each class, if classes have names and are few enough, and one for the prototypes."""
    from matplotlib.lines import Line2D

    present = np.unique(classes).tolist()
    named = present if names is not None and len(present) <= MAX_LEGEND else []
    handles = []
    for klass in named:
        colour, marker = colour_and_marker(klass)
        label = names[klass] if names is not None and klass < len(names) else str(klass)
        handles.append(Line2D([], [], linestyle="", color=colour, marker=marker, markersize=5, label=label))
    handles.append(Line2D([], [], linestyle="", color="black", marker="*", markersize=8, label="prototype"))
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(len(handles), 110 // (longest + 6)))  # 110 characters of this size fill a line
    return _Legend(handles, columns, -(-len(handles) // columns))
