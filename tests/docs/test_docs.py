"""What the pages say is so: commands and options exist, links lead somewhere, messages are the code's."""

import ast
import doctest
import importlib
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from pages import PAGES, ROOT, commands

import ucds.cli  # (it adds the commands)
from ucds.cli.options import app

COMMANDS: Any = typer.main.get_command(app)
UsageError: Any = typer.BadParameter.__base__
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NUMBERS = {"N": "5", "E": "1", "RATE": "2", "SAMPLES_A_SECOND": "2"}
"""Numbers in place of the words that stand for numbers on the pages."""
WORDS = 20_000
"""Words on all pages at most. What a page says more has to be said less elsewhere."""


def refusal(line: str) -> str | None:
    """Parse a command, without running it, and return why it is refused; ``None`` if it is taken."""
    words = [NUMBERS.get(word, word) for word in shlex.split(re.sub(r"[][]", " ", line))[1:]]
    command, name = COMMANDS, "ucds"
    while hasattr(command, "commands"):
        if words[:1] in ([], ["--help"], ["--version"]):
            return None
        name = words.pop(0)
        if name not in command.commands:
            return f"no command {name!r}"
        command = command.commands[name]
    if "--help" in words:
        return None
    try:
        command.make_context(name, words)
    except UsageError as error:
        return str(error.format_message())
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_command_line_takes_the_commands(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCDS_LEDGER", "a-ledger")
    refused = {line: why for line in commands(page) if (why := refusal(line)) is not None}
    assert not refused


def test_a_command_that_is_not_taken_is_found() -> None:
    assert refusal("ucds keys add NAME --budget N [--rate RATE] --ledger x") is None
    assert refusal("ucds keys ad x") == "no command 'ad'"
    assert "--otu" in str(refusal("ucds predict a b --otu c.csv"))
    assert sum(1 for page in PAGES for _ in commands(page)) > 60


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
    text = (ROOT / "docs" / "help.md").read_text(encoding="utf-8").partition("## Messages")[2]
    explained = re.findall(r"^\| `(.*?)` \|", text, re.MULTILINE)
    assert len(explained) > 10
    known = messages()
    for message in explained:
        words = [re.escape(part.strip("'\": ;(),")) for part in message.split("..")]
        assert re.search(".*".join(word for word in words if word), known), message


def test_the_page_start_names_all_extras() -> None:
    text = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]*`) \|", text.partition("| extra |")[2].partition("\n\n")[0], re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == set(PROJECT["optional-dependencies"])


def test_the_pages_are_few_words() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    words = [len(page.read_text(encoding="utf-8").split()) for page in pages]
    assert words[0] <= 800
    assert sum(words) <= WORDS


def test_the_citation_is_complete() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == ucds.__version__
    readme, paper = (ROOT / "README.md").read_text(encoding="utf-8"), citation["preferred-citation"]
    (entry,) = re.findall(r"@inproceedings\{.*?\n\s*\}", readme, re.DOTALL)
    assert paper["title"] in entry
    assert all(author["family-names"] in entry for author in paper["authors"])


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_names_on_the_way_of_an_image_exist_in_their_order() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| `([\w.]+)` \|", CONTRIBUTING, re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == list(range(1, len(rows) + 1))
    assert rows
    for _, name, module in rows:
        assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


def test_the_files_of_the_recipes_exist() -> None:
    recipes = CONTRIBUTING.partition("## Recipes")[2].partition("## Rules")[0]
    places = set(re.findall(r"`([\w/]+(?:\.py|/))`", recipes)) - {"baselines/NAME.py"}
    assert len(places) > 10
    assert not [
        place for place in places if not any((ROOT / above / place).exists() for above in (".", "src/ucds"))
    ]


@pytest.mark.parametrize("kind", [ucds.SourceClustering, ucds.TargetClustering])
def test_the_example_of_a_class_runs(kind: Any) -> None:
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    (example,) = finder.find(kind, globs={})
    assert len(example.examples) > 4
    assert runner.run(example).failed == 0
