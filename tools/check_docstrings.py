"""Refuses entries of docstrings that cannot be read alone.

    python tools/check_docstrings.py src

An entry of "Args:" or "Attributes:" is a noun phrase. One that begins with "of", "whom", "that", "to" and the
like says something only to those who know it already. Prints one line for each such entry, and ends with
status 1 if there is one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

SECTIONS = frozenset({"Args:", "Attributes:"})
REFUSED = frozenset(
    {"of", "whom", "that", "to", "it", "so", "what", "how", "where", "when", "who", "by", "as", "in"}
)
ENTRY = re.compile(r"^(?P<name>[\w*, .`]+?): (?P<text>.+)$")


def main(folders: list[Path]) -> int:
    """Print the refused entries below some folders, and return the exit status."""
    refused = [
        f"{path}:{line}: {name}: {text}"
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
        for line, name, text in refused_entries(path.read_text(encoding="utf-8"))
    ]
    print("\n".join(refused) or "all entries of docstrings can be read alone")
    return 1 if refused else 0


def refused_entries(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, name and text of each entry that begins with a refused word."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node) is None:
            continue
        statement = node.body[0]
        assert isinstance(statement, ast.Expr)
        assert isinstance(statement.value, ast.Constant)
        lines = str(statement.value.value).expandtabs().splitlines()
        for offset, name, text in entries(lines):
            if text.split()[0].lower().strip(",;:") in REFUSED:
                yield statement.lineno + offset, name, text


def entries(lines: list[str]) -> Iterator[tuple[int, str, str]]:
    """Yield offset, name and first line of each entry in the sections of a docstring."""
    indent: int | None = None
    for offset, line in enumerate(lines):
        depth = len(line) - len(line.lstrip())
        if line.strip() in SECTIONS:
            indent = depth
        elif line.strip() and indent is not None:
            if depth <= indent:
                indent = None
            elif depth == indent + 4 and (found := ENTRY.match(line.strip())):
                yield offset, found["name"], found["text"]


if __name__ == "__main__":
    sys.exit(main([Path(argument) for argument in sys.argv[1:]]))
