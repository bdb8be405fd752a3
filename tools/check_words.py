"""Refuses phrases that have to be read twice, and messages that are too long.

    python tools/check_words.py README.md docs src

Reads Markdown pages, and every text and comment in Python files. Prints one line for each finding, and ends
with status 1 if there is one. The rules stand in CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

PHRASES: dict[str, str] = {
    r"\bso many\b": "name the number: 'Above 10,000 images, the report shows a random 10,000.'",
    r"(?:^\s*(?:- )?|[.:;] )Who (?![^.?]*\?)": "say 'If you ..', or name the actor",
    r"\bshall\b": "say 'will', 'must' or 'is'",
    r"\b[Bb]y another way\b": "name the way: 'over a separate channel'",
    r"\bnobody (has )?fores(aw|een)\b": "say 'This is a bug in ucds.'",
    r"\bfull agreement\b": "give the scale: '0.85 of 1'",
    r"\bfaults? of ucds\b": "say 'This is a bug in ucds.'",
    r"\b(it|that|this) is no (?!longer|more)[a-z]+\b": "say 'it is not a ..'",
    r"\bholds? no model: it\b": "say 'is not a run folder: it holds no model.safetensors'",
    r"\bcounts? twice\b": "say 'both are counted'",
    r"\bmay be worth asking\b": "say what to do",
    r"\bto have it chosen\b": "say 'to let ucds choose'",
    r"\bOf (a|an|more|many|less|fewer) ": "begin with the actor",
    r"(?:^\s*(?:- )?|\. )Of \w+,": "begin with the actor",
    r"\bplausible\b": "say 'about as good'",
    r"\bfrom (its|their) own mean\b": "say 'centred on its own mean'",
    r"\bcome again\b": "say 'try again'",
    r"\b(take|takes|taken) back\b": "say 'undo'",
    r"\btold after\b": "say 'called after'",
}
"""Regular expressions of phrases that do not return, each with what to write."""

CODE = re.compile(r"^```.*?^```$|^(?<=\n\n)( {4}[^\n]*\n)+|`(?:[^`\n]|\n(?!\n))*`", re.MULTILINE | re.DOTALL)
"""Code on a page: fenced blocks, indented blocks, and what stands in backquotes."""

SPEAKERS = frozenset(
    {
        "InputError",
        "DamagedFileError",
        "NoSpaceError",
        "ServiceUnavailableError",
        "RefusedError",
        "UserError",
        "warn",
    }
)
"""Calls whose first argument a user reads."""

MOST_WORDS = 45
"""Words of a message, values apart."""


def main(places: list[Path]) -> int:
    """Print what is refused in some files and folders, and return the exit status."""
    files = [file for place in places for file in (sorted(place.rglob("*")) if place.is_dir() else [place])]
    found: list[str] = []
    for file in files:
        if file.suffix == ".md":
            found += [f"{file}:{line}: {reason}" for line, reason in check_page(file.read_text("utf-8"))]
        elif file.suffix == ".py":
            found += [f"{file}:{line}: {reason}" for line, reason in check_source(file.read_text("utf-8"))]
    print("\n".join(found) or "all sentences can be read once")
    return 1 if found else 0


def check_page(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the reason of each refused phrase of a page, outside code."""
    prose = CODE.sub(lambda code: "\n" * code[0].count("\n"), text)
    yield from refused_phrases(prose)


def check_source(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the reason of each refused text, and of each message that is too long."""
    tree = ast.parse(source)
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from ((token.start[0], reason) for _, reason in refused_phrases(token.string[1:].strip()))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in inside:
            yield from ((node.lineno, reason) for _, reason in refused_phrases(text_of(node)))
        elif isinstance(node, ast.Call):
            for text in told_by(node):
                yield from ((node.lineno, reason) for reason in long_message(text))


def told_by(call: ast.Call) -> Iterator[str]:
    """Yield the message of an error or a warning, with ``..`` for each value that is filled in."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in SPEAKERS and call.args:
        yield text_of(call.args[0])


def text_of(node: ast.expr) -> str:
    """Return the text of a literal, with ``..`` for each value that is filled in; empty for others."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else ".." for part in node.values)
    return ""


def refused_phrases(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line of each refused phrase of a text, and what to write."""
    for phrase, remedy in PHRASES.items():
        for found in re.finditer(phrase.replace(" ", r"\s+"), text, re.MULTILINE):
            line = text.count("\n", 0, found.end()) + 1
            yield line, f"{' '.join(found[0].split())!r}: {remedy}"


def long_message(text: str) -> Iterator[str]:
    """Yield a reason if a message is too long to be read once."""
    if len(text.split()) > MOST_WORDS or len(re.findall(r"(?<!\.)[.?!](?= [A-Z])", text)) > 1:
        yield f"the message {text[:40]!r}.. is more than two sentences, or {MOST_WORDS} words"


if __name__ == "__main__":
    sys.exit(main([Path(argument) for argument in sys.argv[1:]]))
