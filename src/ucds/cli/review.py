"""The command that asks a person about the clusters of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ucds.cli import options


@options.command("review", options.CLIENT)
def review_command(
    run: options.RunArgument,
    output: options.Output,
    out: Annotated[
        Path | None,
        typer.Option(help="Run folder to make at the end.", show_default="RUN-reviewed"),
    ] = None,
    answers: Annotated[
        Path | None,
        typer.Option(help="Take over this file of answers and finish, without a page.", show_default=False),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(help="Folder of the images, if they have moved.", show_default="where they were"),
    ] = None,
    keep_clusters: Annotated[
        bool, typer.Option("--keep-clusters", help="Keep the number of clusters.")
    ] = False,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print the address, and open no browser.")
    ] = False,
) -> None:
    """Answer questions about the clusters of a run, on a page of this machine; every answer counts at once.

    Answers are kept in the run folder, so that the same command goes on later. "Finish" writes a new run.
    """
    reporter = output.start()
    from ucds.reviewing.command import review
    from ucds.training.options import Compute

    done = review(
        run,
        out,
        answers=answers,
        images=images,
        keep_clusters=keep_clusters,
        open_browser=not no_open,
        compute=Compute(reporter=reporter),
    )
    if done is None:
        output.present(f"the answers are kept in {run}: the same command goes on", {"path": None})
    else:
        output.present(done.sentence, done)
