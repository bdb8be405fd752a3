"""The ledger's tables: a log of entries chained by hashes, and the answers and means that entries name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Row, select

from ucds.errors import DamagedFileError, InputError
from ucds.files import digest_of
from ucds.labels.wire import answers_digest

GENESIS = "0" * 64  # hash before the first entry
LONGEST_NAME = 64  # letters of an operator's name
_MOST_ASKED = 10_000  # values in one statement: SQLite takes 32,766, PostgreSQL 65,535

metadata = sa.MetaData()

log = sa.Table(
    "log",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("time", sa.String(32), nullable=False),
    sa.Column("operator", sa.String(LONGEST_NAME), nullable=False),
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

means = sa.Table(
    "means",  # of calibrations; the log holds their digests alone, so that they can be forgotten
    metadata,
    sa.Column("key", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("model", sa.String(64), primary_key=True),
    sa.Column("mean", sa.LargeBinary, nullable=False),
)


@dataclass(frozen=True)
class Entry:
    """One row of the log."""

    number: int  # from 1
    time: str  # ISO 8601 in UTC; never before that of the entry before
    operator: str  # user who wrote it
    kind: str  # class of the body in `ucds.serving.state`
    body: str  # fields as JSON
    hash: str  # SHA-256 over the hash of the entry before and all words of this one

    @classmethod
    def after(cls, previous: str, number: int, time: str, operator: str, kind: str, body: str) -> Entry:
        """Make the entry that follows one with the hash ``previous``."""
        words = (number, time, operator, kind, body)
        return cls(*words, _hash(previous, *words))

    def follows(self, previous: str) -> bool:
        """Return whether the hash fits this entry after an entry with the hash ``previous``."""
        try:
            return self.hash == _hash(previous, *astuple(self)[:-1])
        except TypeError:  # SQLite keeps any type in any column
            return False


def _hash(*words: object) -> str:
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()


def read_entries(connection: Connection, first: int | None = None) -> Iterator[Entry]:
    """Yield all entries, or those from a number on, with only some in memory at a time."""
    asked = select(log).order_by(log.c.number)
    asked = asked if first is None else asked.where(log.c.number >= first)
    for row in connection.execute(asked, execution_options={"yield_per": 1000}):
        yield Entry(*row)


def read_snapshot(connection: Connection) -> Entry | None:
    """Return the last entry that holds a snapshot, or ``None``."""
    newest = select(log).filter_by(kind="Snapshot").order_by(log.c.number.desc()).limit(1)
    row = connection.execute(newest).mappings().first()
    return None if row is None else Entry(**row)


def find_entries(connection: Connection, numbers: Iterable[int]) -> dict[int, Entry]:
    """Return those entries of some numbers that are in the log."""
    return {row.number: Entry(**row._mapping) for row in select_in(connection, log.c.number, numbers)}


def answers_of(connection: Connection, entries: Iterable[int]) -> dict[int, list[Row[Any]]]:
    """Return the answers that each of some entries charged for."""
    found: dict[int, list[Row[Any]]] = {}
    for row in select_in(connection, answers.c.entry, entries):
        found.setdefault(row.entry, []).append(row)
    return found


def count_answers(connection: Connection) -> dict[tuple[int, str], int]:
    """Return the number of answers that each key received from each model."""
    kind = answers.c.key, answers.c.model
    rows = connection.execute(select(*kind, sa.func.count()).group_by(*kind))
    return {(key, model): number for key, model, number in rows}


def digests_of_means(connection: Connection) -> dict[tuple[int, str], str]:
    """Compute the SHA-256 of the mean of each key for each model."""
    rows = connection.execute(select(means))
    return {(row.key, row.model): digest_of(row.mean) for row in rows if isinstance(row.mean, bytes)}


def select_in(
    connection: Connection, column: sa.Column[Any], values: Iterable[object], **same: object
) -> Iterator[Row[Any]]:
    """Yield the rows of a table with one of some values in a column, and given values in others."""
    wanted, asked = list(values), select(column.table).filter_by(**same)
    types = [other.type.python_type for other in column.table.columns]
    for start in range(0, len(wanted), _MOST_ASKED):
        part = column.in_(wanted[start : start + _MOST_ASKED])
        try:
            for row in connection.execute(asked.where(part)):
                if list(map(type, row)) != types:  # SQLite keeps any type in any column
                    raise TypeError
                yield row
        except TypeError:
            raise DamagedFileError(f"the table {column.table.name} holds a value of another type") from None


def digest_rows(rows: Iterable[Row[Any]]) -> str:
    """Compute the digest of some answers, as an entry names it."""
    return answers_digest((bytes(row.content), row.label) for row in rows)


def to_line(entry: Entry) -> bytes:
    """Write an entry as one line of an archive."""
    return json.dumps(vars(entry)).encode() + b"\n"


def read_archive(path: Path) -> Iterator[Entry]:
    """Yield the entries of an archive; refuse a file that is not an archive."""
    try:
        with path.open() as file:
            for line in file:
                yield Entry(**json.loads(line))
    except OSError as error:
        raise InputError(f"the archive {path} cannot be read: {error.strerror}") from None
    except (TypeError, ValueError, RecursionError):
        raise DamagedFileError(f"{path} is not an archive of a ledger") from None
