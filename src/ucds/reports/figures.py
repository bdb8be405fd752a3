"""Figures for papers and reports, each as PNG and SVG: samples, proportions, sensitivity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ucds.math.metrics import proportions_l1
from ucds.reports.canvas import INK, PAGE_WIDTH, FigureFiles, blank_figure, colour_and_marker, save, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TRUE_COLOUR, ESTIMATED_COLOUR = "#332288", "#DDCC77"


def samples_per_domain(images: Mapping[str, ArrayLike], path: Path) -> FigureFiles:
    """Draw images of each domain, one row a domain.

    Args:
        images: images ``(m, H, W, 3)`` uint8 by name of the domain, in the order of the rows.
        path: file to write; its suffix is replaced by ``.png`` and ``.svg``.

    Raises:
        ValueError: there is no domain, or an array is not of that form.
    """
    rows = {name: _images(name, stack) for name, stack in images.items()}
    if not rows:
        raise ValueError("no domains to draw")
    cell = min(0.8, PAGE_WIDTH / max(len(stack) for stack in rows.values()))
    heights = [cell * stack.shape[1] / stack.shape[2] for stack in rows.values()]
    with style():
        # A row of square cells, and room for the domain's name above it.
        figure = blank_figure(PAGE_WIDTH, sum(heights) + 0.34 * len(heights))
        columns = max(len(stack) for stack in rows.values())
        axes = figure.subplots(len(rows), 1, squeeze=False, height_ratios=heights)[:, 0]
        for ax, (name, stack) in zip(axes, rows.items(), strict=True):
            _image_row(ax, name, stack, columns)
        return save(figure, path)


def proportions(true: ArrayLike, estimated: ArrayLike, names: Sequence[str], path: Path) -> FigureFiles:
    """Draw estimated cluster proportions beside the true class proportions, class by class.

    The title gives the L1 distance of the estimate, and of equal shares of all classes: the dashed line.

    Args:
        true: proportions of the classes, ``(C,)``.
        estimated: proportions of the clusters in the order of their classes, clusters without a class last;
            see :func:`ucds.math.metrics.proportions_by_class`.
        names: names of the classes.
        path: file to write; its suffix is replaced by ``.png`` and ``.svg``.

    Raises:
        ValueError: the lengths do not fit, or an array is not a distribution.
    """
    truth, found = np.asarray(true, dtype=np.float64), np.asarray(estimated, dtype=np.float64)
    if len(names) != len(truth):
        raise ValueError(f"{len(names)} names cannot label {len(truth)} classes")
    uniform = np.full(len(truth), 1 / len(truth))
    distance, of_uniform = proportions_l1(found, truth), proportions_l1(uniform, truth)
    labels = [*names, *("no class" for _ in range(len(found) - len(truth)))]
    with style():
        figure = blank_figure(PAGE_WIDTH, 2.9)
        ax = figure.subplots()
        _proportion_bars(ax, np.pad(truth, (0, len(found) - len(truth))), found)
        ax.axhline(uniform[0], color=INK, linestyle="--", linewidth=0.9, label="uniform")
        _name_ticks(ax, labels)
        ax.set_ylabel("share of samples (%)")
        handles, texts = ax.get_legend_handles_labels()
        order = sorted(range(3), key=lambda i: ("true", "estimated", "uniform").index(texts[i]))
        place: dict[str, Any] = {
            "loc": "lower left",
            "bbox_to_anchor": (0, 1),
            "borderaxespad": 0,
            "borderpad": 0.2,
        }
        shown = [handles[i] for i in order], [texts[i] for i in order]
        ax.legend(*shown, frameon=False, ncols=3, **place)
        title = f"L1 distance to the true proportions: estimated {distance:.3f}, uniform {of_uniform:.3f}"
        ax.set_title(title, loc="left", pad=22)
        return save(figure, path)


def _images(name: str, stack: ArrayLike) -> NDArray[np.uint8]:
    array = np.asarray(stack)
    if array.ndim != 4 or array.shape[-1] != 3 or array.dtype != np.uint8 or 0 in array.shape:
        raise ValueError(f"images of '{name}' must be (m, H, W, 3) uint8, not {array.shape} {array.dtype}")
    return array


def _image_row(ax: Axes, name: str, stack: NDArray[np.uint8], columns: int) -> None:
    """Draw images side by side, one unit each, with a small gap."""
    gap, ratio = 0.05, stack.shape[1] / stack.shape[2]
    for position, image in enumerate(stack):
        extent = (position, position + 1 - gap, ratio * (1 - gap), 0)
        ax.imshow(image, extent=extent, interpolation="nearest" if max(image.shape) < 64 else "antialiased")
    ax.set(xlim=(0, columns - gap), ylim=(ratio * (1 - gap), 0), aspect="equal", anchor="W")
    ax.set_title(name, loc="left", pad=3)
    ax.set_axis_off()


def _proportion_bars(ax: Axes, truth: NDArray[np.float64], found: NDArray[np.float64]) -> None:
    from matplotlib.ticker import MaxNLocator

    positions = np.arange(len(found))
    ax.bar(positions - 0.2, truth, 0.4, color=TRUE_COLOUR, label="true")
    ax.bar(
        positions + 0.2, found, 0.4, color=ESTIMATED_COLOUR, edgecolor=INK, linewidth=0.5, label="estimated"
    )
    ax.set_xlim(-0.7, len(found) - 0.3)
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g}")


def _name_ticks(ax: Axes, labels: Sequence[str]) -> None:
    """Write names below the bars: upright once they would overlap, smaller once there are many."""
    room = 75 // max(len(labels), 1)  # characters that fit into the page width, by class
    rotation = 0 if max(map(len, labels)) < room else 90
    size = 9 if len(labels) <= 12 else 8 if len(labels) <= 35 else 5.5
    ax.set_xticks(range(len(labels)), labels, rotation=rotation, fontsize=size)
    ax.tick_params(axis="x", length=0)


def sensitivity(lines: Mapping[str, Mapping[float, Sequence[float]]], path: Path) -> FigureFiles:
    """Draw accuracy against the weight of a loss: a line a loss, with a band of one standard deviation.

    Args:
        lines: accuracies in percent, one a seed, by name of the loss and then by its positive weight.
        path: file to write; its suffix is replaced by ``.png`` and ``.svg``.

    Raises:
        ValueError: there is no line, or a weight without accuracies.
    """
    if not lines or not all(all(map(len, points.values())) for points in lines.values()):
        raise ValueError("every line needs at least one accuracy for each of its weights")
    with style():
        figure = blank_figure(PAGE_WIDTH, 3.2)
        ax = figure.subplots()
        for number, (name, points) in enumerate(lines.items()):
            weights = np.array(sorted(points))
            runs = [np.asarray(points[weight], dtype=np.float64) for weight in weights]
            mean = np.array([values.mean() for values in runs])
            deviation = np.array([values.std(ddof=1) if len(values) > 1 else 0.0 for values in runs])
            colour, marker = colour_and_marker(number)
            ax.fill_between(
                weights, mean - deviation, mean + deviation, color=colour, alpha=0.15, linewidth=0
            )
            ax.plot(weights, mean, color=colour, marker=marker, markersize=4, label=name)
        ax.set_xscale("log")
        ticks = sorted({weight for points in lines.values() for weight in points})
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
        ax.set_xlabel("weight of the loss")
        ax.set_ylabel("clustering accuracy (%)")
        ax.legend(frameon=False)
        return save(figure, path)
