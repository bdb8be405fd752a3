"""The provider's commands: train a model on several domains, label samples, compute features in bulk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ucds.choices import Engine
from ucds.cli import options
from ucds.errors import InputError
from ucds.training.options import BulkOptions


@options.command("train-source", options.PROVIDER)
def train_source_command(
    data: Annotated[
        str,
        Argument(help="Folder of domain folders, .npz with one array per domain, a table, or features."),
    ],
    n_clusters: Annotated[str, Option("--clusters", help=options.CLUSTERS_HELP)],
    out: options.RunFolderOption,
    method: options.MethodGroup,
    encoder: options.EncoderGroup,
    training: options.TrainingGroup,
    output: options.Output,
    domains: Annotated[
        str | None, Option(help="Domains to take, separated by commas.", show_default="all")
    ] = None,
    dp_epsilon: Annotated[
        float | None, Option(help="Epsilon of a model with differential privacy.", show_default="none")
    ] = None,
    groups: Annotated[
        Path | None,
        Option("--dp-group", help="CSV (id, group) of persons to protect instead of images."),
    ] = None,
) -> None:
    """Learn a clustering model from several unlabelled domains."""
    settings = method.method_settings("source", dp_epsilon=dp_epsilon)
    reporter = output.start()
    from ucds.source.train import train_source

    run = train_source(
        data,
        out,
        n_clusters,
        domains=None if domains is None else _names(domains),
        encoder=encoder.encoder(),
        settings=settings,
        options=training.run_options(method.seed),
        groups=groups,
        compute=training.compute(reporter),
    )
    output.present_run(run)


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if "" in names:  # an unset shell variable must not take in the domain that was to be left out
        raise InputError(f"--domains {text!r} holds an empty name: name the domains, or leave the option out")
    return names


@options.command("label", options.PROVIDER)
def label_command(
    run: options.RunArgument,
    images: options.ImagesArgument,
    out: options.LabelFileOption,
    work: options.WorkGroup,
    output: options.Output,
) -> None:
    """Label samples offline; the label file holds one integer per sample."""
    reporter = output.start()
    from ucds.source.label import label

    labels = label(run, images, out, compute=work.compute(reporter))
    output.present_labels(labels, out)


@options.command("features", options.PROVIDER)
def features_command(
    images: Annotated[
        str,
        Argument(
            help="Folder, list or table of images, or the address of a folder in an object store; "
            "see docs/large-data.md."
        ),
    ],
    out: Annotated[Path, Option(help="Folder of the features.")],
    encoder: options.EncoderGroup,
    work: options.WorkGroup,
    output: options.Output,
    engine: Annotated[
        Engine,
        Option(
            help="Use this process ('plain'), or Ray ('ray'): on the cluster that RAY_ADDRESS names, "
            "or on this machine."
        ),
    ] = "plain",
    workers: Annotated[
        int | None, Option(min=1, help="Number of Ray workers.", show_default="one per processor")
    ] = None,
    shard_size: Annotated[int, Option(min=1, help="Number of images per part.")] = 1024,
) -> None:
    """Compute the features of images; every command takes their folder in place of the images."""
    reporter = output.start()
    from ucds.bulk.features import features

    done = features(
        images,
        out,
        encoder=encoder.encoder(),
        options=BulkOptions(engine, workers, shard_size),
        compute=work.compute(reporter),
    )
    sentence = f"features of {done.samples:,} images written to {out} in {done.parts:,} parts"
    if done.made < done.parts:
        sentence += f", {done.parts - done.made:,} of them finished before"
    if done.skipped:
        sentence += f"; {done.skipped:,} cannot be used, see skipped.csv"
    output.present(sentence, done)
