"""Draws the figures of a benchmark from its records, as PNG and SVG: proportions, sensitivity, features."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ucds.config import PCDSettings
from ucds.errors import InputError, UserError
from ucds.experiments.grid import Sweep
from ucds.experiments.methods import method_named
from ucds.experiments.scoring import Record
from ucds.extras import require_extra
from ucds.files import write_atomically
from ucds.math.metrics import proportions_l1
from ucds.reports import COLOURS
from ucds.reports.table_rows import RowKey, TableRecords

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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

METHOD, SEED = "pcd", 0
"""Method that the figures show, and seed of its run."""

LOSSES = {
    "transport_weight": "transport",
    "information_weight": "mutual information",
    "mixing_weight": "CutMix",
    "distillation_weight": "distillation",
}


def draw_figures(results: TableRecords, folder: Path) -> list[str]:
    """Draw all figures for which there are records; describe each, or what is missing, in Markdown.

    A figure is two files, ``KIND.png`` and ``KIND.svg``, in the folder.
    """
    kinds = {"proportions": _draw_proportions, "sensitivity": _draw_sensitivity, "tsne": _draw_features}
    dataset, (first, *_) = next(iter(results.benchmark.grid.targets.items()))
    lines = []
    for figure in results.benchmark.figures:
        try:
            caption = kinds[figure.kind](results, folder / figure.kind, dataset, figure.target or first)
            lines.append(f"![{caption}]({folder.name}/{figure.kind}.svg)")
        except UserError as error:
            lines.append(f"Figure {figure.kind}: missing ({error}).")
    return lines


def _find(results: TableRecords, method: str, dataset: str, target: str, entry: str) -> Record:
    """Return a method's record with the figures' seed, if it holds an entry."""
    row = RowKey(results.benchmark.all_variants[0].name, method)
    record = results.of(row, dataset, target).get(SEED)
    if record is None:
        raise InputError(f"there is no record of {method} on {target} with seed {SEED}")
    if entry not in record:
        raise InputError("the record lacks what the figure shows: run the benchmark again")
    return record


def _draw_proportions(results: TableRecords, path: Path, dataset: str, target: str) -> str:
    """Draw estimated and true proportions; clusters without a class come last; the dashed line is uniform."""
    record = _find(results, METHOD, dataset, target, "true_proportions")
    truth, found = (np.array(record[f"{kind}_proportions"], float) for kind in ("true", "estimated"))
    uniform, unmatched = np.full(len(truth), 1 / len(truth)), len(found) - len(truth)
    distance, of_uniform = proportions_l1(found, truth), proportions_l1(uniform, truth)
    labels = [*record["classes"], *["no class"] * unmatched]

    with _canvas(path, 2.9) as ax:
        import seaborn

        places, kinds = np.tile(np.arange(len(found)), 2), np.repeat(["true", "estimated"], len(found))
        values = 100 * np.concatenate([np.pad(truth, (0, unmatched)), found])
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
    return f"True and estimated proportions of {target}, {method_named(METHOD).title}, seed {SEED}"


def _draw_sensitivity(results: TableRecords, path: Path, dataset: str, target: str) -> str:
    """Draw accuracy against the weight of a loss: a line per loss, with a band of one standard deviation."""
    points = [
        (LOSSES.get(sweep.setting, sweep.setting), *point)
        for sweep in results.benchmark.sweeps
        if sweep.family == "pcd"
        for point in _points(results, sweep, dataset, target)
    ]
    if not points:
        raise InputError(f"there are no records of two weights of one loss on {target}")
    losses, weights, accuracies = (list(column) for column in zip(*points, strict=True))
    lines = dict.fromkeys(losses)

    with _canvas(path, 3.2) as ax:
        import seaborn

        ax.set_xscale("log")
        seaborn.lineplot(
            x=weights,
            y=accuracies,
            hue=losses,
            style=losses,
            palette=dict(zip(lines, cycle(COLOURS), strict=False)),
            markers=dict(zip(lines, cycle(MARKERS), strict=False)),
            dashes=False,
            errorbar="sd",
            ax=ax,
        )
        ticks = sorted(set(weights))
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
        ax.set(xlabel="weight of the loss", ylabel="clustering accuracy (%)")
        ax.legend(frameon=False)
    return f"Accuracy on {target} against the weight of each loss, the others at their own"


def _points(results: TableRecords, sweep: Sweep, dataset: str, target: str) -> list[tuple[float, float]]:
    """Return weights and accuracies in percent of a sweep and of the grid; nothing for a single weight."""
    plain = results.benchmark.condition(results.benchmark.all_variants[0], dataset).settings
    own = next(getattr(given, sweep.setting) for given in plain if isinstance(given, PCDSettings))
    variants = {own: ""} | {value: sweep.name_of(value) for value in sweep.values}
    points = [
        (float(value), float(100 * np.float64(record["accuracy"])))
        for value, variant in sorted(variants.items())
        for record in results.of(RowKey(variant, METHOD), dataset, target).values()
    ]
    return points if len({weight for weight, _ in points}) > 1 else []


def _draw_features(results: TableRecords, path: Path, dataset: str, target: str) -> str:
    """Draw features in the plane, coloured by class, and prototypes as crosses; one panel per method."""
    panels = {}
    for method in ("to", METHOD):
        record = _find(results, method, dataset, target, "sample_points")
        panels[f"{method_named(method).title} ({100 * record['accuracy']:.1f} %)"] = record

    with _canvas(path, 3.8) as ax:
        ax.axis("off")
        for number, (title, record) in enumerate(panels.items()):
            panel = ax.inset_axes((number / len(panels), 0, 0.98 / len(panels), 0.92))
            points, classes = np.array(record["sample_points"]), np.array(record["sample_classes"])
            for one in np.unique(classes):  # colour and shape together tell many classes apart
                colour, marker = COLOURS[one % len(COLOURS)], MARKERS[one // len(COLOURS) % len(MARKERS)]
                across, up = points[classes == one].T
                panel.scatter(across, up, s=8, color=colour, marker=marker, linewidths=0)
            across, up = np.array(record["prototype_points"]).T
            panel.scatter(across, up, s=28, color=INK, marker="x")
            panel.set(title=title, xticks=[], yticks=[], aspect="equal")
    return f"Features of {target} in the plane, seed {SEED}: {', '.join(panels)}"


@contextmanager
def _canvas(path: Path, height: float) -> Iterator[Axes]:
    """Write what is drawn in both formats, without dates, so that equal figures are equal files."""
    require_extra("figures", "a figure")
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(PAGE_WIDTH, height), layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        yield figure.subplots()
        for form, undated in (("png", {"Software": None}), ("svg", {"Date": None})):
            save = partial(figure.savefig, format=form, dpi=DOTS_PER_INCH, metadata=undated)
            write_atomically(path.with_suffix(f".{form}"), save)
