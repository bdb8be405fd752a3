"""The command that computes features in bulk, for both sides."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ucds.choices import Engine
from ucds.cli import options
from ucds.cli.app import app


@app.command("features", rich_help_panel=options.PROVIDER)
@options.expand
def features_command(
    images: Annotated[
        str,
        typer.Argument(
            help="Folder, list or table of images, tar file, or the address of a folder in an object store; "
            "see docs/large-data.md."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the features.")],
    encoder: options.EncoderGroup,
    work: options.WorkGroup,
    output: options.OutputGroup,
    engine: Annotated[
        Engine,
        typer.Option(
            help="A loop in this process ('plain'), or Ray ('ray'): on the cluster that RAY_ADDRESS names, "
            "or on this machine."
        ),
    ] = "plain",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Workers of Ray.", show_default="one a processor")
    ] = None,
    shard_size: Annotated[int, typer.Option(min=1, help="Images of a part.")] = 4096,
) -> None:
    """Compute the features of images; every command takes their folder in place of the images."""
    reporter = output.reporter()
    from ucds.bulk.features import features
    from ucds.bulk.options import BulkOptions

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
        sentence += f"; {done.skipped:,} images skipped, see skipped.csv"
    output.present(sentence, done.to_dict())
