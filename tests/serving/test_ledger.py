"""Budgets are exact, charges and answers are one, and what was written cannot be changed unseen."""

from __future__ import annotations

import errno
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.pool import Pool

from ucds.errors import DamagedFileError, InputError, NoSpaceError, ServiceUnavailableError, UserError
from ucds.serving import tables
from ucds.serving.keys import KeyRecord
from ucds.serving.ledger import KeyEnded, Ledger, OverBudget

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


def test_a_key_that_ends_meanwhile_gets_no_answer(ledger: Ledger) -> None:
    revoked, over = make_key(ledger), make_key(ledger, name="bert")
    ledger.revoke_key("anna")
    ledger.change_key("bert", expires=datetime.now(UTC))
    for key in (revoked, over):
        with pytest.raises(KeyEnded):
            charge(ledger, key, 1)
    assert (used(ledger), used(ledger, "bert")) == (0, 0)


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
        connection.execute("UPDATE head SET format = 'ucds-ledger/9'")
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
        connection.execute("DROP TABLE keys")
    with pytest.raises(ServiceUnavailableError, match="cannot be used: no such table"):
        ledger.list_keys()


def test_a_request_of_more_samples_than_a_statement_has_values(ledger: Ledger) -> None:
    key = make_key(ledger, budget=10**6)
    most = sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER
    with every_connection(lambda connection: connection.setlimit(most, 32_766)):  # SQLite's own default
        assert len(charge(ledger, key, *range(33_000))) == 33_000
        assert len(charge(ledger, key, *range(33_001))) == 33_001
    assert used(ledger) == 33_001


@contextmanager
def tampering(ledger: Ledger) -> Iterator[sqlite3.Connection]:
    """The database without the ledger's care."""
    with closing(sqlite3.connect(str(ledger.url.database))) as database, database:
        yield database


def test_the_ledger_grows_as_the_documentation_says(tmp_path: Path) -> None:
    dice = random.Random(0)

    def size(requests: int, samples: int) -> int:
        folder = tmp_path / f"{requests} {samples}"
        folder.mkdir()
        book = Ledger(folder)
        record = book.find_key(book.add_key("clinic-a", 10**6))
        assert record is not None
        for _ in range(requests):
            labels = {dice.randbytes(16): 7 for _ in range(samples)}
            book.charge(record, "a" * 32, list(labels), labels, "f" * 32)
        book.close()
        return (folder / "ledger.sqlite").stat().st_size

    few, many, long = size(20, 1), size(120, 1), size(20, 101)
    each_sample = (long - few) / (20 * 100)
    assert 120 < each_sample < 160
    assert 420 < (many - few) / 100 - each_sample < 520


def test_a_ledger_without_its_head_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    with tampering(ledger) as connection:
        connection.execute("DELETE FROM head")
    with pytest.raises(DamagedFileError, match="0 heads and not one"):
        Ledger(tmp_path)


def test_a_ledger_with_a_damaged_name_of_a_table_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    ledger.close()
    path = tmp_path / "ledger.sqlite"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"CREATE TABLE audit", b"CREATE TABLE\x80audit"))
    with pytest.raises(DamagedFileError, match="cannot be opened"):
        Ledger(tmp_path)


@pytest.mark.parametrize("body", ["{", "{}", "3", "[" * 100_000])
def test_a_log_that_names_no_signer_any_more_is_damaged(ledger: Ledger, body: str) -> None:
    ledger.set_signer("1" * 64)
    with ledger.transaction(writes=True) as connection:
        connection.execute(tables.audit.update().values(body=body))
    with pytest.raises(DamagedFileError, match="run `ucds ledger verify`"):
        ledger.set_signer("1" * 64)
    assert ledger.verify().faults


def test_a_ledger_is_made_only_where_one_is_wanted(tmp_path: Path) -> None:
    for prepare in (lambda path: None, Path.touch):  # an empty file is an empty database
        prepare(tmp_path / "ledger.sqlite")
        with pytest.raises(InputError, match="no ledger"):
            Ledger(tmp_path, create=False)


@pytest.mark.parametrize("end", ["", "-wal", "-shm"])
def test_a_file_that_was_deleted_or_replaced_is_noticed(ledger: Ledger, end: str) -> None:
    key = make_key(ledger)
    path = Path(f"{ledger.url.database}{end}")
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(ServiceUnavailableError, match="was deleted or replaced"):
        charge(ledger, key, 1)
    path.write_bytes(content)
    for use in (ledger.list_keys, ledger.check_writable, lambda: charge(ledger, key, 1)):
        with pytest.raises(ServiceUnavailableError, match="was deleted or replaced"):
            use()


def test_a_ledger_wound_back_under_a_running_service_is_noticed(ledger: Ledger) -> None:
    key = make_key(ledger)
    charge(ledger, key, 1)
    with tampering(ledger) as connection:
        connection.execute("UPDATE head SET entries = 1")
    with pytest.raises(ServiceUnavailableError, match="1 entries, but it had 2"):
        charge(ledger, key, 2)
