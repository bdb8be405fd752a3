"""The command that computes features in bulk, for both sides."""

from __future__ import annotations

from typing import Annotated

import typer

from ucds.cli import options
from ucds.cli.app import app


@app.command("features", rich_help_panel=options.PROVIDER)
@options.expand
def features_command(
    images: options.SamplesArgument,
    out: Annotated[str, typer.Option(help="Folder or address of the shards.")],
    encoder: options.EncoderGroup,
    work: options.WorkGroup,
    bulk: options.BulkGroup,
    output: options.OutputGroup,
    by_domain: Annotated[
        bool,
        typer.Option("--by-domain", help="The folder holds one folder a domain: name it for each sample."),
    ] = False,
) -> None:
    """Compute the features of images in bulk, as parquet shards; `label` and `predict` take them."""
    reporter = output.reporter()
    from ucds.bulk.features import features

    done = features(
        images,
        out,
        encoder=encoder.encoder(),
        by_domain=by_domain,
        options=bulk.bulk_options(work, "plain"),
        reporter=reporter,
    )
    output.present_bulk(done, "features")
