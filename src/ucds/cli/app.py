"""The application to which the command modules add their commands."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(name="ucds", no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(asked: bool) -> None:
    if asked:
        from ucds import __version__

        print(f"ucds {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    show: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Unsupervised clustering under domain shift, with source privacy."""
