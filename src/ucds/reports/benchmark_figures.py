"""Draws the figures of a benchmark from its records, without data and models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ucds.errors import InputError, UserError
from ucds.experiments.cells import POINTS
from ucds.experiments.columns import Record
from ucds.experiments.grid import Figure, Sweep
from ucds.experiments.methods import method_named
from ucds.experiments.points import read_points
from ucds.reports import figures
from ucds.reports.table_rows import RowKey, TableRecords

LOSSES = {
    "transport_weight": "transport",
    "information_weight": "mutual information",
    "mixing_weight": "CutMix",
    "distillation_weight": "distillation",
}


def draw_figures(results: TableRecords, folder: Path) -> list[str]:
    """Draw all figures for which there are records into ``folder``.

    Returns:
        A paragraph of Markdown for each figure, which shows it or says what is missing.
    """
    return [_draw(results, folder, figure) for figure in results.benchmark.figures]


def _draw(results: TableRecords, folder: Path, figure: Figure) -> str:
    draw = {"proportions": _proportions, "tsne": _tsne, "sensitivity": _sensitivity}[figure.kind]
    dataset, (first, *_) = next(iter(results.benchmark.grid.targets.items()))
    target = figure.target or first
    try:
        caption = draw(results, folder, figure, dataset, target)
    except UserError as error:
        return f"Figure {figure.file_name}: missing ({error})."
    return f"![{caption}]({folder.name}/{figure.file_name}.svg)"


def _proportions(results: TableRecords, folder: Path, figure: Figure, dataset: str, target: str) -> str:
    method = figure.methods[0]
    record = _record(results, method, dataset, target, figure.seed)
    if "true_proportions" not in record:
        raise InputError("the record is older than the figure: run the benchmark again")
    figures.proportions(
        record["true_proportions"],
        record["estimated_proportions"],
        record["classes"],
        folder / figure.file_name,
    )
    return f"True and estimated proportions of {target}, {method_named(method).title}, seed {figure.seed}"


def _tsne(results: TableRecords, folder: Path, figure: Figure, dataset: str, target: str) -> str:
    panels = {}
    for method in figure.methods:
        record = _record(results, method, dataset, target, figure.seed)
        if "points" not in record:
            raise InputError("the record is older than the figure: run the benchmark again")
        title = f"{method_named(method).title} ({100 * record['accuracy']:.1f} %)"
        panels[title] = read_points(folder / POINTS, record["points"])
    figures.features_in_plane(panels, folder / figure.file_name)
    return f"Features of {target} in the plane, seed {figure.seed}: {', '.join(panels)}"


def _record(results: TableRecords, method: str, dataset: str, target: str, seed: int) -> Record:
    row = RowKey(results.benchmark.all_variants[0].name, method)
    record = results.of(row, dataset, target).get(seed)
    if record is None:
        raise InputError(f"no record of {method} on {target} with seed {seed}")
    return record


def _sensitivity(results: TableRecords, folder: Path, figure: Figure, dataset: str, target: str) -> str:
    lines = {}
    for method in figure.methods:
        for sweep in results.benchmark.sweeps:
            points = dict(_points(results, sweep, method, dataset, target))
            name = LOSSES.get(sweep.setting, sweep.setting)
            name = name if len(figure.methods) == 1 else f"{name}, {method_named(method).title}"
            if len(points) > 1:
                lines[name] = dict(sorted(points.items()))
    if not lines:
        raise InputError(f"no records of two weights of one loss on {target}")
    figures.sensitivity(lines, folder / figure.file_name)
    return f"Accuracy on {target} against the weight of each loss, the others at their own"


def _points(
    results: TableRecords, sweep: Sweep, method: str, dataset: str, target: str
) -> Iterator[tuple[float, list[float]]]:
    """Yield the accuracies in percent at each value of a sweep, and at the grid's own value."""
    named = {sweep.name_of(value): value for value in sweep.values}
    plain = results.benchmark.condition(results.benchmark.all_variants[0], dataset).settings
    own = next(getattr(given, sweep.setting) for given in plain if hasattr(given, sweep.setting))
    for variant, value in {"": own, **named}.items():
        runs = results.of(RowKey(variant, method), dataset, target)
        if runs:
            yield float(value), [float(100 * np.float64(record["accuracy"])) for record in runs.values()]
