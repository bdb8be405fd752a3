"""What the tests of the pages share: the pages, and the blocks of commands and code in them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


class Block(NamedTuple):
    """A block of commands or code.

    Attributes:
        language: its language; empty for commands.
        text: what it says; of commands, one command.
        file: name of the file that the page says to write it to; empty if there is none.
    """

    language: str
    text: str
    file: str


def blocks(page: Path) -> Iterator[Block]:
    """Yield the commands and the code of a page in their order; a continued command as one line."""
    text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
    fenced = r"(?:`(?P<file>[\w.-]+)`[^`\n]*:\n\n)?^```(?P<language>\w+)\n(?P<code>.*?)^```$"
    typed = r"^(?: {4}|\$ |)(?:\.venv/bin/)?(?P<line>(?:[A-Z]+=\S+ )?(?:ucds|find|export) [^\n]*)$"
    for found in re.finditer(f"{fenced}|{typed}", text, re.MULTILINE | re.DOTALL):
        if found["language"]:
            yield Block(found["language"], found["code"], found["file"] or "")
        elif not re.match(r"ucds [a-z-]+ (is|are|has|and|or|takes)\b", found["line"]):
            yield Block("", found["line"].split("  #")[0].strip(), "")


def commands(page: Path) -> Iterator[str]:
    """Yield the calls of the command line on a page, without what follows them in a pipe."""
    for block in blocks(page):
        found = re.search(r"(?:^| )(ucds .*)", block.text) if not block.language else None
        if found:
            yield found[1].split(" | ")[0].split(" && ")[0].strip()
