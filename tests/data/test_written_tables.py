"""Tables that we write: a spreadsheet shows every text as it is and computes none, and we read it again."""

import csv
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ucds.data.sources import find_samples
from ucds.data.tables import guard, unguard, write_table

SEPARATORS = [",", ";", "\t", "|", "\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"]
SIGNS = "=+-@\uff1d\uff0b\uff0d\uff20"
NAMES = [f"a{separator}{sign}1+1" for separator in (*SEPARATORS, " ") for sign in SIGNS]
NAMES += [f"{start}{sign}1+1" for sign in SIGNS for start in ("", " ", "\t", '"', '";"', ";'", "'", "''")]

SOFFICE = shutil.which("soffice")


def write(path: Path, texts: Sequence[str]) -> Path:
    write_table(path, ("sample", "cluster", "name"), lambda: ([text, 1, text] for text in texts))
    return path


def test_an_apostrophe_stands_between_whatever_may_begin_a_cell_and_a_sign() -> None:
    for text in NAMES:
        place = next(i for i, character in enumerate(text) if character in SIGNS)
        assert guard(text)[place] == "'", text
    for usual in ("IMG - Copy.jpg", "a+b.png", "x=1", "me@home.png", "2026-11-28 a.jpg", "rock 'n' roll"):
        assert guard(usual) == usual


@given(st.text(st.sampled_from(" ab1'\"=+-@;,\t\r\n\u2028\uff1d")))
def test_every_text_can_be_had_back(text: str) -> None:
    assert unguard(guard(text)) == text


def test_ids_come_back_from_a_table_with_every_text_in_quotes_and_no_number(tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", ("sample", "x"), lambda: ((name, 0.5) for name in NAMES))
    assert list(find_samples(tmp_path / "t.csv", by_domain=False).ids) == NAMES  # type: ignore[union-attr]
    write_table(tmp_path / "u.csv", ("sample", "x"), lambda: [("a\rb", 1)])
    assert (tmp_path / "u.csv").read_bytes() == b'"sample","x"\n"a\rb",1\n'


@pytest.mark.parametrize(("text", "mark"), [("a.png", b""), ("\u00fc.png", b"\xef\xbb\xbf")])
def test_a_mark_tells_spreadsheets_of_letters_beyond_ascii(tmp_path: Path, text: str, mark: bytes) -> None:
    write(tmp_path / "t.csv", [text])
    expected = f'"sample","cluster","name"\n"{text}",1,"{text}"\n'.encode()
    assert (tmp_path / "t.csv").read_bytes() == mark + expected


def formulas(path: Path, separators: str, delimiter: str) -> int:
    """Open a table in LibreOffice, by its codes of separators and of quotes; count the cells that compute."""
    home = path.parent / "office"
    options = f"--infilter=CSV:{separators},{delimiter},76,1,,0,false,true,false,false,false,0,true"
    command = [SOFFICE, f"-env:UserInstallation=file://{home}", "--headless", options, "--convert-to", "fods"]
    subprocess.run([*map(str, command), "--outdir", path.parent, path], check=True, capture_output=True)
    return path.with_suffix(".fods").read_text("utf-8").count("table:formula=")


@pytest.mark.skipif(SOFFICE is None, reason="there is no LibreOffice: apt-get install libreoffice-calc")
@pytest.mark.slow
@pytest.mark.parametrize("delimiter", ["34", ""], ids=["quotes", "no quotes"])
@pytest.mark.parametrize("separators", ["44/59/9/124/32", "44", "59", "9", "124", "32"])
def test_libreoffice_computes_no_cell(tmp_path: Path, separators: str, delimiter: str) -> None:
    with (tmp_path / "plain.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["=1+1"], *([name, 1, name] for name in NAMES)])
    assert formulas(tmp_path / "plain.csv", separators, delimiter)  # or this test would show nothing
    assert formulas(write(tmp_path / "ours.csv", NAMES), separators, delimiter) == 0
