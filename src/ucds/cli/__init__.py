"""The command line. Each command imports the code of its own side, and only when it is called."""

from __future__ import annotations

import sys
import warnings
from typing import Any, NoReturn

import typer

from ucds.cli import research, serving, source, target  # noqa: F401  (they add their commands)
from ucds.cli.app import app
from ucds.cli.options import say
from ucds.errors import Interrupted, UcdsWarning, UserError

_show_library_warning = warnings.showwarning
_UsageError: Any = typer.BadParameter.__mro__[1]  # Typer gives its parent, of all wrong usage, no name


def main() -> None:
    """Run the command line; an error that a user can cause is printed as one line, with exit status 2."""
    warnings.showwarning = _show_warning
    try:
        status = app(sys.argv[1:] or ["--help"], prog_name="ucds", standalone_mode=False)
    except _UsageError as error:
        _fail(error.format_message())
    except Interrupted:
        say("stopped, with all work saved: go on with --resume")
        sys.exit(130)
    except (KeyboardInterrupt, typer.Abort):
        say("stopped")
        sys.exit(130)
    except UserError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))
    sys.exit(status)


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **named: Any) -> None:
    """Print our own warnings as one line; those of libraries keep their place in the code."""
    if issubclass(category, UcdsWarning):
        say(f"warning: {message}")
    else:
        _show_library_warning(message, category, *place, **named)


def _fail(message: str) -> NoReturn:
    say(f"error: {' '.join(message.split())}")
    sys.exit(2)
