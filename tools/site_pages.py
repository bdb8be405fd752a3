"""Pages of the site that are made of other files: commands, settings, the list of records, and notebooks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer.main

import ucds.cli  # noqa: F401  (it adds the commands)
from ucds.cli.options import app
from ucds.config import SETTINGS


def commands_page() -> str:
    """Describe every command with its arguments and options, in the words of ``--help``."""
    lines = ["# Commands", "", "What `ucds --help` and `ucds COMMAND --help` print."]
    for name, command in _commands("ucds", typer.main.get_command(app)):
        context = command.make_context(name, [], resilient_parsing=True)
        records = [parameter.get_help_record(context) for parameter in command.params]
        paragraphs = re.sub(r"(?<!\n)\n(?!\n)", " ", command.help or "")
        lines += ["", f"## `{name}`", "", paragraphs, ""]
        lines += _table(
            ("argument or option", "meaning"), ((f"`{what}`", text) for what, text in filter(None, records))
        )
    return "\n".join(lines) + "\n"


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    for word, inner in getattr(command, "commands", {}).items():
        yield from _commands(f"{name} {word}", inner)
    if not hasattr(command, "commands"):
        yield name, command


def settings_page() -> str:
    """List the settings of both methods, as ``ucds settings`` does."""
    lines = ["# Settings", "", "What `--set NAME=VALUE` and `--config FILE` change."]
    for method, kind in SETTINGS.items():
        listed = kind.model_json_schema()["properties"].items()
        rows = (
            (f"`{name}`", f"`{json.dumps(one['default'])}`", one.get("side", "both"), one["description"])
            for name, one in listed
        )
        lines += ["", f"## `{method}`", "", *_table(("setting", "default", "side", "meaning"), rows)]
    return "\n".join(lines) + "\n"


def records_page(root: Path) -> str:
    """List the pages of records, with their titles.

    Args:
        root: folder of the project.
    """
    lines = ["# Records", "", "Each page is written by a command, from records of runs."]
    for title, folder in (("Tables and figures", "results"), ("Measurements", "benchmarks")):
        pages = sorted((root / folder).glob("*.md"))
        lines += ["", f"## {title}", "", *(f"- [{_title(page)}](../{folder}/{page.name})" for page in pages)]
    return "\n".join(lines) + "\n"


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").split("\n", 1)[0].lstrip("# ")


def notebook_page(notebook: Path) -> str:
    """Write a notebook as Markdown: its texts, its code, and what the code printed and drew.

    Args:
        notebook: file with stored outputs.
    """
    parts = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
        else:
            parts += [_fenced("python", text), *map(_output, cell["outputs"])]
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        return f"![drawn by the code above](data:image/png;base64,{data['image/png'].strip()})"
    return _fenced("text", "".join(output.get("text", data.get("text/plain", ""))).rstrip())


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines]
