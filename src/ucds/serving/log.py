"""The ledger's two tables: a log, whose entries are chained by hashes, and the answers they charge for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, Row, select

from ucds.errors import DamagedFileError, InputError

GENESIS = "0" * 64  # hash before the first entry
_MOST_ASKED = 10_000  # values in one statement: SQLite takes 32,766, PostgreSQL 65,535

metadata = sa.MetaData()

log = sa.Table(
    "log",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("time", sa.String(32), nullable=False),
    sa.Column("operator", sa.String(64), nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
)

answers = sa.Table(
    "answers",
    metadata,
    sa.Column("key", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("model", sa.String(64), primary_key=True),
    sa.Column("content", sa.LargeBinary(16), primary_key=True),
    sa.Column("label", sa.Integer, nullable=False),
    sa.Column("entry", sa.BigInteger, nullable=False, index=True),
)


class Head(NamedTuple):
    """The end of a log, which names all of it: number of entries, and hash of the last one."""

    number: int
    hash: str

    def __str__(self) -> str:
        return f"{self.number}:{self.hash}"


@dataclass(frozen=True)
class Entry:
    """One row of the log.

    Attributes:
        number: place in the log, from 1.
        time: time of the entry, ISO 8601 in UTC; never before that of the entry before.
        operator: name of the user who wrote it.
        kind: name of the class of the body in `ucds.serving.state`.
        body: fields of the entry as JSON.
        hash: SHA-256 over the hash of the entry before and all words of this one, in hexadecimal.
    """

    number: int
    time: str
    operator: str
    kind: str
    body: str
    hash: str

    @classmethod
    def after(cls, head: Head, time: str, operator: str, kind: str, body: str) -> Entry:
        """Make the entry that follows a head."""
        words = (head.number + 1, time, operator, kind, body)
        return cls(*words, _hash(head.hash, *words))

    def follows(self, previous: str) -> bool:
        """Return whether the hash is that of these words after an entry with the hash ``previous``."""
        return self.hash == _hash(previous, *astuple(self)[:-1])


def _hash(*words: object) -> str:
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()


def append(connection: Connection, entry: Entry) -> None:
    """Add an entry to the log."""
    connection.execute(log.insert().values(vars(entry)))


def read_entries(connection: Connection, first: int | None = None) -> Iterator[Entry]:
    """Yield all entries, or those from a number on, a part of them in memory at a time."""
    asked = select(log).order_by(log.c.number)
    asked = asked if first is None else asked.where(log.c.number >= first)
    yield from map(_entry, connection.execute(asked, execution_options={"yield_per": 1000}))


def find_entries(connection: Connection, numbers: Iterable[int]) -> dict[int, Entry]:
    """Return the entries of some numbers, as far as they are in the log."""
    rows = _select_in(connection, select(log), log.c.number, numbers)
    return {row.number: _entry(row) for row in rows}


def read_snapshot(connection: Connection) -> Entry | None:
    """Return the last entry that holds a snapshot, or ``None``."""
    newest = select(log).filter_by(kind="Snapshot").order_by(log.c.number.desc()).limit(1)
    return next(map(_entry, connection.execute(newest)), None)


def find_answers(
    connection: Connection, key: int, model: str, contents: Iterable[bytes]
) -> dict[bytes, tuple[int, int]]:
    """Return label and entry of each content that a key was answered about by a model."""
    asked = select(answers).filter_by(key=key, model=model)
    rows = _select_in(connection, asked, answers.c.content, set(contents))
    return {bytes(row.content): (row.label, row.entry) for row in rows}


def answers_of(connection: Connection, entries: Iterable[int]) -> dict[int, list[Row[Any]]]:
    """Return the answers that each of some entries charged for."""
    found: dict[int, list[Row[Any]]] = {}
    for row in _select_in(connection, select(answers), answers.c.entry, entries):
        found.setdefault(row.entry, []).append(row)
    return found


def count_answers(connection: Connection, first: int) -> int:
    """Return the number of answers, those of entries before ``first`` left out if it is not 1."""
    asked = select(sa.func.count()).select_from(answers)
    asked = asked if first == 1 else asked.where(answers.c.entry >= first)
    return int(connection.execute(asked).scalar_one())


def find_labels(connection: Connection, model: str, contents: Iterable[bytes]) -> set[tuple[bytes, int]]:
    """Return each of some contents with the label that a model gave it, to whatever key."""
    rows = _select_in(connection, select(answers).filter_by(model=model), answers.c.content, contents)
    return {(bytes(row.content), row.label) for row in rows}


def add_answers(
    connection: Connection, key: int, model: str, entry: int, labels: Mapping[bytes, int]
) -> None:
    """Keep the answers that an entry charges for."""
    shared = {"key": key, "model": model, "entry": entry}
    rows = [{"content": content, "label": label} | shared for content, label in labels.items()]
    connection.execute(answers.insert(), rows)


def delete_answers(connection: Connection, key: int) -> int:
    """Delete the answers of a key, and return how many there were."""
    return connection.execute(answers.delete().filter_by(key=key)).rowcount


def delete_entries(connection: Connection, before: int) -> None:
    """Delete the entries before one."""
    connection.execute(log.delete().where(log.c.number < before))


def to_line(entry: Entry) -> bytes:
    """Write an entry as one line of an archive."""
    return json.dumps(astuple(entry)).encode() + b"\n"


def read_archive(path: Path) -> Iterator[Entry]:
    """Yield the entries of an archive.

    Raises:
        InputError: the file cannot be read.
        DamagedFileError: a line is not an entry.
    """
    try:
        with path.open() as file:
            for line in file:
                number, time, operator, kind, body, digest = json.loads(line)
                yield Entry(number, time, operator, kind, body, digest)
    except OSError as error:
        raise InputError(f"the archive {path} cannot be read: {error.strerror}") from None
    except (TypeError, ValueError, RecursionError):
        raise DamagedFileError(f"{path} is not an archive of a ledger") from None


def _entry(row: Row[Any]) -> Entry:
    return Entry(row.number, row.time, row.operator, row.kind, row.body, row.hash)


def _select_in(
    connection: Connection, asked: sa.Select[Any], column: sa.Column[Any], values: Iterable[object]
) -> Iterator[Row[Any]]:
    wanted = list(values)
    for start in range(0, len(wanted), _MOST_ASKED):
        yield from connection.execute(asked.where(column.in_(wanted[start : start + _MOST_ASKED])))
