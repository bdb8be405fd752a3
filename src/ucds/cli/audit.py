"""The provider's command that measures what labels give away."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ucds.cli import options
from ucds.cli.options import app
from ucds.cli.target import ServiceGroup


@app.command("audit", rich_help_panel=options.PROVIDER)
@options.expand
def audit_command(
    members: Annotated[Path, typer.Option(help="Samples that the model was trained on.")],
    others: Annotated[Path, typer.Option(help="Samples of the same kind that it was not trained on.")],
    out: Annotated[Path, typer.Option(help="HTML file to write; all figures go into a JSON file beside it.")],
    encoder: options.EncoderGroup,
    work: options.WorkGroup,
    output: options.Output,
    service: ServiceGroup,
    run: Annotated[Path | None, typer.Argument(help="Run folder to audit.", show_default=False)] = None,
    url: Annotated[
        str | None, typer.Option(help="Label service to audit instead.", show_default=False)
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few samples and queries, in about a minute.")
    ] = False,
    seed: options.SeedOption = 0,
) -> None:
    """Attack a model with labels alone, and report what they give away."""
    reporter = output.start()
    from ucds.auditing.audit import QUICK, audit

    client = None if url is None else service.client(url)
    found = audit(
        run,
        members,
        others,
        out,
        client=client,
        encoder=None if encoder.backbone is None else encoder.encoder(),
        effort=QUICK if quick else None,
        seed=seed,
        compute=work.compute(reporter),
    )
    output.present("\n".join([*found.summary(), f"report written to {out}"]), found.to_dict())
