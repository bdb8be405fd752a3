"""The command that writes a finished model in a form that other programs run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ucds.choices import ExportFormat
from ucds.cli import options
from ucds.cli.app import app
from ucds.training.run_folder import require_model


@app.command("export", rich_help_panel=options.CLIENT)
@options.expand
def export_command(
    run: options.RunArgument,
    output: options.OutputGroup,
    form: Annotated[
        ExportFormat,
        typer.Option("--format", help="A graph, the head as a scikit-learn object, or a folder for a hub."),
    ] = "onnx",
    out: Annotated[
        Path | None, typer.Option(help="File or folder to write.", show_default="RUN/model.*, RUN/hub")
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(help="Samples to compare a graph with the model on.", show_default="64 random ones"),
    ] = None,
) -> None:
    """Write a model for other programs, compared with the model itself."""
    if not output.quiet:
        options.start()
    require_model(run)
    from ucds.exports.export import export

    done = export(run, out, form=form, images=images)
    sentence = f"model written to {done.path}"
    if done.differences:
        found = ", ".join(f"{name} {value:.1e}" for name, value in done.differences.items())
        sentence += f"; largest difference from the model itself on {done.compared} samples: {found}"
    output.present(sentence, done.to_dict())
