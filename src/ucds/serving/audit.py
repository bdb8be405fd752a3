"""The audit log: every entry's hash covers its words and the hash of the entry before it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from ucds.errors import InputError
from ucds.serving import tables

GENESIS = "0" * 64


@dataclass(frozen=True)
class Head:
    """The end of the log: write it down elsewhere, and a log cut short or written anew is found out.

    Attributes:
        entries: number of entries.
        hash: of the last one.
    """

    entries: int
    hash: str

    def __str__(self) -> str:
        return f"{self.entries}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Read what ``str`` wrote.

        Raises:
            UserError: it is not of that form.
        """
        number, colon, digest = text.strip().partition(":")
        if not (colon and number.isascii() and number.isdigit() and len(digest) == 64):
            raise InputError(
                f"{text!r} is no head of a log: expected NUMBER:HASH, as `ledger verify` prints it"
            )
        return cls(int(number), digest.lower())


@dataclass(frozen=True)
class Verdict:
    """What a check of the log found.

    Attributes:
        head: where the log says it ends.
        faults: one sentence each; none when all is well.
    """

    head: Head
    faults: tuple[str, ...]


def entry_hash(previous: str, number: int, time: str, kind: str, body: str) -> str:
    """Hexadecimal SHA-256 over the previous hash and every word of an entry."""
    words = json.dumps([previous, number, time, kind, body], ensure_ascii=True)
    return hashlib.sha256(words.encode()).hexdigest()


def answers_digest(answers: Iterable[tuple[bytes, int]]) -> str:
    """Digest of answers given at once, whatever their order."""
    digest = hashlib.sha256()
    for content, label in sorted(answers):
        digest.update(content + label.to_bytes(8, "big", signed=True))
    return digest.hexdigest()


def lock_head(connection: Connection) -> Head:
    """Take the head of the log, and with it the right to write, until the transaction ends."""
    row = connection.execute(select(tables.head).with_for_update()).one()
    return Head(row.entries, row.hash)


def append(connection: Connection, head: Head, time: str, kind: str, body: Mapping[str, Any]) -> Head:
    """Add an entry after the head that `lock_head` returned; the new head is returned."""
    number, words = head.entries + 1, json.dumps(body, sort_keys=True)
    new = Head(number, entry_hash(head.hash, number, time, kind, words))
    row = {"number": number, "time": time, "kind": kind, "body": words, "hash": new.hash}
    connection.execute(tables.audit.insert().values(row))
    connection.execute(tables.head.update().values(entries=new.entries, hash=new.hash))
    return new


def verify(connection: Connection, anchor: Head | None = None) -> Verdict:
    """Read the whole log, and compare it with the head, the answers, and the keys.

    Args:
        connection: in one transaction, so that all is seen at one moment.
        anchor: a head that was written down earlier.
    """
    row = connection.execute(select(tables.head)).one_or_none()
    if row is None:
        return Verdict(Head(0, GENESIS), ("the head of the log is missing",))
    head = Head(row.entries, row.hash)
    checker = _Checker(connection, anchor)
    faults = [*checker.chain(head), *checker.keys()]
    return Verdict(head, tuple(faults))


class _Checker:
    """Walks along the log once, and keeps the sums that the tables must agree with."""

    def __init__(self, connection: Connection, anchor: Head | None) -> None:
        self._connection, self._anchor = connection, anchor
        self._charged: Counter[str] = Counter()
        self._budgets: dict[str, tuple[int, bool]] = {}

    def chain(self, head: Head) -> Iterator[str]:
        previous, expected = GENESIS, 1
        for row in self._connection.execute(select(tables.audit).order_by(tables.audit.c.number)):
            if row.number != expected:
                yield f"entries {expected} to {row.number - 1} are missing"
                return
            if row.hash != entry_hash(previous, row.number, row.time, row.kind, row.body):
                yield f"entry {row.number} was changed, or one before it"
                return
            previous, expected = row.hash, expected + 1
            yield from self._entry(row)
        if Head(expected - 1, previous) != head:
            yield f"the log ends with entry {expected - 1}, but its head says {head.entries}"
        if self._anchor is not None and self._anchor.entries > expected - 1:
            yield f"the log ends with entry {expected - 1}, but it had {self._anchor.entries} once"

    def _entry(self, row: Any) -> Iterator[str]:
        if self._anchor is not None and row.number == self._anchor.entries and row.hash != self._anchor.hash:
            yield f"entry {row.number} is not the one that was written down"
        body = json.loads(row.body)
        if row.kind == "key-added":
            self._budgets[body["name"]] = (body["budget"], False)
        elif row.kind == "key-revoked":
            self._budgets[body["name"]] = (self._budgets[body["name"]][0], True)
        elif row.kind == "answered" and body["charged"]:
            self._charged[body["name"]] += body["charged"]
            rows = self._connection.execute(
                select(tables.answers.c.content, tables.answers.c.label).where(
                    tables.answers.c.entry == row.number
                )
            )
            found = [(bytes(content), label) for content, label in rows]
            if len(found) != body["charged"] or answers_digest(found) != body["digest"]:
                yield f"the answers of entry {row.number} were changed"

    def keys(self) -> Iterator[str]:
        counted = (
            select(tables.answers.c.key_id, func.count().label("answered"))
            .group_by(tables.answers.c.key_id)
            .subquery()
        )
        joined = tables.keys.outerjoin(counted, counted.c.key_id == tables.keys.c.id)
        names = set()
        for row in self._connection.execute(select(tables.keys, counted.c.answered).select_from(joined)):
            names.add(row.name)
            charged = self._charged[row.name]
            if row.used != charged or (row.answered or 0) != charged:
                yield f"key {row.name!r} was charged {charged} by the log, but {row.used} by its record"
            if self._budgets.get(row.name) != (row.budget, row.revoked is not None):
                yield f"key {row.name!r} has another budget or state than the log says"
        for name in sorted(self._budgets.keys() - names):
            yield f"key {name!r} is in the log, but its record is gone"
