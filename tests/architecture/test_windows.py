"""The client's commands use no module that Windows lacks. ``make check`` looks for calls that it lacks.

Windows itself was not tried.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

COMMANDS = [
    "train-target images --clusters 3 --out run --backbone ucds/oriented_edges --image-size 32",
    "predict run images --out clusters.csv --sort-into sorted",
    "report run",
    "review run --answers answers.jsonl",
    "export run --format onnx",
]

ANSWERS = (
    '{"format": "ucds-answers/1", "clusters": "of another run"}\n'
    '{"did": "joined", "group": ["0.png"], "to": ["1.png"]}\n'
)

WITHOUT_POSIX = """
# Runs commands without the modules and the calls that Windows lacks: for this package, not for its libraries.
import builtins, json, os, sys

hidden = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
load = builtins.__import__

def load_unless_hidden(name, globals=None, *rest, **others):
    if name in hidden and (globals or {}).get("__name__", "").partition(".")[0] == "ucds":
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return load(name, globals, *rest, **others)

builtins.__import__ = load_unless_hidden
os.supports_dir_fd.clear()
from ucds.cli import main

for line in json.loads(sys.argv[1]):
    sys.argv = ["ucds", *line.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (line, end.code)

import ucds

ucds.Review("run").name(0, "cats")
"""


def test_the_clients_commands_run_without_the_modules_of_posix(
    write_images: Callable[..., list[Path]], tmp_path: Path
) -> None:
    write_images(tmp_path / "images", [f"{number}.png" for number in range(12)])
    (tmp_path / "answers.jsonl").write_text(ANSWERS)
    command = [sys.executable, "-c", WITHOUT_POSIX, json.dumps(COMMANDS)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "report.html").exists()
    assert (tmp_path / "run-reviewed").is_dir()
    assert len((tmp_path / "clusters.csv").read_text().splitlines()) == 13
    assert "cats" in (tmp_path / "run" / "answers.jsonl").read_text()
