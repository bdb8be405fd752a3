"""The client's commands: ask a label service, train a model, and predict with it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ucds.choices import PredictionFormat, Sorting
from ucds.cli import options
from ucds.cli.app import app
from ucds.training.processes import is_first_process
from ucds.training.progress import Reporter, end_bar

if TYPE_CHECKING:
    from ucds.labels.client import LabelClient
    from ucds.reports.page.report import WrittenReport

MaxQueriesOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of samples to have labelled, well spread over the backbone's features.",
        show_default="all",
    ),
]
CalibrateOption = Annotated[
    bool,
    typer.Option(
        "--calibrate",
        help="Before the first question of the key, send a random sample of the images: the service then "
        "subtracts their mean from the features of all images of the key.",
    ),
]
NamesOption = Annotated[
    Path | None,
    typer.Option(help="Names of the clusters, a file saved from the run's report.", show_default=False),
]
NoReportOption = Annotated[bool, typer.Option("--no-report", help="Write no report, see `ucds report`.")]


@dataclass(frozen=True)
class ServiceGroup:
    """Options of the connection to a label service."""

    key: Annotated[
        str | None,
        typer.Option(
            envvar="UCDS_KEY",
            help="Your key. Safer in the environment variable: others on the machine can read a command "
            "line.",
            show_default=False,
        ),
    ] = None
    ca_file: Annotated[
        Path | None,
        typer.Option(help="Certificates to check the service's with, PEM.", show_default="the system's"),
    ] = None
    allow_plain_http: Annotated[
        bool, typer.Option("--allow-plain-http", help="Send the key unencrypted to another machine.")
    ] = False
    overdraw: Annotated[
        bool, typer.Option("--overdraw", help="Ask even if the budget may not cover all samples.")
    ] = False

    def client(
        self, url: str, *, parallel: int = 4, batch_size: int | None = None, calibrate: bool = False
    ) -> LabelClient:
        """Make the client of a service; on a terminal, the user is asked before a budget is overdrawn."""
        from ucds.labels.client import LabelClient

        def confirm(sentence: str) -> bool:
            if self.overdraw or not sys.stdin.isatty():
                return self.overdraw
            end_bar()
            return typer.confirm(f"{sentence}. Ask all the same?", err=True)

        return LabelClient(
            url,
            self.key or None,
            parallel=parallel,
            batch_size=batch_size,
            allow_plain_http=self.allow_plain_http,
            ca_file=self.ca_file,
            confirm=confirm,
            calibrate_key=calibrate,
        )


@app.command("query", rich_help_panel=options.CLIENT)
@options.expand
def query_command(
    images: options.ImagesArgument,
    out: options.LabelFileOption,
    url: Annotated[str, typer.Option(help="Label service of the provider, https://..")],
    encoder: options.EncoderGroup,
    work: options.WorkGroup,
    output: options.OutputGroup,
    service: ServiceGroup,
    max_queries: MaxQueriesOption = None,
    parallel: Annotated[int, typer.Option(min=1, max=64, help="Requests under way at a time.")] = 4,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Most samples in a request.", show_default="64")
    ] = None,
    calibrate: CalibrateOption = False,
    seed: options.SeedOption = 0,
) -> None:
    """Ask a label service about your samples; if it stops on the way, run the same command again.

    Backbone and weights are used with --max-queries only: they choose the samples to ask about.
    """
    reporter = output.reporter()
    client = service.client(url, parallel=parallel, batch_size=batch_size, calibrate=calibrate)
    from ucds.target.ask import query

    with client:
        try:
            labels = query(
                images,
                out,
                client,
                max_queries=max_queries,
                encoder=encoder.encoder(),
                seed=seed,
                accelerator=work.accelerator,
                cache=work.cache_options(),
                reporter=reporter,
            )
        except KeyboardInterrupt:
            options.say("stopped, with all labels kept: run the same command again to go on")
            raise typer.Exit(130) from None
    output.present_labels(labels, out)


@app.command("train-target", rich_help_panel=options.CLIENT)
@options.expand
def train_target_command(
    images: options.ImagesArgument,
    out: options.RunFolderOption,
    training: options.TrainingGroup,
    work: options.WorkGroup,
    output: options.OutputGroup,
    clusters: Annotated[
        str | None, typer.Option(help=options.CLUSTERS_HELP, show_default="the provider's")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="Label file of the provider, or from `ucds query`.", show_default=False),
    ] = None,
    constraints: Annotated[
        Path | None,
        typer.Option(help="Corrections, a file saved from an earlier run's report.", show_default=False),
    ] = None,
    no_report: NoReportOption = False,
) -> None:
    """Train a model of your own from a provider's labels and unlabelled samples.

    Without --labels, give --clusters: no provider takes part. The run folder gets a report
    to open in a browser.
    """
    number = None if clusters is None else options.cluster_number(clusters)
    settings, reporter = training.method_settings("target"), output.reporter()
    from ucds.target.train import train_target

    run = train_target(
        images,
        out,
        labels=labels,
        n_clusters=number,
        constraints=constraints,
        encoder=training.encoder(),
        settings=settings,
        options=training.run_options(work),
        cache=work.cache_options(),
        reporter=reporter,
    )
    page = None if no_report else _write_report(out, images, None, None, work, reporter)
    output.present_run(run, page)


@app.command("predict", rich_help_panel=options.CLIENT)
@options.expand
def predict_command(
    run: options.RunArgument,
    images: options.ImagesArgument,
    out: Annotated[
        Path,
        typer.Option(help="Table to write: .csv, .parquet or .json."),
    ],
    work: options.WorkGroup,
    output: options.OutputGroup,
    sort_into: Annotated[
        Path | None,
        typer.Option(help="Sort the images into one folder a cluster, below this one.", show_default=False),
    ] = None,
    sort_how: Annotated[
        Sorting, typer.Option(help="Copy the images there, link to them, or move them.")
    ] = "copy",
    out_format: Annotated[
        PredictionFormat, typer.Option(help="A table, or what FiftyOne or Label Studio imports (.json).")
    ] = "table",
    names: NamesOption = None,
    min_confidence: Annotated[
        float,
        typer.Option(min=0, max=1, help="Confidence below which a sample is left without a cluster (-1)."),
    ] = 0.0,
    no_report: NoReportOption = False,
) -> None:
    """Find the cluster of each sample with your own model, and write a report beside the table."""
    reporter = output.reporter()
    from ucds.target.predict import check_outputs, predict

    check_outputs(images, out, out_format, sort_into)
    moved = sort_into is not None and sort_how == "move"

    def write_report() -> Path | None:
        place = out.with_suffix(".html")
        return None if no_report else _write_report(run, images, place, names, work, reporter)

    page = write_report() if moved else None  # while the images are where the report looks for them
    found = predict(
        run,
        images,
        out,
        out_format=out_format,
        sort_into=sort_into,
        sort_how=sort_how,
        names=names,
        min_confidence=min_confidence,
        accelerator=work.accelerator,
        cache=work.cache_options(),
        reporter=reporter,
    )
    page = page if moved else write_report()
    count, values = len(found.ids), {"samples": len(found.ids), "unsorted": found.unsorted, "out": str(out)}
    sentence = f"clusters of {count:,} samples written to {out}"
    if found.unsorted:
        sentence += f"; {found.unsorted:,} of them are left without a cluster, as -1"
    output.present(sentence + options.name_report(page), values | options.report_entry(page))


@app.command("report", rich_help_panel=options.CLIENT)
@options.expand
def report_command(
    run: options.RunArgument,
    work: options.WorkGroup,
    output: options.OutputGroup,
    images: Annotated[
        str | None,
        typer.Argument(
            help="Images, features or embeddings in any form that training takes.",
            show_default="those of the training",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="HTML file to write.", show_default="RUN/report.html")
    ] = None,
    names: NamesOption = None,
    pictures: Annotated[
        Path | None,
        typer.Option(
            "--images", help="Images of a folder of features.", show_default="where they were read from"
        ),
    ] = None,
) -> None:
    """Write a page to look at: every cluster, a map, doubts, and forms for names and corrections."""
    done = _report(run, images, out, names, work, output.reporter(), pictures)
    lines = [f"report written to {done.path}", *(f"note: {line}" for line in done.warnings)]
    output.present("\n".join(lines), done.to_dict())


def _write_report(
    run: Path,
    images: str,
    out: Path | None,
    names: Path | None,
    work: options.WorkGroup,
    reporter: Reporter,
) -> Path | None:
    """Write the report of a command that did something else; of several processes the first one does."""
    return _report(run, images, out, names, work, reporter).path if is_first_process() else None


def _report(
    run: Path,
    images: str | None,
    out: Path | None,
    names: Path | None,
    work: options.WorkGroup,
    reporter: Reporter,
    pictures: Path | None = None,
) -> WrittenReport:
    from ucds.reports.page.report import report

    return report(
        run,
        images,
        out,
        names=names,
        pictures=pictures,
        accelerator=work.accelerator,
        cache=work.cache_options(),
        reporter=reporter,
    )
