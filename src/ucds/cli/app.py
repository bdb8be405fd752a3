"""The application that the commands belong to."""

from __future__ import annotations

import typer

app = typer.Typer(
    name="ucds",
    help="Unsupervised clustering under domain shift, with source privacy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
