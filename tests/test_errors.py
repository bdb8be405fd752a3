"""No error holds a secret that was typed in a wrong place, or repeats long data."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_kit import run_command

from ucds.errors import InputError, UserError, brief, one_line, printable, shown, without_secrets
from ucds.labels.client import LabelClient
from ucds.serving.ledger import Ledger

KEY = "ucds_" + "aB3-_" * 8 + "xyz"
ADDRESSES = (
    "postgresql://anna:geheim@127.0.0.1:1/ledger",
    "postgresql://127.0.0.1:1/ledger?user=anna&password=geheim&sslmode=disable",
    "postgresql://anna:ge@geheim@127.0.0.1:1/ledger",
    "postgresql://anna:ge/heim@127.0.0.1:geheim/ledger",
    "postgresql://127.0.0.1:1/anna:geheim@db",
    "postgres:/anna:geheim@127.0.0.1/ledger",
    "postgresql+psycopg:anna:ein geheim@127.0.0.1/ledger",
    "host=127.0.0.1 port=1 user=anna password=geheim",
    "PASSWORD = geheim host=127.0.0.1",
)
WORDS = (
    ("keys", "revoke", KEY),
    ("keys", "add", KEY, "--budget", "5"),
    ("query", "images", "--url", f"https://labels.example.org/?key={KEY}", "--out", "labels.json"),
    ("query", "images", f"--kei={KEY}", "--out", "labels.json"),
)


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_part_of_a_database_address_is_in_an_error(address: str) -> None:
    with pytest.raises(UserError) as caught:
        Ledger(address)
    assert "geheim" not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.parametrize("words", WORDS)
def test_no_key_of_a_command_line_is_in_an_error(words: tuple[str, ...], tmp_path: Path) -> None:
    place = ("--ledger", str(tmp_path)) if words[0] == "keys" else ()
    if "revoke" in words:
        Ledger(tmp_path, create=True).close()
    before = sorted(tmp_path.iterdir())
    done = run_command(*words, *place)
    assert done.status == 2
    assert done.err
    assert KEY not in done.err + done.out
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "words",
    [
        ("--key", "geheim"),
        ("--key=geheim",),
        ("--url", "https://anna:geheim@labels.example"),
        ("--ledger", f"postgresql://anna:geheim@h/x?{KEY}"),
        ("s3://name:geheim@bucket/folder",),
    ],
)
def test_a_report_of_a_fault_holds_no_secret(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any, **named: Any) -> None:
        raise RuntimeError("it fails with " + " ".join(sys.argv))

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(sys, "argv", ["ucds", "keys", "list", *words])
    monkeypatch.setattr("ucds.serving.ledger.Ledger", fail)
    done = run_command("keys", "list", "--ledger", str(tmp_path))
    (report,) = tmp_path.glob("ucds-fault-*.log")
    assert "please report it" in done.err
    assert "it fails with" in report.read_text()
    for secret in ("geheim", KEY):
        assert secret not in report.read_text() + done.err + done.out


def test_the_rest_of_a_message_stays() -> None:
    assert without_secrets(f"the key {KEY} is unknown") == "the key ucds_... is unknown"
    assert str(InputError(f"no {KEY}")) == "no ucds_..."
    with pytest.raises(InputError, match=r"ucds_\.\.\."):
        LabelClient(f"http://labels.example.org/{KEY}")


LONG: dict[str, object] = {
    "array": np.linspace(0, 1, 900).reshape(300, 3),
    "list": list(range(500)),
    "text": "word " * 600,
    "number": 10**300,
}


@pytest.mark.parametrize("value", LONG.values(), ids=LONG)
def test_a_value_is_shown_in_eighty_characters_of_one_line(value: object) -> None:
    assert len(brief(value)) == 80
    assert brief(value).endswith("...")
    assert "\n" not in brief(value)


def test_a_message_keeps_its_end_whatever_was_given() -> None:
    assert str(UserError(f"{'word ' * 600} is no file: give one")).endswith(" is no file: give one")
    assert str(UserError(f"{'word' * 600} is no file")) == "word" * 19 + "w... is no file"
    for text, told in (("x" * 20, "x" * 20), ("x" * 21, "x" * 17 + "...")):
        assert one_line(ValueError(text), 20) == shown(text, 20) == told
    assert one_line(ValueError(" ")) == "ValueError"
    assert printable("a\x1bb") == r"a\x1bb"
