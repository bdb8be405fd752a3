"""Keys, budgets and answers: what was given to whom, exact under any number of writers.

The labels are computed first. Then one transaction checks the budget again, keeps the answers and
appends to the log; only when it is on disk does the client get them. A crash before leaves nothing
charged; a crash after leaves answers that are free when asked again.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError

from ucds.errors import InputError
from ucds.labels.wire import Budget
from ucds.serving import audit, tables
from ucds.serving.audit import Head, Verdict

KEY_PREFIX = "ucds_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


class OverBudget(Exception):  # noqa: N818  (an answer of the ledger, not a fault)
    """A request asks for more than is left; nothing of it is given."""

    def __init__(self, budget: Budget, asked: int) -> None:
        super().__init__(f"{asked} new samples asked, {budget.remaining} left")
        self.budget, self.asked = budget, asked


class KeyRevoked(Exception):  # noqa: N818
    """The key was revoked."""


class LedgerAway(Exception):  # noqa: N818
    """The database cannot be reached, or did not take the transaction."""


@dataclass(frozen=True)
class KeyRecord:
    """What the ledger holds of one key; the key itself it does not hold.

    Attributes:
        number: in the ledger.
        name: whose it is.
        limit: distinct samples that may be labelled.
        rate: samples a second; ``None`` without bound.
        created: when, ISO 8601 in UTC.
        revoked: when, or ``None`` while it is valid.
        used: distinct samples labelled so far.
        last_used: when it last got an answer.
    """

    number: int
    name: str
    limit: int
    rate: float | None
    created: str
    revoked: str | None
    used: int
    last_used: str | None

    @property
    def budget(self) -> Budget:
        """As it is told to the client."""
        return Budget(limit=self.limit, used=self.used, remaining=max(0, self.limit - self.used))

    @classmethod
    def of(cls, row: Any) -> KeyRecord:
        """From a row of the table."""
        return cls(row.id, row.name, row.budget, row.rate, row.created, row.revoked, row.used, row.last_used)


class Ledger:
    """The ledger of one service or of several replicas.

    Args:
        place: a run folder, a SQLite file, or a database address.
        create: make it when there is none.

    Raises:
        UserError: it cannot be opened.
    """

    def __init__(self, place: str | Path, *, create: bool = True) -> None:
        self.url = tables.parse_place(place)
        self._engine = tables.open_engine(self.url, create=create)

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        try:
            with self._engine.connect() as connection, connection.begin():
                yield connection
        except SQLAlchemyError as error:
            raise LedgerAway(_cause(error)) from error

    @contextmanager
    def _writing(self) -> Iterator[tuple[Connection, Head]]:
        """A transaction that holds the head of the log from its first statement on."""
        try:
            options = {tables.WRITES: True}
            with self._engine.connect().execution_options(**options) as connection, connection.begin():
                yield connection, audit.lock_head(connection)
        except SQLAlchemyError as error:
            raise LedgerAway(_cause(error)) from error

    def add_key(self, name: str, budget: int, rate: float | None = None) -> str:
        """Make a key; it is returned once, and only its hash is kept.

        Raises:
            UserError: the name is taken or unusable, or a number is out of range.
        """
        if not _NAME.fullmatch(name):
            raise InputError(f"{name!r} is no name of a key: use up to 64 letters, digits and . _ @ -")
        if not 0 <= budget < 2**62:
            raise InputError(f"a budget is a number of samples, not {budget}")
        if rate is not None and not 0 < rate < float("inf"):
            raise InputError(f"a rate is a positive number of samples a second, not {rate}")
        key = KEY_PREFIX + secrets.token_urlsafe(32)
        with self._writing() as (connection, head):
            if connection.execute(select(tables.keys).where(tables.keys.c.name == name)).first():
                raise InputError(
                    f"there is a key of the name {name!r} already: choose another, also if revoked"
                )
            time = _now()
            row = {"name": name, "hash": _hash(key), "budget": budget, "rate": rate, "created": time}
            connection.execute(tables.keys.insert().values(**row, used=0))
            audit.append(connection, head, time, "key-added", {"name": name, "budget": budget, "rate": rate})
        return key

    def revoke_key(self, name: str) -> None:
        """Make a key worthless from the next request on.

        Raises:
            UserError: there is none of that name, or it is revoked already.
        """
        with self._writing() as (connection, head):
            row = connection.execute(select(tables.keys).where(tables.keys.c.name == name)).one_or_none()
            if row is None:
                raise InputError(f"there is no key of the name {name!r}")
            if row.revoked is not None:
                raise InputError(f"the key {name!r} was revoked already, at {row.revoked}")
            time = _now()
            connection.execute(tables.keys.update().where(tables.keys.c.id == row.id).values(revoked=time))
            audit.append(connection, head, time, "key-revoked", {"name": name})

    def list_keys(self) -> list[KeyRecord]:
        """All keys, revoked ones too, in the order they were made."""
        with self._reading() as connection:
            return [KeyRecord.of(row) for row in connection.execute(tables.keys.select().order_by("id"))]

    def find_key(self, key: str) -> KeyRecord | None:
        """The record of a key that somebody shows, or ``None``."""
        with self._reading() as connection:
            row = connection.execute(select(tables.keys).where(tables.keys.c.hash == _hash(key))).first()
            return None if row is None else KeyRecord.of(row)

    def has_keys(self) -> bool:
        """Whether any key was ever made."""
        with self._reading() as connection:
            return connection.execute(select(tables.keys.c.id).limit(1)).first() is not None

    def known(self, key: KeyRecord, model: str, contents: Sequence[bytes]) -> dict[bytes, int]:
        """The answers this key was given before; they are free.

        Raises:
            OverBudget: the others are more than the budget has left.
        """
        with self._reading() as connection:
            found = _known(connection, key.number, model, contents)
            row = connection.execute(select(tables.keys).where(tables.keys.c.id == key.number)).one()
        _check_budget(KeyRecord.of(row), len(set(contents)) - len(found))
        return found

    def charge(
        self, key: KeyRecord, model: str, contents: Sequence[bytes], computed: Mapping[bytes, int]
    ) -> tuple[dict[bytes, int], Budget]:
        """Charge for the answers that are new, and record that all of them are given.

        Args:
            key: whom to charge.
            model: digest of the model that answered.
            contents: content keys of the request's samples.
            computed: labels of those among them that were not known before.

        Returns:
            The label of every content (of one that another request got meanwhile, the label that
            one got), and what is left of the budget.

        Raises:
            OverBudget: the new ones are more than the budget has left; nothing is charged.
            KeyRevoked: the key was revoked meanwhile.
            LedgerAway: the transaction did not come about; nothing is charged.
        """
        with self._writing() as (connection, head):
            row = connection.execute(select(tables.keys).where(tables.keys.c.id == key.number)).one()
            if row.revoked is not None:
                raise KeyRevoked
            labels = _known(connection, key.number, model, contents)
            new = {content: computed[content] for content in dict.fromkeys(contents) if content not in labels}
            _check_budget(KeyRecord.of(row), len(new))
            time, entry = _now(), head.entries + 1
            if new:
                shared = {"key_id": key.number, "model": model, "entry": entry}
                rows = [{"content": content, "label": label} | shared for content, label in new.items()]
                connection.execute(tables.answers.insert(), rows)
            used = row.used + len(new)
            changed = tables.keys.update().where(tables.keys.c.id == key.number)
            connection.execute(changed.values(used=used, last_used=time))
            digest = audit.answers_digest(new.items())
            body = {"name": row.name, "model": model, "asked": len(contents)}
            audit.append(connection, head, time, "answered", body | {"charged": len(new), "digest": digest})
        budget = Budget(limit=row.budget, used=used, remaining=row.budget - used)
        return labels | new, budget

    def verify(self, anchor: Head | None = None) -> Verdict:
        """Check the whole audit log, and the tables against it."""
        with self._reading() as connection:
            if connection.dialect.name == "postgresql":  # all statements see the same moment
                connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            return audit.verify(connection, anchor)


def _known(connection: Connection, key: int, model: str, contents: Sequence[bytes]) -> dict[bytes, int]:
    table = tables.answers.c
    asked = select(table.content, table.label).where(
        table.key_id == key, table.model == model, table.content.in_(set(contents))
    )
    return {bytes(content): label for content, label in connection.execute(asked)}


def _check_budget(key: KeyRecord, new: int) -> None:
    if new > 0 and key.used + new > key.limit:
        raise OverBudget(key.budget, new)


def _hash(key: str) -> str:
    # The key is 256 random bits, so a slow hash would protect nothing.
    return hashlib.sha256(key.encode()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _cause(error: SQLAlchemyError) -> str:
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]
