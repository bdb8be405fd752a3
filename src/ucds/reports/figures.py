"""Figures for papers and pages, as PNG and SVG: proportions, sensitivity, features in the plane."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ucds.errors import InputError
from ucds.files import write_atomically
from ucds.math.arrays import IntArray
from ucds.math.metrics import proportions_l1
from ucds.math.plane import PlanePoints

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

# P. Tol's "muted" scheme, made to be told apart under all common colour-vision deficiencies, and a grey.
COLOURS = (
    *("#332288", "#CC6677", "#117733", "#DDCC77", "#88CCEE"),
    *("#AA4499", "#44AA99", "#882255", "#999933", "#666666"),
)
# P. Tol's "light" scheme, for dark backgrounds, on which several of the above can hardly be seen.
DARK_COLOURS = (
    *("#77AADD", "#EE8866", "#EEDD88", "#FFAABB", "#99DDFF"),
    *("#44BB99", "#BBCC33", "#AAAA00", "#DDDDDD"),
)
# No common factor with the number of colours: 70 classes differ in the pair, neighbours in both.
MARKERS = "o^sDvP<"

INK = "#222222"
STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "svg.hashsalt": "ucds",  # or element names, and with them the file, would differ at each run
}
DOTS_PER_INCH = 200
PAGE_WIDTH = 7.0  # inches
MAX_LEGEND = 40


class FigureFiles(NamedTuple):
    """Files of a figure."""

    png: Path
    svg: Path


def require_seaborn() -> None:
    """Make sure that figures can be drawn.

    Raises:
        InputError: seaborn is not installed.
    """
    if find_spec("seaborn") is None:
        raise InputError("figures need seaborn: pip install 'ucds[figures]'")


def colour_and_marker(klass: int) -> tuple[str, str]:
    """Choose the colour and the marker of a class."""
    return COLOURS[klass % len(COLOURS)], MARKERS[klass % len(MARKERS)]


def proportions(true: ArrayLike, estimated: ArrayLike, names: Sequence[str], path: Path) -> FigureFiles:
    """Draw estimated cluster proportions beside the true class proportions, class by class.

    The title gives the L1 distance of the estimate, and of equal shares of all classes: the dashed line.

    Args:
        true: proportions of the classes, ``(C,)``.
        estimated: proportions of the clusters in the order of their classes, clusters without a class last;
            see :func:`ucds.math.metrics.proportions_by_class`.
        names: names of the classes.
        path: file to write; its suffix is replaced by ``.png`` and ``.svg``.
    """
    truth, found = np.asarray(true, dtype=np.float64), np.asarray(estimated, dtype=np.float64)
    uniform = np.full(len(truth), 1 / len(truth))
    distance, of_uniform = proportions_l1(found, truth), proportions_l1(uniform, truth)
    labels = [*names, *("no class" for _ in range(len(found) - len(truth)))]
    shares = {"true": np.pad(truth, (0, len(found) - len(truth))), "estimated": found}

    def draw(figure: Figure) -> None:
        import seaborn

        ax = figure.subplots()
        places, kinds = np.tile(np.arange(len(found)), 2), np.repeat(list(shares), len(found))
        values = 100 * np.concatenate(list(shares.values()))
        seaborn.barplot(x=places, y=values, hue=kinds, palette=[COLOURS[0], COLOURS[3]], saturation=1, ax=ax)
        ax.axhline(100 * uniform[0], color=INK, linestyle="--", linewidth=0.9, label="uniform")
        # Names are upright once they would overlap, and smaller once there are many.
        upright = max(map(len, labels)) >= 75 // len(labels)
        size = 9 if len(labels) <= 12 else 8 if len(labels) <= 35 else 5.5
        ax.set_xticks(range(len(labels)), labels, rotation=90 if upright else 0, fontsize=size)
        ax.tick_params(axis="x", length=0)
        ax.set_ylabel("share of samples (%)")
        ax.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0)
        title = f"L1 distance to the true proportions: estimated {distance:.3f}, uniform {of_uniform:.3f}"
        ax.set_title(title, loc="left", pad=22)

    return _write(draw, path, PAGE_WIDTH, 2.9)


def sensitivity(lines: Mapping[str, Mapping[float, Sequence[float]]], path: Path) -> FigureFiles:
    """Draw accuracy against the weight of a loss: a line a loss, with a band of one standard deviation.

    Args:
        lines: accuracies in percent, one a seed, by name of the loss and then by its positive weight.
        path: file to write; its suffix is replaced by ``.png`` and ``.svg``.
    """
    points = [
        (name, weight, accuracy)
        for name, runs in lines.items()
        for weight, accuracies in runs.items()
        for accuracy in accuracies
    ]
    losses, weights, accuracies = (list(column) for column in zip(*points, strict=True))

    def draw(figure: Figure) -> None:
        import seaborn

        ax = figure.subplots()
        ax.set_xscale("log")
        looks = {name: colour_and_marker(number) for number, name in enumerate(lines)}
        seaborn.lineplot(
            x=weights,
            y=accuracies,
            hue=losses,
            style=losses,
            palette={name: colour for name, (colour, _) in looks.items()},
            markers={name: marker for name, (_, marker) in looks.items()},
            dashes=False,
            errorbar="sd",
            ax=ax,
        )
        ticks = sorted(set(weights))
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
        ax.set(xlabel="weight of the loss", ylabel="clustering accuracy (%)")
        ax.legend(frameon=False)

    return _write(draw, path, PAGE_WIDTH, 3.2)


def features_in_plane(
    panels: Mapping[str, PlanePoints], path: Path, *, names: Sequence[str] | None = None
) -> FigureFiles:
    """Draw embedded features side by side, coloured by class, prototypes as stars.

    Args:
        panels: points of each panel by its title.
        path: file to write; its suffix is replaced by ``.png`` and ``.svg``.
        names: names of the classes, for a legend.
    """
    require_seaborn()
    handles = _legend_entries(np.concatenate([points.classes for points in panels.values()]), names)
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(len(handles), 110 // (longest + 6)))  # 110 characters of this size fill a line
    side = PAGE_WIDTH / max(2, len(panels))

    def draw(figure: Figure) -> None:
        row = figure.subplots(1, len(panels), squeeze=False)[0]
        for ax, (title, points) in zip(row, panels.items(), strict=True):
            _panel(ax, title, points)
        place: dict[str, Any] = {"loc": "outside lower center", "ncols": columns}
        figure.legend(handles=handles, fontsize=8, frameon=False, handletextpad=0.1, borderpad=0.1, **place)

    return _write(draw, path, side * len(panels), side + 0.3 + 0.19 * -(-len(handles) // columns))


def _write(draw: Callable[[Figure], None], path: Path, width: float, height: float) -> FigureFiles:
    """Write what a function draws in both formats, without dates, so that equal figures are equal files."""
    require_seaborn()
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    files = FigureFiles(path.with_suffix(".png"), path.with_suffix(".svg"))
    no_software, no_date = {"Software": None}, {"Date": None}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        draw(figure)
        write_atomically(
            files.png, lambda f: figure.savefig(f, format="png", dpi=DOTS_PER_INCH, metadata=no_software)
        )
        write_atomically(files.svg, lambda f: figure.savefig(f, format="svg", metadata=no_date))
    return files


def _panel(ax: Axes, title: str, points: PlanePoints) -> None:
    """Draw samples and prototypes in a square that holds all of them."""
    import seaborn

    looks = {klass: colour_and_marker(klass) for klass in np.unique(points.classes).tolist()}
    seaborn.scatterplot(
        x=points.samples[:, 0],
        y=points.samples[:, 1],
        hue=points.classes,
        style=points.classes,
        palette={klass: colour for klass, (colour, _) in looks.items()},
        markers={klass: marker for klass, (_, marker) in looks.items()},
        s=float(np.clip(6000 / len(points.samples), 5, 20)),
        alpha=0.8,
        linewidth=0,
        legend=False,
        ax=ax,
    )
    size = float(np.clip(1500 / max(1, len(points.prototypes)), 35, 130))  # many must not hide the samples
    x, y = points.prototypes.T
    ax.scatter(x, y, size, marker="*", color="black", edgecolors="white", linewidths=0.7, zorder=3)
    extent = np.concatenate([points.samples, points.prototypes])
    centre = (extent.max(axis=0) + extent.min(axis=0)) / 2
    half = 1.06 * float(np.ptp(extent, axis=0).max()) / 2
    ax.set(xlim=(centre[0] - half, centre[0] + half), ylim=(centre[1] - half, centre[1] + half))
    ax.set(xticks=[], yticks=[], aspect="equal")
    shown = len(points.samples)
    ax.set_title(title + (f" ({shown:,} of {points.total:,} samples)" if shown < points.total else ""))
    ax.spines[:].set(visible=True, color="#BBBBBB")


def _legend_entries(classes: IntArray, names: Sequence[str] | None) -> list[Line2D]:
    """Make an entry for each class, if classes have names and are few enough, and one for the prototypes."""
    from matplotlib.lines import Line2D

    present = np.unique(classes).tolist()
    handles = []
    for klass in present if names is not None and len(present) <= MAX_LEGEND else []:
        colour, marker = colour_and_marker(klass)
        label = names[klass] if names is not None and klass < len(names) else str(klass)
        handles.append(Line2D([], [], linestyle="", color=colour, marker=marker, markersize=5, label=label))
    handles.append(Line2D([], [], linestyle="", color="black", marker="*", markersize=8, label="prototype"))
    return handles
