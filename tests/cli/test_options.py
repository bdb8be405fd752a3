"""Each option of a command arrives at the function that the command calls, and there are not too many."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
from cli_kit import run_command

import ucds
from ucds.cli.options import app
from ucds.training.progress import Reporter

WRITTEN = {
    "settings": "starts=17",
    "limits": "max_batch=17",
    "n_clusters": "17",
    "min_confidence": "0.17",
    "weights": "none",
    "url": "http://127.0.0.1:9",
}
"""Values of options that do not take any text."""
OTHERS = {"no_report", "tune", "workers", "help"}
"""Options that the command itself obeys, or that are refused beside its defaults."""
BESIDE = {("audit", "url"), ("audit", "backbone")}
"""Options that others need beside them."""
COMMANDS: dict[str, Any] = {
    name: command
    for name, command in typer.main.get_command(app).commands.items()  # type: ignore[attr-defined]
    if name.replace("-", "_") in ucds.__all__
}


def flat(value: Any) -> str:
    """Write all that a value of this package holds, but for what receives its progress."""
    if isinstance(value, Mapping):
        return " ".join(f"{name}={flat(entry)}" for name, entry in value.items())
    if isinstance(value, Iterable) and not isinstance(value, str):
        return f"({' '.join(map(flat, value))})"
    if type(value).__module__.startswith("ucds.") and not isinstance(value, Reporter):
        return flat(vars(value))
    return "" if " at 0x" in str(value) else str(value)


def written(option: Any) -> list[str]:
    """An option as it is written, with a value that is not its default."""
    kind = option.type_descriptor.annotation
    choices = [choice for choice in get_args(kind) if choice not in (option.default, str)]
    usual = "17" if kind in (int, float) else choices[0] if choices else "text"
    return [option.opts[0], *([] if option.is_flag else [WRITTEN.get(option.name, usual)])]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_arrives(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    function = getattr(ucds, name.replace("-", "_"))
    got: list[str] = []

    def keep(*given: Any, **named: Any) -> None:
        got.append(flat([given, named]))
        raise SystemExit

    monkeypatch.setattr(sys.modules[function.__module__], function.__name__, keep)
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    Path("run/model.safetensors").touch()
    options = [one for one in COMMANDS[name].params if one.param_type_name == "option"]
    needed = [one for one in COMMANDS[name].params if one.required or (name, one.name) in BESIDE]
    base = [word for one in needed for word in (written(one) if one in options else [one.name])]
    for words in ([], *(written(one) for one in options if one.name not in OTHERS and one not in needed)):
        done = run_command(name, *base, *words)
        assert done.status == 0, done.err
        assert got[-1] != got[0] or not words, words
        assert words[-1:] not in (["text"], ["17"]) or words[-1] in got[-1], words


def test_no_command_has_more_options_than_one_can_survey() -> None:
    counts = {
        name: sum(parameter.param_type_name == "option" for parameter in command.params)
        for name, command in typer.main.get_command(app).commands.items()  # type: ignore[attr-defined]
    }
    assert {name: count for name, count in counts.items() if count > 20} == {}
