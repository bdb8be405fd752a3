"""The client's commands use no module that Windows lacks. ``make check`` looks for calls that it lacks.

Windows itself was not tried.
"""

import builtins
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ucds

COMMANDS = (
    "train-target images --clusters 3 --out run --backbone ucds/oriented_edges --image-size 32",
    "predict run images --out clusters.csv --sort-into sorted",
    "review run --answers answers.jsonl",
    "export run --format onnx",
)
ANSWERS = (
    '{"format": "ucds-answers/1", "clusters": "of another run"}\n'
    '{"did": "joined", "group": ["0.png"], "to": ["1.png"]}\n'
)
HIDDEN = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}


def test_the_clients_commands_run_without_the_modules_of_posix(
    run_anew: Any, write_images: Callable[..., list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = builtins.__import__

    def load_unless_hidden(name: str, caller: Any = None, *rest: Any, **others: Any) -> Any:
        if name in HIDDEN and (caller or {}).get("__name__", "").partition(".")[0] == "ucds":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return load(name, caller, *rest, **others)

    monkeypatch.setattr(builtins, "__import__", load_unless_hidden)
    monkeypatch.setattr(os, "supports_dir_fd", set())
    write_images(tmp_path / "images", [f"{number}.png" for number in range(12)])
    (tmp_path / "answers.jsonl").write_text(ANSWERS)
    for line in COMMANDS:
        done = run_anew(line, tmp_path)
        assert done.status == 0, done.told
    ucds.Review(tmp_path / "run").name(0, "cats")
    assert (tmp_path / "run" / "report.html").exists()
    assert (tmp_path / "run-reviewed").is_dir()
    assert len((tmp_path / "clusters.csv").read_text().splitlines()) == 13
    assert "cats" in (tmp_path / "run" / "answers.jsonl").read_text()
