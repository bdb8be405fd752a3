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
    WeightsOption,
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
    data: Annotated[Path, typer.Option(help="Folder with one folder a domain, each with class folders.")],
    weights: WeightsOption = "default",
    results: ResultsOption = Path("results"),
    jobs: Annotated[int, typer.Option(min=1, help="Tasks at a time, each in a process of its own.")] = 1,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Processor threads of each task.", show_default="torch's choice")
    ] = None,
    accelerator: AcceleratorOption = "auto",
    precision: PrecisionOption = "32-true",
    cache: CacheOption = None,
    cache_limit: CacheLimitOption = None,
) -> None:
    """Run the cells of a benchmark that have no record yet, and write its table."""
    from ucds.experiments.benchmark import Place, read_benchmark, run_benchmark
    from ucds.experiments.tables import write_table
    from ucds.training.progress import terminal_reporter

    asked = read_benchmark(config)
    place = Place(data, weights, make_cache_options(cache, cache_limit), accelerator, precision, threads)
    folder = results / config.stem
    count = run_benchmark(asked, folder / "runs.jsonl", place, terminal_reporter(), jobs=jobs)
    say(f"{count} new records in {folder}")
    print(write_table(asked, folder))


@app.command(rich_help_panel=PANEL)
def table(
    config: Annotated[Path, typer.Argument(help="TOML file of a published table, see configs/.")],
    results: ResultsOption = Path("results"),
) -> None:
    """Write a benchmark's table again from its records."""
    from ucds.experiments.benchmark import read_benchmark
    from ucds.experiments.tables import write_table

    print(write_table(read_benchmark(config), results / config.stem))
