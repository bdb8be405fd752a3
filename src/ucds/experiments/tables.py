"""Derives tables from records: ours beside the paper's, mean and standard deviation over seeds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ucds.config import Config
from ucds.experiments.benchmark import Benchmark, has_settings, read_records
from ucds.files import write_text_atomically

NAMES = {
    "kmeans": "frozen k-means",
    "po": "PO",
    "so": "SO",
    "to": "TO",
    "ao": "AO",
    "pcd": "**PCD**",
}


def write_table(benchmark: Benchmark, folder: Path) -> str:
    """Derive ``folder.md``, beside the folder, from ``folder/runs.jsonl``; return its text."""
    text = markdown_table(benchmark, read_records(folder / "runs.jsonl"))
    write_text_atomically(folder.parent / f"{folder.name}.md", text)
    return text


def markdown_table(benchmark: Benchmark, records: Sequence[Mapping[str, Any]]) -> str:
    """Write a benchmark's page: accuracy by method and target, then how it was measured.

    A cell without a record is shown as missing. Only records of the benchmark's own settings, encoder and
    seeds count, and of the weights and data of the latest of them.
    """
    config = Config.from_mapping(benchmark.settings)
    fitting = [
        record
        for record in records
        if record["backbone"] == benchmark.grid.backbone and has_settings(record, config)
    ]
    origin = {key: fitting[-1][key] for key in ("weights", "data")} if fitting else {}
    cells: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for record in fitting:
        if record["seed"] in benchmark.grid.seeds and origin.items() <= record.items():
            cells[record["method"], record["target"]][record["seed"]] = record
    lines = [
        f"# {benchmark.title}",
        "",
        "Clustering accuracy in percent, mean +- standard deviation over seeds.",
        "",
    ]
    lines += _accuracy_table(benchmark, cells)
    lines += ["", "What else was measured, as means over targets and seeds:", ""]
    lines += _other_table(benchmark, cells)
    lines += ["", *_provenance(benchmark, cells, config)]
    return "\n".join(lines) + "\n"


Cells = Mapping[tuple[str, str], Mapping[int, Mapping[str, Any]]]


def _accuracy_table(benchmark: Benchmark, cells: Cells) -> list[str]:
    targets = benchmark.grid.targets
    paper = [f"paper {target}" for target in targets] if benchmark.paper else []
    rows = [["method", *targets, "mean", *paper], ["---"] * (2 + len(targets) + len(paper))]
    for method in benchmark.grid.methods:
        found = [
            100 * np.array([r["accuracy"] for r in cells[method, target].values()]) for target in targets
        ]
        means = [values.mean() for values in found if len(values)]
        mean = f"{np.mean(means):.1f}" if len(means) == len(targets) else "missing"
        published = benchmark.paper.get(method, {})
        theirs = (
            [f"{published[target]:.1f}" if target in published else "-" for target in targets]
            if paper
            else []
        )
        rows.append([NAMES[method], *map(_mean_and_deviation, found), mean, *theirs])
    return [f"| {' | '.join(row)} |" for row in rows]


def _mean_and_deviation(values: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    if not len(values):
        return "missing"
    deviation = f" +- {values.std(ddof=1):.1f}" if len(values) > 1 else ""
    return f"{values.mean():.1f}{deviation} ({len(values)})"


def _other_table(benchmark: Benchmark, cells: Cells) -> list[str]:
    columns = {
        "NMI": ("nmi", 100, "{:.1f}"),
        "ARI": ("ari", 100, "{:.1f}"),
        "oracle accuracy (not used)": ("oracle_accuracy", 100, "{:.1f}"),
        "L1 of proportions": ("proportions_l1", 1, "{:.2f}"),
        "L1 of uniform": ("uniform_l1", 1, "{:.2f}"),
        "seconds": ("seconds", 1, "{:.1f}"),
        "peak MiB": ("peak_memory_mib", 1, "{:.0f}"),
    }
    rows = [["method", *columns], ["---"] * (1 + len(columns))]
    for method in benchmark.grid.methods:
        of_method = [r for target in benchmark.grid.targets for r in cells[method, target].values()]
        row = [NAMES[method]]
        for key, scale, form in columns.values():
            values = [scale * r[key] for r in of_method if key in r]
            row.append(form.format(np.mean(values)) if values else "-")
        rows.append(row)
    return [f"| {' | '.join(row)} |" for row in rows]


def _provenance(benchmark: Benchmark, cells: Cells, config: Config) -> list[str]:
    used = [record for cell in cells.values() for record in cell.values()]
    if not used:
        return ["No records yet."]
    devices = ", ".join(sorted({f"{r['device']} ({r['threads']} threads)" for r in used}))
    torches = ", ".join(sorted({r["versions"]["torch"] for r in used}))
    return [
        f"Backbone {benchmark.grid.backbone}, weights {used[0]['weights']}, data {used[0]['data']}.",
        f"Settings {config.hash}, {len(used)} records, {devices}, torch {torches}.",
        "In brackets: the number of seeds. Seconds leave out cached features; SO, AO and PCD include",
        "stage 1.",
        "Generated by `ucds table` from the records in `runs.jsonl`; do not edit.",
    ]
