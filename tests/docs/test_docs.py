"""What the pages say is so: commands and options exist, links lead somewhere, messages are the code's."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

import ucds.cli  # noqa: F401  (it adds the commands)
from ucds.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
COMMANDS: Any = typer.main.get_command(app)


def typed_commands(page: Path) -> Iterator[str]:
    """Yield the lines of code blocks that call the command line, without comments; continued ones as one."""
    text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
    for line in re.findall(r"^(?: {4}|\$ |)(ucds [a-z].*)$", text, re.MULTILINE):
        if not re.match(r"ucds [a-z-]+ (is|are|has|and|or|takes)\b", line):
            yield line.split("  #")[0].split(" | ")[0].split(" && ")[0].strip()


def refusal(line: str) -> str | None:
    """Return what the command line does not know of a command; ``None`` if it knows all."""
    words = shlex.split(line)[1:]
    group = COMMANDS
    while words and hasattr(group, "commands") and not words[0].startswith("-"):
        name = words.pop(0)
        if name not in group.commands:
            return f"no command {name!r}"
        group = group.commands[name]
    known = {flag for parameter in group.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    known |= {"--help"}
    unknown = [word for word in words if word.startswith("--") and word.split("=")[0] not in known]
    return f"no option {unknown[0]!r}" if unknown else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_their_options_exist(page: Path) -> None:
    refused = {line: why for line in typed_commands(page) if (why := refusal(line)) is not None}
    assert not refused


def test_a_command_that_does_not_exist_is_found() -> None:
    assert refusal("ucds predict a b --out c.csv") is None
    assert refusal("ucds predcit a b") == "no command 'predcit'"
    assert refusal("ucds keys ad x") == "no command 'ad'"
    assert refusal("ucds predict a b --otu c.csv") == "no option '--otu'"
    assert sum(1 for page in PAGES for _ in typed_commands(page)) > 30


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, heading = target.partition("#")
        file = (page.parent / path) if path else page
        assert file.exists(), target
        if heading:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", found.lower()).replace(" ", "-") for found in headings}


def messages() -> str:
    """Return every text in the source, one a line, with ``..`` for each value that is filled in."""
    found = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (str(v.value) if isinstance(v, ast.Constant) else ".." for v in node.values)
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(" ".join(text.split()) for text in found)


def test_the_messages_that_are_explained_are_those_of_the_code() -> None:
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    headings = re.findall(r"^### `(.*)`$", text, re.MULTILINE)
    assert len(headings) > 20
    known = messages()
    for heading in headings:
        words = [re.escape(part.strip("'\": ;(),")) for part in heading.split("..")]
        assert re.search(".*".join(word for word in words if word), known), heading


def test_the_citation_is_complete() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    version = re.search(
        r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert version is not None
    assert citation["version"] == version[1]
    paper = citation["preferred-citation"]
    names = [author["family-names"] for author in paper["authors"]]
    entry = re.search(
        r"@inproceedings\{.*?\n\s*\}", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert entry is not None
    assert paper["title"] in entry[0]
    assert all(name in entry[0] for name in names)
