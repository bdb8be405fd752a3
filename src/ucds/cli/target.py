"""The client's commands that make something of samples: ask a label service, sort, train, predict, update."""

from __future__ import annotations

import os
import shlex
import sys
import webbrowser
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from ucds.choices import Sorting
from ucds.cli import options
from ucds.errors import Interrupted
from ucds.training.options import RunOptions
from ucds.training.processes import is_first_process
from ucds.training.run_folder import require_model

if TYPE_CHECKING:
    from ucds.labels.client import LabelClient


@dataclass(frozen=True)
class ServiceGroup:
    """Options of the connection to a label service."""

    PANEL = "Service"
    key: Annotated[
        str | None,
        Option(
            envvar="UCDS_KEY",
            help="Your key. The environment variable is safer: others on the machine can read command lines.",
        ),
    ] = None
    overdraw: Annotated[
        bool, Option("--overdraw", help="Ask even if the budget may not cover all samples.")
    ] = False
    signer: Annotated[
        str | None,
        Option(help="Provider's public key, which must sign the receipts.", show_default="the service's"),
    ] = None

    def client(self, url: str, *, calibrate: bool = False) -> LabelClient:
        """Make the client of a service."""
        from ucds.labels.client import LabelClient

        return LabelClient(
            url, self.key or None, overdraw=self.overdraw, calibrate=calibrate, signer=self.signer
        )


@options.command("query", options.CLIENT)
def query_command(
    images: options.ImagesArgument,
    out: options.LabelFileOption,
    url: Annotated[str, Option(help="Label service of the provider, https://..")],
    encoder: options.EncoderGroup,
    work: options.WorkGroup,
    output: options.Output,
    service: ServiceGroup,
    max_queries: Annotated[
        int | None,
        Option(
            min=1,
            help="Number of samples to ask about, spread over the encoder's features.",
            show_default="all",
        ),
    ] = None,
    calibrate: Annotated[
        bool,
        Option(
            "--calibrate",
            help="Send some of the images first, if the key has no labels yet: the service then "
            "subtracts the mean of their features from those of all images of this key.",
        ),
    ] = False,
    allow_outside: Annotated[
        bool,
        Option("--allow-outside", help="Also send image files outside the folder of the input."),
    ] = False,
    keep_metadata: Annotated[
        bool, Option("--keep-metadata", help="Send image files byte for byte, with EXIF data and profiles.")
    ] = False,
    seed: options.SeedOption = 0,
) -> None:
    """Ask a label service about your samples. If the command stops early, run it again.

    With --max-queries, the encoder chooses the samples to ask about.
    """
    reporter = output.start()
    client = service.client(url, calibrate=calibrate)
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
                allow_outside=allow_outside,
                keep_metadata=keep_metadata,
                compute=work.compute(reporter),
            )
        except KeyboardInterrupt:
            raise Interrupted("all labels are kept: run the same command again to continue") from None
    output.present_labels(labels, out)


@options.command("sort", options.CLIENT)
def sort_command(
    images: options.ImagesArgument,
    encoder: options.EncoderGroup,
    work: options.WorkGroup,
    output: options.Output,
    out: Annotated[
        Path | None, Option(help="Run folder to make.", show_default="IMAGES-groups, beside the images")
    ] = None,
    no_open: Annotated[bool, Option("--no-open", help="Open no browser.")] = False,
) -> None:
    """Sort images into groups, choose their number, and open the report.

    This is `ucds train-target IMAGES --clusters auto`. If the command stops early, run it again.
    """
    reporter = output.start()
    out, compute = out or beside(images), work.compute(reporter)
    from ucds.page.report import report
    from ucds.target.train import train_target

    again = RunOptions(resume=True)
    try:
        train_target(
            images, out, n_clusters="auto", encoder=encoder.encoder(), options=again, compute=compute
        )
    except Interrupted:
        raise Interrupted("what is finished is saved: run the same command again to continue") from None
    done = report(out, images, compute=compute)
    named = (str(out), images, str(out).removesuffix("-groups") + "-sorted")
    run, given, folders = map(shlex.quote, named)
    lines = [
        f"{done.samples:,} images are in {done.n_clusters} groups: open {done.path} in a browser",
        f"to correct and name the groups: ucds review {run}",
        f"to make a folder for each: ucds predict {run} {given} --out {run}.csv --sort-into {folders}",
        f"to add new images: ucds update {run} NEW-IMAGES --out {run}-2",
    ]
    output.present(lines, asdict(done) | {"run": out})
    if not no_open and has_screen():
        webbrowser.open(done.path.absolute().as_uri())


def beside(images: str) -> Path:
    """Return the folder beside the images that their run gets."""
    place = Path(images) if Path(images).name not in ("", "..") else Path(images).resolve()
    return place.with_name(f"{place.stem if place.is_file() else place.name}-groups")


def has_screen() -> bool:
    """Return whether this machine has a screen on which a browser would open."""
    shown = sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(shown) and sys.stderr.isatty()


@options.command("train-target", options.CLIENT)
def train_target_command(
    images: options.ImagesArgument,
    out: options.RunFolderOption,
    method: options.MethodGroup,
    encoder: options.EncoderGroup,
    training: options.TrainingGroup,
    known: options.AboutGroup,
    output: options.Output,
    n_clusters: Annotated[
        str | None, Option("--clusters", help=options.CLUSTERS_HELP, show_default="the provider's")
    ] = None,
    labels: Annotated[Path | None, Option(help="Label file of the provider, or from `ucds query`.")] = None,
    centre_by: Annotated[
        str | None,
        Option(help="Column whose groups are each centred, such as the scanner.", show_default="none"),
    ] = None,
    no_report: Annotated[bool, Option("--no-report", help="Write no report.")] = False,
) -> None:
    """Train your own model from unlabelled samples and, if you have them, a provider's labels.

    Without --labels, give --clusters. The run folder gets a report to open in a browser.
    """
    settings, reporter = method.method_settings("target"), output.start()
    from ucds.target.train import train_target

    run = train_target(
        images,
        out,
        labels=labels,
        n_clusters=n_clusters,
        encoder=encoder.encoder(),
        settings=settings,
        options=training.run_options(method.seed),
        about=known.about,
        group=known.group,
        centre_by=centre_by,
        compute=training.compute(reporter),
    )
    page = None
    if not no_report:
        from ucds.page.report import report

        written = report(
            out, images, about=known.about, group=known.group, compute=training.compute(reporter)
        )
        page = written.path if is_first_process() else None  # of several processes the first one speaks
    output.present_run(run, page)


@options.command("predict", options.CLIENT)
def predict_command(
    run: options.RunArgument,
    images: options.ImagesArgument,
    out: Annotated[Path, Option(help="Table to write, .csv.")],
    work: options.WorkGroup,
    output: options.Output,
    sort_into: Annotated[
        Path | None, Option(help="Sort the images into one folder per cluster, below this one.")
    ] = None,
    sort_how: Annotated[Sorting, Option(help="Copy the images there, or link to them.")] = "copy",
    about: Annotated[
        Path | None,
        Option(help="Table with the column that the run was centred by.", show_default="as in the training"),
    ] = None,
    min_confidence: Annotated[
        float, Option(min=0, max=1, help="Confidence below which a sample is left without a cluster (-1).")
    ] = 0.0,
) -> None:
    """Find the cluster of each sample with your own model; `ucds report RUN IMAGES` shows them."""
    reporter = output.start()
    from ucds.target.predict import predict

    found = predict(
        run,
        images,
        out,
        sort_into=sort_into,
        sort_how=sort_how,
        about=about,
        min_confidence=min_confidence,
        compute=work.compute(reporter),
    )
    count, values = len(found.ids), {"samples": len(found.ids), "unsorted": found.unsorted, "out": out}
    values["strangers"] = found.strangers
    sentence = f"clusters of {count:,} samples written to {out}"
    if sort_into is not None:
        sentence += f", and their images sorted into {sort_into}"
    if found.unsorted:
        sentence += f"; {found.unsorted:,} without a cluster (-1)"
    lines = [sentence]
    if found.strangers:
        lines.append(
            f"{found.strangers:,} of them fit no cluster (column fits): "
            f"`ucds update {run} {images} --out NEW-RUN` gives new kinds clusters of their own"
        )
    output.present(lines, values)


@options.command("update", options.CLIENT)
def update_command(
    run: options.RunArgument,
    images: options.ImagesArgument,
    out: options.RunFolderOption,
    work: options.WorkGroup,
    known: options.AboutGroup,
    output: options.Output,
    labels: Annotated[
        Path | None, Option(help="Label file of the new samples, from the same provider as the run's labels.")
    ] = None,
    forget_missing: Annotated[
        bool, Option("--forget-missing", help="Leave out samples of the run that are not given now.")
    ] = False,
    no_report: Annotated[bool, Option("--no-report", help="Write no report.")] = False,
) -> None:
    """Add new samples to a run: clusters keep their numbers, and new kinds get clusters.

    You may give old samples again: they are recognised by their content.
    """
    reporter = output.start()
    require_model(run)
    from ucds.target.update import update

    compute = work.compute(reporter)
    done = update(
        run,
        images,
        out,
        labels=labels,
        about=known.about,
        group=known.group,
        forget_missing=forget_missing,
        compute=compute,
    )
    lines, values = done.sentences, asdict(done)
    if not no_report:
        from ucds.page.report import report

        page = report(out, compute=compute).path
        lines, values = [*lines, f"open {page} in a browser"], values | {"report": page}
    output.present(lines, values)
