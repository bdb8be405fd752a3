"""The provider's commands: train a model on several domains, and label samples with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ucds.cli import options
from ucds.cli.app import app
from ucds.errors import InputError


@app.command("train-source", rich_help_panel=options.PROVIDER)
@options.expand
def train_source_command(
    data: Annotated[
        str,
        typer.Argument(
            help="Folder with one folder a domain, .npz with one array a domain, a table, or features."
        ),
    ],
    clusters: Annotated[str, typer.Option(help=options.CLUSTERS_HELP)],
    out: options.RunFolderOption,
    method: options.MethodGroup,
    encoder: options.EncoderGroup,
    training: options.TrainingGroup,
    output: options.OutputGroup,
    domains: Annotated[
        str | None, typer.Option(help="Domains to take, separated by commas.", show_default="all")
    ] = None,
    dp_epsilon: Annotated[
        float | None, typer.Option(help="Epsilon of a model with differential privacy.", show_default="none")
    ] = None,
    dp_group: Annotated[
        Path | None,
        typer.Option(help="CSV (id, group): persons are protected, not images.", show_default=False),
    ] = None,
) -> None:
    """Learn a clustering model from several unlabelled domains."""
    number = options.cluster_number(clusters)
    settings = method.method_settings("source", dp_epsilon=dp_epsilon)
    reporter = output.reporter()
    from ucds.source.train import train_source

    run = train_source(
        data,
        out,
        number,
        domains=None if domains is None else _names(domains),
        encoder=encoder.encoder(),
        settings=settings,
        options=training.run_options(method.seed),
        groups=dp_group,
        compute=training.compute(reporter),
    )
    output.present_run(run)


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if "" in names:  # an unset shell variable must not take in the domain that was to be left out
        raise InputError(f"--domains {text!r} holds an empty name: name the domains, or leave the option out")
    return names


@app.command("label", rich_help_panel=options.PROVIDER)
@options.expand
def label_command(
    run: options.RunArgument,
    images: options.ImagesArgument,
    out: options.LabelFileOption,
    work: options.WorkGroup,
    output: options.OutputGroup,
) -> None:
    """Label samples offline; the file holds one integer for each of them."""
    reporter = output.reporter()
    from ucds.source.label import label

    labels = label(
        run,
        images,
        out,
        compute=work.compute(reporter),
    )
    output.present_labels(labels, out)
