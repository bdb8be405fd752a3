"""Options belong to the command line alone; its help begins with imperatives. (Lengths: ``make check``.)"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import typer

from ucds.cli import main  # noqa: F401  (it defines all commands)
from ucds.cli.options import app

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "ucds").rglob("*.py"))
ALLOWED = {"errors.py": "finds keys that somebody typed"}
"""Files whose texts may name options of the command line, and why."""

DOING = re.compile(
    r"(Accept|Add|Also|Answer|Ask|Attack|Change|Check|Compute|Continue|Correct|Create|Delete|Find|Go|Install|Keep|Label|Learn|Leave|List|Look|"
    r"Make|Move|Open|Print|Refuse|Run|Score|See|Send|Show|Sort|Take|Train|Use|Write)\b"
)
"""Imperatives that begin help texts."""


def literals(tree: ast.Module) -> Iterator[ast.Constant]:
    """Texts of a module, without docstrings."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node


def test_no_text_outside_the_command_line_names_an_option() -> None:
    found = [
        f"{path.name}:{text.lineno}: {text.value}"
        for path in SOURCES
        if path.parent.name != "cli" and path.name not in ALLOWED
        for text in literals(ast.parse(path.read_text(encoding="utf-8")))
        if re.search(r"--[a-z]", text.value) and " " in text.value  # one word is for another program
    ]
    assert found == []


def helps() -> list[tuple[str, str]]:
    """Name and help of each command, and of each option that takes no value."""
    found, open_ones = [], [("ucds", typer.main.get_command(app))]
    for name, one in open_ones:
        open_ones += [(f"{name} {inner}", it) for inner, it in getattr(one, "commands", {}).items()]
        found.append((name, one.help or ""))
        flags = [it for it in one.params if getattr(it, "is_flag", False)]
        found += [(f"{name} {it.opts[0]}", getattr(it, "help", "")) for it in flags]
    return found[1:]  # the first says what the package is for


def test_help_of_commands_and_switches_begins_with_an_imperative() -> None:
    """Other options name their value: "Seed of every random choice."."""
    told = helps()
    assert len(told) > 40
    assert [(name, text) for name, text in told if not DOING.match(text)] == []
