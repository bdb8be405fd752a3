"""The researcher's commands: scores, settings, benchmarks, the demo."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ucds.choices import Method
from ucds.cli import options
from ucds.extras import require_extra
from ucds.training.run_folder import require_model

ConfigArgument = Annotated[Path, Argument(help="TOML file of a published table, see configs/.")]
ResultsOption = Annotated[Path, Option(help="Folder of records and tables.")]


@options.command("evaluate", options.RESEARCHER)
def evaluate_command(
    run: options.RunArgument,
    data: Annotated[Path, Argument(help="Samples in class folders, inside domain folders for a source run.")],
    work: options.WorkGroup,
    output: options.Output,
    out: Annotated[
        Path | None, Option(help="JSON file to write.", show_default="RUN/evaluation.json")
    ] = None,
) -> None:
    """Score a model against class folders, which training never reads."""
    reporter = output.start()
    require_model(run)
    from ucds.evaluation import evaluate

    report = evaluate(run, data, out, compute=work.compute(reporter))
    options.show(json.dumps(asdict(report), indent=2) if output.as_json else report.summary())


@options.command("demo", options.RESEARCHER)
def demo_command(
    output: options.Output,
    out: Annotated[Path, Option(help="Folder for models, reports and figures.")] = Path("demo-out"),
    seed: options.SeedOption = 0,
) -> None:
    """See the whole method in two minutes: three clinics sort digits with the help of a provider."""
    reporter = output.start()
    from ucds.demo.story import run_demo

    table = run_demo(out, seed, reporter)
    options.show((out / "metrics.json").read_text().rstrip() if output.as_json else table)


@options.command("settings", options.RESEARCHER)
def settings_command(
    output: options.Output,
    method: Annotated[Method | None, Argument(help="Method; both methods if left out.")] = None,
) -> None:
    """List the settings of a method: name, default, side and meaning."""
    from ucds.config import SETTINGS

    listed = {
        name: kind.model_json_schema()["properties"]
        for name, kind in SETTINGS.items()
        if method in (None, name)
    }
    if output.as_json:
        print(json.dumps(listed, indent=2))
        return
    for name, entries in listed.items():
        print(f"{name}:")
        for setting, entry in entries.items():
            default, side = json.dumps(entry["default"]), entry.get("side", "both")
            print(f"  {setting:<28}{default:<14}{side:<8}{entry['description']}")


@options.command("benchmark", options.RESEARCHER)
def benchmark_command(
    config: ConfigArgument,
    data: Annotated[
        Path, Option(help="Folder of a data set (class folders in domain folders), or of several data sets.")
    ],
    work: options.WorkGroup,
    output: options.Output,
    weights: Annotated[
        list[str] | None,
        Option(
            help="File of weights; NAME=FILE is for the encoder NAME only; may be repeated.",
            show_default="default",
        ),
    ] = None,
    results: ResultsOption = Path("my-results"),
    jobs: Annotated[
        int | None,
        Option(min=1, help="Number of tasks at a time, each in its own process.", show_default="one per GPU"),
    ] = None,
    precision: options.PrecisionOption = "32-true",
) -> None:
    """Run the missing parts of a benchmark, and write its table and figures."""
    reporter = output.start()
    require_extra("torch", "ucds benchmark")
    require_extra("figures", "ucds benchmark")
    from ucds.experiments.grid import read_benchmark
    from ucds.experiments.preflight import Machine, read_weights
    from ucds.experiments.runner import run_benchmark
    from ucds.reports.tables import write_table

    asked, folder, files = read_benchmark(config), results / config.stem, read_weights(weights or [])
    machine = Machine(data, files, replace(work.compute(reporter), precision=precision))
    count = run_benchmark(asked, folder, machine, jobs=jobs)
    page = write_table(asked, folder)
    output.present(f"{count} new records in {folder}", {"new_records": count, "folder": str(folder)})
    if not output.as_json:
        options.show(page)


@options.command("table", options.RESEARCHER)
def table_command(
    config: ConfigArgument, output: options.Output, results: ResultsOption = Path("my-results")
) -> None:
    """Write a benchmark's table and figures again from its records."""
    output.start()
    require_extra("torch", "ucds table")
    require_extra("figures", "ucds table")
    from ucds.experiments.grid import read_benchmark
    from ucds.reports.tables import write_table

    options.show(write_table(read_benchmark(config), results / config.stem))
