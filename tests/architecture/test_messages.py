"""No message outside the command line names one of its options. ``make check`` reads what messages say."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCES = sorted((Path(__file__).parents[2] / "src" / "ucds").rglob("*.py"))
ALLOWED = {"errors.py": "finds keys that somebody typed"}
"""Files whose texts may name options of the command line, and why."""


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
