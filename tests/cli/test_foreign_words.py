"""Tests that names and texts of others stay words wherever they are shown, and that secrets stay secret."""

import io
from collections.abc import Callable
from typing import Any

import pytest

from ucds.cli.options import Output, say, show
from ucds.encoders.encoder import IdentityEncoder
from ucds.exports.hub import write_card
from ucds.training.progress import Bar, Lines

HOSTILE = {
    "a line feed": "a\nerror: all is lost",
    "a carriage return": "a\rerror: all is lost",
    "colours": "a\x1b[31mred\x1b[0m",
    "the title of the window": "a\x1b]0;owned\x07",
    "a direction": "a\u202egnp.exe",
    "a line separator": "a\u2028b\u2029c\x85d",
    "an invisible letter": "a\u200bb\ufeff",
    "bytes that are no text": "a\udcffb",
    "a bell and a null": "a\x07\0b",
}
WAYS: dict[str, Callable[[str], object]] = {
    "message": say,
    "line of a log": Lines().say,
    "result": lambda text: Output(False, False).present(text, {}),
    "lines of a result": lambda text: Output(False, False).present(["first", text], {}),
}


def _is_plain(text: str) -> bool:
    return all(letter.isprintable() for letter in text)


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("way", WAYS)
def test_a_name_makes_no_line_and_steers_no_terminal(
    way: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    WAYS[way](f"{HOSTILE[what]}.png: skipped")
    told = capsys.readouterr().err
    assert told.count("\n") == 1 + (way == "lines of a result")
    assert _is_plain(told.replace("\n", ""))
    assert ".png: skipped" in told


@pytest.mark.parametrize("what", sorted(HOSTILE.keys() - {"a line feed"}))
def test_a_result_holds_no_control_character(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    show(f"name\n{HOSTILE[what]}")
    assert _is_plain(capsys.readouterr().out.replace("\n", ""))


@pytest.mark.parametrize("name", ["[red]a[/red]", "[/]", "[link=https://a.example]a[/link]", ":smile:"])
def test_a_name_is_no_markup_of_a_bar(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr("sys.stderr", file)
    bar = Bar()
    bar.show(name, 0, 3, {name: 1.0})
    bar.say(name)
    bar.show(name, 3, 3, {name: 1.0})
    bar.clear()
    assert name in file.getvalue()


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>",
        "a](https://a.example)",
        "![a](https://a.example/a.png)",
        "a|b",
        "`a`\n# b",
        "a\n---",
    ],
)
def test_a_card_for_a_hub_shows_a_name_as_it_is(name: str, stored_model: Callable[..., Any]) -> None:
    from markdown import markdown  # the site needs it

    stored = stored_model(IdentityEncoder(4), 3, 4, name=name, domains=(name, "b"))
    card = write_card(stored, None)
    page = markdown(card.partition("\n---\n")[2], extensions=["tables"])
    assert "<script" not in page
    assert "<img" not in page
    assert 'a.example"' not in page
    assert page.count("<h1>") == 1
    assert card.count("\n# ") == 1
