"""Every change of a ledger is found: each column of each row, rows exchanged, dropped, added, wound back."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection, Table, select
from sqlalchemy.exc import IntegrityError

from ucds.labels.wire import Calibration
from ucds.serving import audit, tables
from ucds.serving.audit import Head
from ucds.serving.calibration import KeyMean, calibrate
from ucds.serving.ledger import Ledger
from ucds.serving.verification import Claim, Verdict, verify

MODELS = ("a" * 32, "b" * 32)
TABLES = {table.name: table for table in tables.metadata.sorted_tables}
COLUMNS = [(table.name, column.name) for table in TABLES.values() for column in table.columns]


def content(number: int) -> bytes:
    return number.to_bytes(16, "big")


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """A ledger in which everything has happened."""
    book = Ledger(tmp_path_factory.mktemp("full"))
    book.set_signer("1" * 64)
    for name in ("anna", "bert", "carl"):
        record = book.find_key(book.add_key(name, 50, rate=2.0 if name == "bert" else None))
        assert record is not None
        for model, numbers in zip(MODELS, ([1, 2, 3], [2, 4]), strict=True):
            labels = {content(number): number + len(name + model) % 7 for number in numbers}
            book.charge(record, model, list(labels), labels)
        book.charge(record, MODELS[0], [content(1), content(5)], {content(5): record.number})
        for model in ("c" * 32, "d" * 32):
            told = Calibration(samples=40 + len(name), digest=(name + model)[:4].encode().hex() * 4)
            calibrate(book, record, model, KeyMean(told, np.full(3, record.number, np.float32)))
    book.rotate_key("anna", timedelta(hours=1))
    book.change_key("bert", budget=60)
    book.revoke_key("carl")
    assert book.verify().faults == ()
    yield book
    assert book.verify().faults == ()  # what a test did was rolled back
    book.close()


class Tampering:
    """A transaction on a ledger that is rolled back to its start after each change."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")

    def rows(self, table: Table) -> list[dict[str, Any]]:
        ordered = select(table).order_by(*table.primary_key)
        return [dict(row) for row in self.connection.execute(ordered).mappings()]

    def after(self, change: Callable[[], object], claims: list[Claim] | None = None) -> Verdict:
        with self.connection.begin_nested() as point:
            change()
            verdict = verify(self.connection, claims or [])
            point.rollback()
        return verdict

    def finds(self, change: Callable[[], object]) -> bool:
        """Whether a change is found, or is one that the database itself does not take."""
        try:
            return bool(self.after(change).faults)
        except IntegrityError:
            return True

    def put(self, table: Table, old: dict[str, Any], **values: Any) -> None:
        self.replace(table, [old], [{**old, **values}])

    def replace(self, table: Table, old: list[dict[str, Any]], new: list[dict[str, Any]]) -> None:
        for row in old:
            same = [table.c[column.name] == row[column.name] for column in table.primary_key]
            assert self.connection.execute(table.delete().where(*same)).rowcount == 1
        if new:
            self.connection.execute(table.insert(), new)


@pytest.fixture
def tampering(full: Ledger) -> Iterator[Tampering]:
    with full.transaction(writes=True) as connection:
        yield Tampering(connection)
        connection.rollback()


def others(value: Any, nullable: bool) -> list[Any]:
    """Other values that a column could hold."""
    if isinstance(value, bytes):
        found: list[Any] = [bytes(16), value[::-1] if value != value[::-1] else b"x" * 16]
    elif isinstance(value, str):
        found = [value + "0", value[:-1] + chr(ord(value[-1]) ^ 1)]
    elif value is None:
        found = [7]
    else:
        found = [value + 1000, value - 1]
    return [*found, None] if nullable and value is not None else found


@pytest.mark.parametrize(("name", "column"), COLUMNS)
def test_each_column_of_each_row(tampering: Tampering, name: str, column: str) -> None:
    table = TABLES[name]
    rows = tampering.rows(table)
    assert rows
    for row in rows:
        for value in others(row[column], bool(table.c[column].nullable)):
            change = partial(tampering.put, table, row, **{column: value})
            assert tampering.finds(change), (row, value)


@pytest.mark.parametrize(("name", "column"), COLUMNS)
def test_the_values_of_each_column_exchanged(tampering: Tampering, name: str, column: str) -> None:
    table = TABLES[name]
    for one, other in itertools.combinations(tampering.rows(table), 2):
        changed = [{**row, column: pair[column]} for row, pair in ((one, other), (other, one))]
        if changed not in ([one, other], [other, one]):
            assert tampering.finds(partial(tampering.replace, table, [one, other], changed)), (one, other)


@pytest.mark.parametrize("name", TABLES)
def test_each_row_dropped(tampering: Tampering, name: str) -> None:
    table = TABLES[name]
    for row in tampering.rows(table):
        assert tampering.finds(partial(tampering.replace, table, [row], [])), row
    assert tampering.finds(partial(tampering.replace, table, tampering.rows(table), []))


@pytest.mark.parametrize("name", TABLES)
def test_a_row_added(tampering: Tampering, name: str) -> None:
    table = TABLES[name]
    for row in tampering.rows(table):
        for key in table.primary_key:
            for value in others(row[key.name], nullable=False):
                added = {**row, key.name: value}
                assert tampering.finds(partial(tampering.replace, table, [], [added])), added


def test_an_answer_of_an_entry_that_gave_none(tampering: Tampering) -> None:
    answer = {"key_id": 1, "model": MODELS[0], "content": content(99), "label": 1}
    for entry in (0, 1, 2, 99):
        added = [answer | {"entry": entry}]
        assert tampering.finds(partial(tampering.replace, tables.answers, [], added))


def test_the_answers_of_two_keys_exchanged(tampering: Tampering) -> None:
    """All of them, and the sums with them."""

    def exchange() -> None:
        for table, column in ((tables.answers, "key_id"), (tables.keys, "id")):
            for old, new in ((1, 99), (2, 1), (99, 2)):
                tampering.connection.execute(
                    table.update().where(table.c[column] == old).values({column: new})
                )

    assert tampering.finds(exchange)


def rewrite(connection: Connection) -> None:
    """Compute the chain anew, as somebody would who knows this package."""
    last = Head(0, tables.GENESIS)
    for row in connection.execute(select(tables.audit).order_by(tables.audit.c.number)).all():
        last = Head(row.number, audit.entry_hash(last.hash, row.number, row.time, row.kind, row.body))
        connection.execute(tables.audit.update().filter_by(number=row.number).values(hash=last.hash))
    connection.execute(tables.head.update().values(entries=last.entries, hash=last.hash))


def wind_back(connection: Connection, number: int) -> None:
    """Remove the last entries and all that they did, in agreement with the rest."""
    connection.execute(tables.audit.delete().where(tables.audit.c.number > number))
    connection.execute(tables.answers.delete().where(tables.answers.c.entry > number))
    for table in (tables.secrets, tables.calibrations, tables.keys):
        connection.execute(table.delete())
    for row in connection.execute(select(tables.audit).order_by(tables.audit.c.number)).all():
        for change in audit.changes_of(row.kind, row.time, json.loads(row.body)):
            (primary,) = change.table.primary_key
            if change.is_new:
                connection.execute(change.table.insert().values({primary.name: change.key} | change.values))
            else:
                connection.execute(change.table.update().where(primary == change.key).values(change.values))
    rewrite(connection)


def test_a_ledger_wound_back_is_found_by_what_is_kept_elsewhere(tampering: Tampering) -> None:
    entries = tampering.rows(tables.audit)
    kept = Claim("the receipt", Head(len(entries), entries[-1]["hash"]))
    for number in range(2, len(entries)):
        assert tampering.after(partial(wind_back, tampering.connection, number)).faults == ()
        found = tampering.after(partial(wind_back, tampering.connection, number), [kept])
        assert found.faults == (
            f"the log ends with entry {number}, but the receipt names entry {len(entries)}",
        )


def test_a_chain_computed_anew_is_found_by_what_is_kept_elsewhere(tampering: Tampering) -> None:
    entries = tampering.rows(tables.audit)
    kept = Claim("the checkpoint", Head(len(entries), entries[-1]["hash"]))

    def forge() -> None:
        tampering.put(tables.audit, entries[2], time="2001-01-01T00:00:00.000+00:00")
        tampering.connection.execute(
            tables.keys.update().filter_by(id=1).values(last_used=entries[4]["time"])
        )
        rewrite(tampering.connection)

    found = tampering.after(forge, [kept])
    assert found.faults == (f"entry {len(entries)} is not the one that the checkpoint names",)


def test_claims_are_compared_word_for_word(full: Ledger) -> None:
    with full.transaction() as connection:
        row = connection.execute(select(tables.audit).filter_by(number=3)).one()
    body, head = json.loads(row.body), Head(3, row.hash)

    def faults(**changes: Any) -> tuple[str, ...]:
        given: dict[str, Any] = {"signer": "1" * 64, "model": body["model"], "given": body["given"]}
        return full.verify(claims=[Claim("the receipt", **{"head": head} | given | changes)]).faults

    assert faults() == ()
    assert "holds other answers" in faults(given="0" * 64)[0]
    assert "holds other answers" in faults(model=MODELS[1])[0]
    assert "does not name" in faults(signer="2" * 64)[0]
    assert "is not the one" in faults(head=Head(3, "0" * 64))[0]
    assert "is not the one" in faults(head=Head(0, "1" * 64))[0]


def test_an_untouched_log_verifies_and_its_head_anchors_it(full: Ledger) -> None:
    before = full.verify().head
    full.change_key("anna", budget=51)
    after = full.verify(anchor=Head.parse(str(before)))
    assert after.faults == ()
    assert after.head.entries == before.entries + 1


def test_a_long_log_is_read_in_parts(ledger: Ledger) -> None:
    record = ledger.find_key(ledger.add_key("anna", 10**6))
    assert record is not None
    for start in range(0, 4000, 800):
        labels = {content(number): number % 7 for number in range(start, start + 800)}
        ledger.charge(record, MODELS[0], list(labels), labels)
    assert ledger.verify().faults == ()
