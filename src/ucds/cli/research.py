"""The researcher's commands: scores, settings, benchmarks, the demo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ucds.choices import Method
from ucds.cli.app import app
from ucds.cli.options import (
    AcceleratorOption,
    CacheLimitOption,
    CacheOption,
    JsonOption,
    PrecisionOption,
    QuietOption,
    RunArgument,
    SeedOption,
    make_cache_options,
    make_reporter,
    present,
)

PANEL = "Researcher"
ResultsOption = Annotated[Path, typer.Option(help="Folder of records and tables.")]


@app.command("evaluate", rich_help_panel=PANEL)
def evaluate_command(
    run: RunArgument,
    data: Annotated[
        Path, typer.Argument(help="Samples in class folders: one folder a domain for a source run.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="JSON file to write.", show_default="RUN/evaluation.json")
    ] = None,
    accelerator: AcceleratorOption = "auto",
    cache: CacheOption = None,
    cache_limit: CacheLimitOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Score a model against class folders, which training never reads."""
    from ucds.evaluation import evaluate

    places, reporter = make_cache_options(cache, cache_limit), make_reporter(quiet)
    report = evaluate(run, data, out, accelerator=accelerator, cache=places, reporter=reporter)
    print(json.dumps(report.to_dict(), indent=2) if as_json else report.summary())


@app.command(rich_help_panel=PANEL)
def demo(
    out: Annotated[Path, typer.Option(help="Folder for figures and metrics.json.")] = Path("demo-out"),
    seed: SeedOption = 0,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """See the whole story in a minute: handwritten digits in four styles, and every method on them."""
    from ucds.demo.story import run_demo

    shown = run_demo(out, seed, make_reporter(quiet))
    print((out / "metrics.json").read_text().rstrip() if as_json else shown)


@app.command("settings", rich_help_panel=PANEL)
def settings_command(
    method: Annotated[Method | None, typer.Argument(help="Method; both if left out.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the settings of a method: name, default, side and meaning."""
    from ucds.config import SETTINGS, list_settings

    listed = {name: list_settings(name) for name in SETTINGS if method in (None, name)}
    if as_json:
        print(json.dumps(listed, indent=2))
        return
    for name, entries in listed.items():
        print(f"{name}:")
        for entry in entries:
            default = json.dumps(entry["default"])
            print(f"  {entry['name']:<28}{default:<14}{entry['side']:<8}{entry['meaning']}")


@app.command(rich_help_panel=PANEL)
def benchmark(
    config: Annotated[Path, typer.Argument(help="TOML file of a published table, see configs/.")],
    data: Annotated[
        Path, typer.Option(help="Folder of a data set (class folders in domain folders), or of several.")
    ],
    weights: Annotated[
        list[str] | None,
        typer.Option(
            help="As for training; NAME=FILE is for the encoder NAME alone; may be repeated.",
            show_default="default",
        ),
    ] = None,
    results: ResultsOption = Path("results"),
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Tasks at a time, each in a process of its own.", show_default="one a GPU"),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Processor threads of each task.", show_default="torch's choice")
    ] = None,
    accelerator: AcceleratorOption = "auto",
    precision: PrecisionOption = "32-true",
    cache: CacheOption = None,
    cache_limit: CacheLimitOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run the cells of a benchmark that have no record yet, and write its table and figures."""
    from ucds.experiments.grid import read_benchmark
    from ucds.experiments.preflight import Machine, read_weights
    from ucds.experiments.runner import run_benchmark
    from ucds.reports.tables import write_table

    asked = read_benchmark(config)
    options = make_cache_options(cache, cache_limit)
    machine = Machine(data, read_weights(weights or []), options, accelerator, precision, threads)
    folder = results / config.stem
    count = run_benchmark(asked, folder, machine, make_reporter(quiet), jobs=jobs)
    page = write_table(asked, folder)
    values = {"new_records": count, "folder": str(folder)}
    present(f"{count} new records in {folder}", values, quiet=quiet, as_json=as_json)
    if not as_json:
        print(page)


@app.command(rich_help_panel=PANEL)
def table(
    config: Annotated[Path, typer.Argument(help="TOML file of a published table, see configs/.")],
    results: ResultsOption = Path("results"),
) -> None:
    """Write a benchmark's table and figures again from its records."""
    from ucds.experiments.grid import read_benchmark
    from ucds.reports.tables import write_table

    print(write_table(read_benchmark(config), results / config.stem))
