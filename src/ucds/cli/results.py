"""The client's commands on a finished run: report, review and export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ucds.choices import ExportFormat
from ucds.cli import options
from ucds.training.options import Compute
from ucds.training.run_folder import require_model


@options.command("report", options.CLIENT)
def report_command(
    run: options.RunArgument,
    work: options.WorkGroup,
    known: options.AboutGroup,
    output: options.Output,
    images: Annotated[
        str | None,
        Argument(
            help="Images, features or embeddings in any form that training takes.",
            show_default="those of the training",
        ),
    ] = None,
    out: Annotated[Path | None, Option(help="HTML file to write.", show_default="RUN/report.html")] = None,
    pictures: Annotated[
        Path | None,
        Option("--images", help="Folder of the features' images.", show_default="where they were read from"),
    ] = None,
) -> None:
    """Write a page that shows every cluster with its images, a map, doubts and findings."""
    reporter = output.start()
    require_model(run)
    from ucds.page.report import report

    done = report(
        run,
        images,
        out,
        pictures=pictures,
        about=known.about,
        group=known.group,
        compute=work.compute(reporter),
    )
    lines = [f"report written to {done.path}", *(f"note: {line}" for line in done.warnings)]
    output.present(lines, done)


@options.command("review", options.CLIENT)
def review_command(
    run: options.RunArgument,
    output: options.Output,
    out: Annotated[
        Path | None, Option(help="Run folder to make at the end.", show_default="RUN-reviewed")
    ] = None,
    answers: Annotated[
        Path | None, Option(help="Apply this file of answers and finish, without a page.")
    ] = None,
    images: Annotated[
        Path | None, Option(help="Folder of the images, if they have moved.", show_default="where they were")
    ] = None,
    no_open: Annotated[bool, Option("--no-open", help="Print the address, and open no browser.")] = False,
    hosts: Annotated[
        list[str] | None,
        Option("--host", help="Host in the browser's address, if a proxy stands in front; may be repeated."),
    ] = None,
) -> None:
    """Correct, name and divide the clusters of a run, on a page of this machine.

    The run folder keeps every action at once, so the same command continues later. "Finish" writes a new run,
    a table or sorted folders.
    """
    reporter = output.start()
    from ucds.page.review import review

    done = review(
        run,
        out,
        answers=answers,
        images=images,
        open_browser=not no_open,
        hosts=hosts or (),
        compute=Compute(reporter=reporter),
    )
    if done is None:
        output.present(f"{run} keeps the answers: run the same command to continue", {"path": None})
    else:
        output.present(done.sentence, done)


@options.command("export", options.CLIENT)
def export_command(
    run: options.RunArgument,
    output: options.Output,
    form: Annotated[
        ExportFormat,
        Option("--format", help="Form: an ONNX graph, the head for scikit-learn, or a folder for a hub."),
    ] = "onnx",
    out: Annotated[
        Path | None, Option(help="File or folder to write.", show_default="RUN/model.*, RUN/hub")
    ] = None,
) -> None:
    """Write the model for other programs, and check that its results agree."""
    output.start()
    require_model(run)
    from ucds.exports.export import export

    done = export(run, out, form=form)
    sentence = f"model written to {done.path}"
    if done.differences:
        found = ", ".join(f"{name} {value:.1e}" for name, value in done.differences.items())
        sentence += f"; largest difference from the model itself on random samples: {found}"
    output.present(sentence, done)
