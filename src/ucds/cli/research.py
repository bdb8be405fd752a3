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
    RunArgument,
    SeedOption,
    make_cache_options,
)

PANEL = "Researcher"


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
    """Score a model against class folders; nothing else ever reads them."""
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
