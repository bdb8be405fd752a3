"""Ledgers of format 1: refused in one line, and migrated by a command if they agree with their log."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from postgres import postgresql

from ucds.errors import DamagedFileError, InputError
from ucds.labels.receipts import answers_digest
from ucds.serving import audit, database, tables
from ucds.serving.audit import Head
from ucds.serving.ledger import Ledger, migrate

SCHEMA = """
CREATE TABLE keys (id {key} PRIMARY KEY, name VARCHAR(64) NOT NULL UNIQUE,
    hash VARCHAR(64) NOT NULL UNIQUE, budget BIGINT NOT NULL, rate FLOAT,
    created VARCHAR(32) NOT NULL, revoked VARCHAR(32), used BIGINT NOT NULL,
    last_used VARCHAR(32));
CREATE TABLE answers (key_id INTEGER NOT NULL REFERENCES keys (id), model VARCHAR(64) NOT NULL,
    content {bytes} NOT NULL, label INTEGER NOT NULL, entry BIGINT NOT NULL,
    PRIMARY KEY (key_id, model, content));
CREATE INDEX ix_answers_entry ON answers (entry);
CREATE TABLE audit (number BIGINT PRIMARY KEY, time VARCHAR(32) NOT NULL, kind VARCHAR(16) NOT NULL,
    body TEXT NOT NULL, hash VARCHAR(64) NOT NULL);
CREATE TABLE head (id INTEGER PRIMARY KEY, format VARCHAR(32) NOT NULL, entries BIGINT NOT NULL,
    hash VARCHAR(64) NOT NULL);
"""
SECRET, MODEL, ANSWERS = "ucds_" + "s" * 43, "m" * 32, [(b"a" * 16, 3), (b"b" * 16, 4)]


def time(number: int) -> str:
    return f"2026-01-01T00:00:{number:02d}.000+00:00"


def write_old(place: str | Path, **types: str) -> None:
    """Write a ledger as the first version did: two keys with a gap in their numbers, one of them revoked."""
    given = {"name": "anna", "model": MODEL, "asked": 2, "charged": 2, "digest": answers_digest(ANSWERS)}
    again = given | {"charged": 0, "digest": answers_digest([])}
    entries = [
        ("key-added", {"name": "carl", "budget": 1, "rate": None}),
        ("key-added", {"name": "anna", "budget": 9, "rate": 2.5}),
        ("answered", given),
        ("answered", again),
        ("key-revoked", {"name": "carl"}),
    ]
    last = Head(0, tables.GENESIS)
    engine = database.connect(database.ledger_url(place), create=True)
    with engine.execution_options(**{database.WRITES: True}).begin() as connection:
        for statement in SCHEMA.format(**types).split(";\n"):
            connection.exec_driver_sql(statement)
        for number, (kind, body) in enumerate(entries, 1):
            words = json.dumps(body, sort_keys=True)
            last = Head(number, audit.entry_hash(last.hash, number, time(number), kind, words))
            insert(connection, "audit", (number, time(number), kind, words, last.hash))
        insert(connection, "head", (1, "ucds-ledger/1", last.entries, last.hash))
        insert(connection, "keys", (2, "carl", "0" * 64, 1, None, time(1), time(5), 0, None))
        secret = hashlib.sha256(SECRET.encode()).hexdigest()
        insert(connection, "keys", (34, "anna", secret, 9, 2.5, time(2), None, 2, time(4)))
        for content, label in ANSWERS:
            insert(connection, "answers", (34, MODEL, content, label, 3))
    engine.dispose()


def insert(connection: sa.Connection, table: str, row: tuple[Any, ...]) -> None:
    values = {f"value{i}": value for i, value in enumerate(row)}
    names = ", ".join(f":{name}" for name in values)
    connection.execute(sa.text(f"INSERT INTO {table} VALUES ({names})"), values)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.sqlite"
    write_old(path, key="INTEGER", bytes="BLOB")
    return path


def test_an_old_ledger_is_refused_in_one_line(old: Path) -> None:
    with pytest.raises(InputError, match="older format 'ucds-ledger/1': .* run `ucds ledger migrate`"):
        Ledger(old)


def check_migrated(place: str | Path) -> None:
    """Migrate a ledger; it must hold all it held, take new keys and charges, and agree with its log."""
    migrate(place)
    book = Ledger(place, create=False)
    record = book.find_key(SECRET)
    assert record is not None
    assert (record.name, record.limit, record.rate, record.used) == ("anna", 9, 2.5, 2)
    assert book.known(record, MODEL, [ANSWERS[0][0]]) == {ANSWERS[0][0]: 3}
    assert [(key.name, key.revoked, key.tails) for key in book.list_keys()] == [
        ("carl", time(5), ("????",)),
        ("anna", None, ("????",)),
    ]
    book.charge(record, MODEL, [b"c" * 16], {b"c" * 16: 5})
    secrets = [book.add_key("carl", 4), *(book.add_key(f"new{i}", 4) for i in range(3))]
    book.rotate_key("anna")
    found = [book.find_key(secret) for secret in secrets]
    assert len({key.number for key in found if key is not None}) == len(secrets)
    assert book.verify().faults == ()
    book.close()
    with pytest.raises(InputError, match="nothing to migrate"):
        migrate(place)


def test_a_migrated_ledger_holds_all_it_held(old: Path) -> None:
    check_migrated(old)


def test_a_ledger_in_postgresql_is_migrated() -> None:
    with postgresql() as url:
        write_old(url, key="SERIAL", bytes="BYTEA")
        with pytest.raises(InputError, match="older format 'ucds-ledger/1'"):
            Ledger(url)
        check_migrated(url)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE keys SET budget = 99 WHERE name = 'anna'",
        "UPDATE keys SET rate = NULL",
        "UPDATE keys SET last_used = created",
        "UPDATE answers SET label = 1",
        "UPDATE answers SET model = 'other'",
        "UPDATE answers SET key_id = 2",
        "UPDATE audit SET time = '2001' WHERE number = 2",
    ],
)
def test_an_old_ledger_that_was_tampered_with_stays_as_it_is(old: Path, change: str) -> None:
    with closing(sqlite3.connect(old)) as tampered, tampered:
        tampered.execute(change)
        before = list(tampered.iterdump())
    with pytest.raises(DamagedFileError, match="does not agree with its log"):
        migrate(old)
    with closing(sqlite3.connect(old)) as tampered:
        assert list(tampered.iterdump()) == before


def test_where_there_is_no_ledger_nothing_is_migrated(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no ledger"):
        migrate(tmp_path)
    (tmp_path / "ledger.sqlite").touch()
    with pytest.raises(InputError, match="holds no ledger"):
        migrate(tmp_path)
