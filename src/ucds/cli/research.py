"""The researcher's commands: scores, benchmarks, the demo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ucds.cli.app import app
from ucds.cli.options import (
    AcceleratorOption,
    CacheLimitOption,
    CacheOption,
    PrecisionOption,
    RunArgument,
    SeedOption,
    make_cache_options,
    say,
)

PANEL = "Researcher"
ResultsOption = Annotated[Path, typer.Option(help="Folder of records and tables.")]


@app.command(rich_help_panel=PANEL)
def evaluate(
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
) -> None:
    """Score a model against class folders, which training never reads."""
    from ucds.evaluation import evaluate_run
    from ucds.files import write_text_atomically
    from ucds.training.progress import terminal_reporter
    from ucds.training.runtime import Runtime

    report = evaluate_run(
        run,
        data,
        Runtime(accelerator=accelerator),
        make_cache_options(cache, cache_limit),
        terminal_reporter(),
    )
    write_text_atomically(out or run / "evaluation.json", json.dumps(report.to_dict(), indent=2) + "\n")
    print(report.in_words())


@app.command(rich_help_panel=PANEL)
def demo(
    out: Annotated[Path, typer.Option(help="Folder for figures and metrics.json.")] = Path("demo-out"),
    seed: SeedOption = 0,
) -> None:
    """See the whole story in a minute: handwritten digits in four styles, and every method on them."""
    from ucds.experiments.demo import run_demo
    from ucds.training.progress import terminal_reporter

    print(run_demo(out, seed, terminal_reporter()))


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
) -> None:
    """Run the cells of a benchmark that have no record yet, and write its table and figures."""
    from ucds.experiments.benchmark import run_benchmark
    from ucds.experiments.grid import read_benchmark
    from ucds.experiments.preflight import Place, read_weights
    from ucds.experiments.tables import write_table
    from ucds.training.progress import terminal_reporter

    asked = read_benchmark(config)
    options = make_cache_options(cache, cache_limit)
    place = Place(data, read_weights(weights or []), options, accelerator, precision, threads)
    folder = results / config.stem
    count = run_benchmark(asked, folder, place, terminal_reporter(), jobs=jobs)
    say(f"{count} new records in {folder}")
    print(write_table(asked, folder))


@app.command(rich_help_panel=PANEL)
def table(
    config: Annotated[Path, typer.Argument(help="TOML file of a published table, see configs/.")],
    results: ResultsOption = Path("results"),
) -> None:
    """Write a benchmark's table and figures again from its records."""
    from ucds.experiments.grid import read_benchmark
    from ucds.experiments.tables import write_table

    print(write_table(read_benchmark(config), results / config.stem))
