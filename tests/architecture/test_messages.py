"""Every message of the package, read from its source: options, sentences, verbs; and the help of commands."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from ucds.cli import main  # noqa: F401  (it defines all commands)
from ucds.cli.options import app

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from check_words import told_by  # noqa: E402

SOURCES = sorted((ROOT / "src" / "ucds").rglob("*.py"))
ALLOWED = {"errors.py": "finds keys that somebody typed"}
"""Files whose texts may name options of the command line, and why."""

FINITE = re.compile(
    r"\b(agrees|aligns|allows?|answers? about|are|asked|attacks|be|begins?|belongs?|calibrated|can|cannot|"
    r"changed|computes?|could|defines|describe|did|differ|do|does|duplicates?|exists?|fits?|forbids|form|gave|"
    r"gives|had|has|have|holds?|is|lacks?|lie|lies|lost|may|means|mix|must|names? no|needs?|refused|removes|"
    r"returns|run on|runs|says|sees|sends|sets|stands|stays?|takes?|tells?|trains|was|were|will)\b"
)
"""Verbs that are nothing else in our messages."""
IMPERATIVE = re.compile(
    r"(?:^|[:;,] (?:or |and )?)(accept|add|ask|audit|check|choose|compute|copy|delete|enlarge|export|fill|"
    r"free|give|go|install|leave|look|lower|make|name|pip|put|remove|rename|restore|review|run|save|set|stop|"
    r"take|train|try|type|use|wait|write)\b"
)
"""Verbs that begin what to do; elsewhere, some are nouns."""
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


def messages() -> list[tuple[str, str]]:
    """Place and text of each error and warning that has words of its own."""
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for text in told_by(node) if isinstance(node, ast.Call) else ():
                if len(re.findall(r"[a-z]{2,}", text)) > 2:
                    found.append((f"{path.name}:{node.lineno}", text))
    return found


def verbless(text: str) -> list[str]:
    """Sentences of a message without a verb."""
    sentences = re.split(r"(?<=[^.][.?!]) (?=[A-Z])", text)
    return [one for one in sentences if not (FINITE.search(one) or IMPERATIVE.search(one.lower()))]


def test_no_text_outside_the_command_line_names_an_option() -> None:
    found = [
        f"{path.name}:{text.lineno}: {text.value}"
        for path in SOURCES
        if path.parent.name != "cli" and path.name not in ALLOWED
        for text in literals(ast.parse(path.read_text(encoding="utf-8")))
        if re.search(r"--[a-z]", text.value) and " " in text.value  # one word is for another program
    ]
    assert found == []


def test_every_message_is_one_or_two_sentences_with_a_verb_in_each() -> None:
    told = messages()
    assert len(told) > 300
    assert [(place, verbless(text)) for place, text in told if verbless(text)] == []
    assert [
        (place, text) for place, text in told if len(re.findall(r"(?<!\.)[.?!](?= [A-Z])", text)) > 1
    ] == []


@pytest.mark.parametrize(
    "text", ["no weights file ..: a folder", "unknown measure .., known: ..", "It is so. Of a kind"]
)
def test_a_message_without_a_verb_is_found(text: str) -> None:
    assert verbless(text)


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
