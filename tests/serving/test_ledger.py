"""Budgets are exact, charges and answers are one, and what was written cannot be changed unseen."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.pool import Pool

from ucds.errors import DamagedFileError, InputError, NoSpaceError, ServiceUnavailableError, UserError
from ucds.serving import tables
from ucds.serving.audit import Head
from ucds.serving.ledger import KeyRecord, KeyRevoked, Ledger, OverBudget

MODEL = "m" * 32


def content(number: int) -> bytes:
    return number.to_bytes(16, "big")


def make_key(ledger: Ledger, budget: int = 10, name: str = "anna") -> KeyRecord:
    record = ledger.find_key(ledger.add_key(name, budget))
    assert record is not None
    return record


def charge(ledger: Ledger, key: KeyRecord, *numbers: int, label: int = 1) -> dict[bytes, int]:
    contents = [content(number) for number in numbers]
    return ledger.charge(key, MODEL, contents, dict.fromkeys(contents, label)).labels


def used(ledger: Ledger, name: str = "anna") -> int:
    return next(key.used for key in ledger.list_keys() if key.name == name)


def test_a_key_is_found_by_itself_and_only_its_hash_is_kept(ledger: Ledger, tmp_path: Path) -> None:
    key = ledger.add_key("anna", 5, rate=2.5)
    record = ledger.find_key(key)
    assert record is not None
    assert (record.name, record.limit, record.rate, record.revoked) == ("anna", 5, 2.5, None)
    assert ledger.find_key(key + "x") is None
    everything = b"".join(path.read_bytes() for path in tmp_path.glob("ledger*"))
    assert key.encode() not in everything
    assert key.removeprefix("ucds_").encode() not in everything
    assert (tmp_path / "ledger.sqlite").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "-a", "a\n", "é"])
def test_unusable_names_are_refused(ledger: Ledger, name: str) -> None:
    with pytest.raises(UserError, match="no name of a key"):
        ledger.add_key(name, 1)


def test_names_are_unique_even_after_revocation(ledger: Ledger) -> None:
    ledger.add_key("anna", 1)
    ledger.revoke_key("anna")
    with pytest.raises(UserError, match="already"):
        ledger.add_key("anna", 1)
    with pytest.raises(UserError, match="revoked already"):
        ledger.revoke_key("anna")
    with pytest.raises(UserError, match="no key"):
        ledger.revoke_key("bert")


def test_only_new_contents_are_charged_and_kept_answers_win(ledger: Ledger) -> None:
    key = make_key(ledger)
    assert charge(ledger, key, 1, 2, 2, label=4) == {content(1): 4, content(2): 4}
    assert charge(ledger, key, 2, 3, label=7) == {content(2): 4, content(3): 7}
    assert used(ledger) == 3
    other = make_key(ledger, name="bert")
    assert charge(ledger, other, 1, label=9) == {content(1): 9}
    assert (used(ledger), used(ledger, "bert")) == (3, 1)


def test_another_model_s_answers_are_new_ones(ledger: Ledger) -> None:
    key = make_key(ledger, budget=2)
    charge(ledger, key, 1)
    charged = ledger.charge(key, "other", [content(1)], {content(1): 5})
    assert charged.budget.used == 2
    assert ledger.known(key, MODEL, [content(1)]) == {content(1): 1}


def test_a_request_over_the_budget_charges_nothing(ledger: Ledger) -> None:
    key = make_key(ledger, budget=3)
    charge(ledger, key, 1, 2)
    with pytest.raises(OverBudget):
        charge(ledger, key, 3, 4)
    with pytest.raises(OverBudget):
        ledger.known(key, MODEL, [content(3), content(4)])
    assert used(ledger) == 2
    charge(ledger, key, 3, 1)
    charge(ledger, key, 1, 2, 3)
    assert ledger.verify().faults == ()


def test_a_key_revoked_meanwhile_gets_no_answer(ledger: Ledger) -> None:
    key = make_key(ledger)
    ledger.revoke_key("anna")
    with pytest.raises(KeyRevoked):
        charge(ledger, key, 1)
    assert used(ledger) == 0


def test_threads_never_exceed_the_budget(ledger: Ledger) -> None:
    key = make_key(ledger, budget=50)

    def ask(number: int) -> int:
        try:
            return len(charge(ledger, key, number))
        except OverBudget:
            return 0

    with ThreadPoolExecutor(12) as pool:
        assert sum(pool.map(ask, range(120))) == 50
    assert used(ledger) == 50
    assert ledger.verify().faults == ()


def test_processes_never_exceed_the_budget(ledger: Ledger, tmp_path: Path) -> None:
    """Four replicas with a ledger of their own on one file."""
    key = ledger.add_key("anna", 40)
    script = """
import sys
from ucds.serving.ledger import Ledger, OverBudget
book, given = Ledger(sys.argv[1]), 0
record = book.find_key(sys.argv[2])
for i in range(25):
    content = (int(sys.argv[3]) * 1000 + i).to_bytes(16, "big")
    try:
        given += len(book.charge(record, "m", [content], {content: 1}).labels)
    except OverBudget:
        pass
print(given)
"""
    commands = [[sys.executable, "-c", script, str(tmp_path), key, str(i)] for i in range(4)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    given = [int(process.communicate(timeout=60)[0]) for process in processes]
    assert sum(given) == 40
    assert used(ledger) == 40
    assert ledger.verify().faults == ()


def test_an_untouched_log_verifies_and_its_head_anchors_it(ledger: Ledger) -> None:
    key = make_key(ledger)
    charge(ledger, key, 1, 2)
    before = ledger.verify().head
    charge(ledger, key, 3)
    after = ledger.verify(anchor=Head.parse(str(before)))
    assert after.faults == ()
    assert after.head.entries == before.entries + 1 == 3
    wrong = Head(before.entries, "0" * 64)
    assert "written down" in ledger.verify(anchor=wrong).faults[0]


TAMPERINGS = {
    "an entry's words": "UPDATE audit SET body = replace(body, '\"charged\": 2', '\"charged\": 1')",
    "an entry's time": "UPDATE audit SET time = '2001-01-01' WHERE number = 2",
    "an entry gone": "DELETE FROM audit WHERE number = 2",
    "the first gone": "DELETE FROM audit WHERE number = 1",
    "the end gone": "DELETE FROM audit WHERE number = 4",
    "everything gone": "DELETE FROM audit",
    "two exchanged": "UPDATE audit SET number = CASE number WHEN 2 THEN 99 ELSE number END",
    "the head": "UPDATE head SET entries = 3",
    "no head": "DELETE FROM head",
    "a label": "UPDATE answers SET label = 5 WHERE label = 1",
    "an answer gone": "DELETE FROM answers WHERE content = x'00000000000000000000000000000001'",
    "an answer more": "INSERT INTO answers VALUES (1, 'm', x'00000000000000000000000000000063', 1, 2)",
    "the budget": "UPDATE keys SET budget = 1000",
    "the use": "UPDATE keys SET used = 0",
    "the revocation": "UPDATE keys SET revoked = NULL",
    "the key's record": "DELETE FROM answers; DELETE FROM keys",
}


@pytest.mark.parametrize("what", TAMPERINGS)
def test_tampering_is_detected(ledger: Ledger, what: str) -> None:
    key = make_key(ledger)
    charge(ledger, key, 1, 2)
    charge(ledger, key, 3)
    ledger.revoke_key("anna")
    assert ledger.verify().faults == ()
    with tampering(ledger) as connection:
        for statement in TAMPERINGS[what].split("; "):
            connection.execute(text(statement))
    assert ledger.verify().faults


def test_a_log_cut_short_with_its_head_is_found_by_an_anchor_alone(ledger: Ledger) -> None:
    key = make_key(ledger)
    charge(ledger, key, 1)
    anchor = ledger.verify().head
    with tampering(ledger) as connection:
        for statement in (
            "DELETE FROM audit WHERE number = 2",
            "UPDATE head SET entries = 1, hash = (SELECT hash FROM audit WHERE number = 1)",
            "DELETE FROM answers",
            "UPDATE keys SET used = 0",
        ):
            connection.execute(text(statement))
    assert ledger.verify().faults == ()  # who can write everything can rewind everything ..
    assert "once" in ledger.verify(anchor).faults[0]  # .. but not what was written down elsewhere


@pytest.mark.parametrize(
    ("place", "kind", "words"),
    [
        ("mysql://host/name", InputError, "SQLite file or in PostgreSQL"),
        ("postgresql://127.0.0.1:1/none", ServiceUnavailableError, "cannot be opened"),
        ("sqlite://", InputError, "SQLite file"),
        ("no/such/folder/ledger.sqlite", InputError, "no folder"),
        ("sqlite:///no/such/folder/ledger.sqlite", InputError, "no folder"),
    ],
)
def test_places_that_hold_no_ledger(place: str, kind: type[UserError], words: str) -> None:
    if place.startswith("postgresql"):
        pytest.importorskip("psycopg")
    with pytest.raises(kind, match=words):
        Ledger(place)


def test_the_password_of_a_database_is_not_shown() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(UserError) as caught:
        Ledger("postgresql://anna:geheim@127.0.0.1:1/none")
    assert "geheim" not in str(caught.value)


def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").write_text("no database, but long enough to be read as one" * 50)
    with pytest.raises(DamagedFileError, match="cannot be opened"):
        Ledger(tmp_path)


def test_a_ledger_of_another_format_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    with tampering(ledger) as connection:
        connection.execute(text("UPDATE head SET format = 'ucds-ledger/9'"))
    with pytest.raises(DamagedFileError, match="format 'ucds-ledger/9'"):
        Ledger(tmp_path)


def test_a_folder_in_the_place_of_a_ledger_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").mkdir()
    with pytest.raises(InputError, match="cannot be opened"):
        Ledger(tmp_path)


def test_a_file_that_cannot_be_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(NoSpaceError, match="cannot be written: No space left"):
        Ledger(tmp_path)


def test_a_full_disk_is_told_and_charges_nothing(ledger: Ledger) -> None:
    """A bound on the pages of the database is to SQLite what a full disk is."""
    key = make_key(ledger, budget=10**6)
    # SQLite takes the present number of pages for a bound below it.
    with (
        every_connection(lambda connection: connection.execute("PRAGMA max_page_count = 1")),
        pytest.raises(NoSpaceError, match="full"),
    ):
        charge(ledger, key, *range(20_000))
    assert used(ledger) == 0


@contextmanager
def every_connection(prepare: Callable[[sqlite3.Connection], object]) -> Iterator[None]:
    """A function that is called with each connection to a database before it is used."""

    def call(connection: sqlite3.Connection, record: Any, proxy: Any) -> None:
        prepare(connection)

    event.listen(Pool, "checkout", call)
    try:
        yield
    finally:
        event.remove(Pool, "checkout", call)


def test_a_database_that_does_not_answer_is_told(ledger: Ledger) -> None:
    with tampering(ledger) as connection:
        connection.execute(text("DROP TABLE keys"))
    with pytest.raises(ServiceUnavailableError, match="the ledger cannot be used"):
        ledger.list_keys()


def test_a_request_of_more_samples_than_a_statement_has_values(ledger: Ledger) -> None:
    key = make_key(ledger, budget=10**6)
    most = sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER
    with every_connection(lambda connection: connection.setlimit(most, 32_766)):  # SQLite's own default
        assert len(charge(ledger, key, *range(33_000))) == 33_000
        assert len(charge(ledger, key, *range(33_001))) == 33_001
    assert used(ledger) == 33_001


@contextmanager
def tampering(ledger: Ledger) -> Iterator[Connection]:
    """The database without the ledger's care."""
    engine = tables.open_engine(ledger.url, create=False)
    with engine.execution_options(**{tables.WRITES: True}).begin() as connection:
        yield connection
    engine.dispose()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ucds", *arguments], capture_output=True, text=True)


def test_the_command_line_adds_lists_revokes_shows_and_verifies(tmp_path: Path) -> None:
    place = str(tmp_path)
    missing = run("keys", "list", "--ledger", place)
    assert (missing.returncode, "there is no ledger" in missing.stderr) == (2, True)
    added = run("keys", "add", "anna", "--budget", "7", "--ledger", place)
    assert added.returncode == 0
    assert added.stdout.startswith("ucds_")
    assert run("keys", "revoke", "anna", "--ledger", place).returncode == 0
    shown = run("ledger", "show", "--json", "--ledger", place)
    (record,) = json.loads(shown.stdout)
    assert (record["name"], record["budget"], record["used"]) == ("anna", 7, 0)
    assert record["revoked"] is not None
    verified = run("ledger", "verify", "--ledger", place)
    assert verified.returncode == 0
    anchor = verified.stdout.strip()
    assert anchor.startswith("2:")
    book = Ledger(place)
    with tampering(book) as connection:
        connection.execute(text("UPDATE keys SET budget = 8"))
    book.close()
    faulty = run("ledger", "verify", "--ledger", place, "--anchor", anchor)
    assert faulty.returncode == 2
    assert "another budget" in faulty.stderr
