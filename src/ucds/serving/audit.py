"""The audit log: the hash of each entry covers its words and the hash of the entry before it."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from ucds.errors import InputError
from ucds.labels.receipts import answers_digest
from ucds.serving import tables


@dataclass(frozen=True)
class Head:
    """The end of the log. Kept elsewhere, it shows later whether the log was cut short or written anew.

    Attributes:
        entries: number of entries.
        hash: hash of the last entry.
    """

    entries: int
    hash: str

    def __str__(self) -> str:
        return f"{self.entries}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Read a head from the form that ``str`` writes.

        Raises:
            InputError: the text is not of that form.
        """
        found = re.fullmatch(r"([0-9]+):([0-9a-fA-F]{64})", text.strip())
        if found is None:
            raise InputError(
                f"{text!r} is not a head of a log: expected NUMBER:HASH, as `ledger verify` prints it"
            )
        return cls(int(found[1]), found[2].lower())


@dataclass(frozen=True)
class Verdict:
    """The result of a check of the log.

    Attributes:
        head: end of the log, as its record says.
        faults: one sentence for each fault; none when all is well.
    """

    head: Head
    faults: tuple[str, ...]


def entry_hash(previous: str, number: int, time: str, kind: str, body: str) -> str:
    """Compute the hexadecimal SHA-256 over the previous hash and every word of an entry."""
    words = json.dumps([previous, number, time, kind, body], ensure_ascii=True)
    return hashlib.sha256(words.encode()).hexdigest()


def lock_head(connection: Connection) -> Head:
    """Take the head of the log, and with it the right to write, until the transaction ends."""
    row = connection.execute(select(tables.head).with_for_update()).one()
    return Head(row.entries, row.hash)


def append(connection: Connection, head: Head, time: str, kind: str, body: Mapping[str, Any]) -> Head:
    """Add an entry after the head that `lock_head` returned, and return the new head."""
    number, words = head.entries + 1, json.dumps(body, sort_keys=True)
    digest = entry_hash(head.hash, number, time, kind, words)
    row = {"number": number, "time": time, "kind": kind, "body": words, "hash": digest}
    connection.execute(tables.audit.insert().values(row))
    connection.execute(tables.head.update().values(entries=number, hash=digest))
    return Head(number, digest)


def verify(connection: Connection, anchor: Head | None = None) -> Verdict:
    """Read the whole log, and compare it with its head, the answers and the keys.

    Args:
        connection: connection in a transaction, so that all tables are seen at one moment.
        anchor: head that was written down earlier.
    """
    row = connection.execute(select(tables.head)).one_or_none()
    if row is None:
        return Verdict(Head(0, tables.GENESIS), ("the head of the log is missing",))
    head = Head(row.entries, row.hash)
    checker = _Checker(connection, anchor)
    return Verdict(head, (*checker.check_chain(head), *checker.check_keys()))


class _Checker:
    """Reads the log once, and adds up what the other tables must agree with."""

    def __init__(self, connection: Connection, anchor: Head | None) -> None:
        self._connection, self._anchor = connection, anchor
        self._charged: Counter[str] = Counter()
        self._budgets: dict[str, int] = {}
        self._revoked: set[str] = set()

    def check_chain(self, head: Head) -> Iterator[str]:
        last, previous, anchor = 0, tables.GENESIS, self._anchor
        for row in self._connection.execute(select(tables.audit).order_by(tables.audit.c.number)):
            if row.number != last + 1:
                yield f"entries {last + 1} to {row.number - 1} are missing"
                return
            if row.hash != entry_hash(previous, row.number, row.time, row.kind, row.body):
                yield f"entry {row.number} was changed, or one before it"
                return
            last, previous = row.number, row.hash
            if anchor is not None and last == anchor.entries and previous != anchor.hash:
                yield f"entry {last} is not the one that was written down"
            yield from self._check_entry(last, row.kind, json.loads(row.body))
        if Head(last, previous) != head:
            yield f"the log ends with entry {last}, but its head says {head.entries}"
        if anchor is not None and anchor.entries > last:
            yield f"the log ends with entry {last}, but it had {anchor.entries} once"

    def _check_entry(self, number: int, kind: str, body: Mapping[str, Any]) -> Iterator[str]:
        if kind == "key-added":
            self._budgets[body["name"]] = body["budget"]
        elif kind == "key-revoked":
            self._revoked.add(body["name"])
        elif kind == "answered" and body["charged"]:
            self._charged[body["name"]] += body["charged"]
            table = tables.answers.c
            rows = self._connection.execute(select(table.content, table.label).filter_by(entry=number))
            found = [(bytes(content), label) for content, label in rows]
            if len(found) != body["charged"] or answers_digest(found) != body["digest"]:
                yield f"the answers of entry {number} were changed"

    def check_keys(self) -> Iterator[str]:
        table = tables.answers.c
        counted = select(table.key_id, func.count().label("samples")).group_by(table.key_id)
        answered = {row.key_id: row.samples for row in self._connection.execute(counted)}
        names = set()
        for row in self._connection.execute(select(tables.keys)):
            names.add(row.name)
            charged = self._charged[row.name]
            if row.used != charged or answered.get(row.id, 0) != charged:
                yield f"key {row.name!r} was charged {charged} by the log, but {row.used} by its record"
            told = (self._budgets.get(row.name), row.name in self._revoked)
            if told != (row.budget, row.revoked is not None):
                yield f"key {row.name!r} has another budget or state than the log says"
        for name in sorted(self._budgets.keys() - names):
            yield f"key {name!r} is in the log, but its record is gone"
