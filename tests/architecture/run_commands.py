"""Runs several commands, each in a process of its own, and says which modules each one loaded.

The libraries are loaded once and the processes forked from there, which saves most of the time. Of
``ucds`` nothing is loaded before the fork.

Each line of the standard input is a JSON list: command lines, the folder to run them in, and the folder in
which ``import ucds`` finds the package, or ``null``. Each line of the standard output is a JSON list of the
results of these commands.
"""

import contextlib
import gc
import importlib
import io
import json
import os
import sys
import traceback
from typing import Any

LIBRARIES = ["httpx", "jinja2", "PIL.Image", "pydantic", "scipy.cluster.hierarchy", "sklearn.cluster"]
LIBRARIES += ["sklearn.linear_model", "typer.rich_utils", "lightning_fabric", "safetensors.torch", "torch"]
"""What the commands need of other packages; none of them knows of ucds."""


def _run(arguments: list[str], folder: str, package: str | None) -> dict[str, Any]:
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(reading)
        os.chdir(folder)
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        sys.path[:0] = [package] if package else []
        with os.fdopen(writing, "w") as pipe:
            json.dump(_outcome(arguments), pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        outcome: dict[str, Any] = json.load(pipe)
    os.wait()
    return outcome


def _outcome(arguments: list[str]) -> dict[str, Any]:
    told, status = io.StringIO(), 0
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
        try:
            sys.argv = ["ucds", *arguments]
            from ucds.cli import main

            main()
        except SystemExit as end:
            status = int(end.code or 0)
        except BaseException:
            status = -1
            traceback.print_exc()
    return {"status": status, "told": told.getvalue(), "modules": _modules(), "home": _home()}


def _modules() -> list[str]:
    return sorted(name for name in sys.modules if name.partition(".")[0] == "ucds")


def _home() -> str:
    import ucds

    return str(ucds.__file__)


if __name__ == "__main__":
    for library in LIBRARIES:
        with contextlib.suppress(ImportError):  # PyTorch may not be installed
            importlib.import_module(library)
    assert not _modules()
    gc.freeze()  # otherwise each process copies all that was loaded when it first collects garbage
    for line in sys.stdin:
        commands, *where = json.loads(line)
        print(json.dumps([_run(arguments, *where) for arguments in commands]), flush=True)
