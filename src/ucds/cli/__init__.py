"""The command line. Each command imports the code of its own side, and only when it is called."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
import traceback
import warnings
from importlib.metadata import version
from typing import Any, NoReturn

import typer

from ucds.cli import ledger, research, results, serving, source, target  # noqa: F401  (they add commands)
from ucds.cli.options import app, say
from ucds.errors import Interrupted, UcdsWarning, UserError, one_line, without_secrets
from ucds.training.processes import is_first_process, started_by_torchrun
from ucds.training.progress import end_bar

_show_library_warning = warnings.showwarning
_command_line: Any = typer.main.get_command(app)
_UsageError: Any = typer.BadParameter.__base__  # of all wrong usage
_warned = set[str]()

_LONGEST_PARTING = 15.0
_INTERRUPTED = 130  # exit status that shells give a command which Ctrl-C ends


def main() -> None:
    """Run the command line; an error that a user can cause is printed as one line, with exit status 2."""
    try:
        _run()
    except SystemExit as end:
        if end.code and started_by_torchrun() is None and not is_first_process():
            _outlive(os.getppid())
        raise


def _outlive(first: int) -> None:
    """Wait until the first process has ended, or for 15 seconds.

    Every five seconds, Fabric checks whether another process has failed. If so, it kills the first process,
    even while that one reports the failure and ends by itself.
    """
    deadline = time.monotonic() + _LONGEST_PARTING
    while os.getppid() == first and time.monotonic() < deadline:
        time.sleep(0.05)


def _run() -> NoReturn:
    _warned.clear()
    warnings.showwarning = _show_warning
    try:
        try:
            status = _command_line(sys.argv[1:] or ["--help"], prog_name="ucds", standalone_mode=False)
            sys.stdout.flush()
        finally:
            end_bar()
    except _UsageError as error:
        if told := error.format_message():  # there is none where a group of commands shows its help
            _fail(told)
        sys.exit(0)
    except Interrupted as error:
        say(f"stopped; {str(error) or 'what is finished is saved: run the same command with --resume'}")
        sys.exit(_INTERRUPTED)
    except (KeyboardInterrupt, typer.Abort):
        say("stopped")
        sys.exit(_INTERRUPTED)
    except UserError as error:
        _fail(str(error))
    except BrokenPipeError:  # nobody reads the result any longer
        sys.exit(1)
    except OSError as error:
        _fail(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))
    except Exception as error:
        _fail_unforeseen(error)
    if status == _INTERRUPTED:  # Typer makes this of an interrupt
        say("stopped")
    sys.exit(status)


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **named: Any) -> None:
    """Print this package's warnings as one line, once; warnings of libraries keep their place in the code."""
    if not issubclass(category, UcdsWarning):
        _show_library_warning(message, category, *place, **named)
    elif str(message) not in _warned:  # steps of a command that open the same samples find the same
        _warned.add(str(message))
        say(f"warning: {message}")


def _fail_unforeseen(error: Exception) -> NoReturn:
    """Say in one line that this is a bug in ucds, and keep the traceback in a file."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        what = f"there is not enough memory ({one_line(error, 80)})"
        _fail(f"{what}: lower --set batch_size=.. or --image-size, or use --accelerator cpu")
    handle, path = tempfile.mkstemp(prefix="ucds-fault-", suffix=".log")
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        versions = ", ".join(f"{name} {version(name)}" for name in ("ucds", "numpy", "onnxruntime"))
        told = f"{' '.join(sys.argv)}\n{versions}, Python {platform.python_version()}\n\n"
        file.write(without_secrets(told + "".join(traceback.format_exception(error))))
    what = without_secrets(f"{type(error).__name__}: {one_line(error)}")
    say(f"error: this is a bug in ucds; please report it with the file {path} ({what})", on_each_machine=True)
    sys.exit(1)


def _fail(message: str) -> NoReturn:
    say(f"error: {without_secrets(' '.join(message.split()))}", on_each_machine=True)
    sys.exit(2)
