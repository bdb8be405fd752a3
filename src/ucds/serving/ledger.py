"""Keys, budgets and answers: the record of all labels given, exact under any number of writers.

The labels are computed first. Then one transaction checks the budget again, keeps the answers and
appends to the log; only when it is on disk does the client get them. After a crash before that moment
nothing is charged; after a crash later, the answers are kept and free when asked again.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError

from ucds.errors import InputError
from ucds.labels.receipts import answers_digest
from ucds.labels.wire import Budget
from ucds.serving import audit, tables
from ucds.serving.audit import Head, Verdict

KEY_PREFIX = "ucds_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_MOST_ASKED = 10_000  # contents in one statement: SQLite takes 32,766 values, PostgreSQL 65,535


class OverBudget(Exception):  # noqa: N818  (an answer of the ledger, not a fault)
    """A request asks for more samples than are left; no label of it is given."""


class KeyRevoked(Exception):  # noqa: N818
    """The key was revoked."""


@dataclass(frozen=True)
class KeyRecord:
    """The ledger's record of one key; the key itself is not in the ledger.

    Attributes:
        number: number of the key in the ledger.
        name: name of its holder.
        limit: distinct samples that may be labelled.
        rate: samples a second; ``None`` without bound.
        created: time when it was made, ISO 8601 in UTC.
        revoked: time when it was revoked; ``None`` while it is valid.
        used: distinct samples labelled so far.
        last_used: time of its last answer; ``None`` before the first.
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
        """Budget as the client is told."""
        return Budget(limit=self.limit, used=self.used, remaining=max(0, self.limit - self.used))


@dataclass(frozen=True)
class Charge:
    """The result of one charge.

    Attributes:
        labels: label of every content asked about.
        budget: budget of the key after the charge.
        entry: entry of the charge in the log.
        time: time of the charge, ISO 8601 in UTC.
        digest: digest of all answers given; see `ucds.labels.receipts.answers_digest`.
    """

    labels: dict[bytes, int]
    budget: Budget
    entry: Head
    time: str
    digest: str


class Ledger:
    """The ledger of one service or of several replicas.

    Every method raises ServiceUnavailableError when the database does not answer or does not take the
    transaction, NoSpaceError when its disk is full, and DamagedFileError when its file is damaged.

    Args:
        place: run folder, SQLite file, or database address.
        create: whether a SQLite file is made when there is none.

    Raises:
        InputError: the place cannot be used, or there is no ledger and none is to be made.
        DamagedFileError: the file is not a ledger.
        NoSpaceError: the file cannot be written.
        ServiceUnavailableError: the database cannot be reached.
    """

    def __init__(self, place: str | Path, *, create: bool = True) -> None:
        self.url = tables.parse_place(place)
        self._engine = tables.open_engine(self.url, create=create)

    def close(self) -> None:
        """Close the connections to the database."""
        self._engine.dispose()

    @contextmanager
    def _transaction(self, *, writes: bool = False) -> Iterator[Connection]:
        try:
            with self._engine.execution_options(**{tables.WRITES: writes}).begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise tables.explain(error, "the ledger cannot be used") from error

    def add_key(self, name: str, budget: int, rate: float | None = None) -> str:
        """Make a key and return it, this once; the ledger keeps its hash alone.

        Args:
            name: name of its holder, up to 64 letters, digits and ``. _ @ -``.
            budget: distinct samples that may be labelled.
            rate: samples a second; ``None`` without bound.

        Raises:
            InputError: the name is taken or unusable, or a number is out of range.
        """
        if not _NAME.fullmatch(name):
            raise InputError(f"{name!r} is no name of a key: use up to 64 letters, digits and . _ @ -")
        if not 0 <= budget < 2**62:
            raise InputError(f"a budget is a number of samples, not {budget}")
        if rate is not None and not 0 < rate < float("inf"):
            raise InputError(f"a rate is a positive number of samples a second, not {rate}")
        key, time = KEY_PREFIX + secrets.token_urlsafe(32), _now()
        with self._transaction(writes=True) as connection:
            head = audit.lock_head(connection)
            if _find(connection, name=name) is not None:
                raise InputError(
                    f"there is a key of the name {name!r} already: choose another, also if revoked"
                )
            row = {"name": name, "hash": _hash(key), "budget": budget, "rate": rate, "created": time}
            connection.execute(tables.keys.insert().values(**row, used=0))
            audit.append(connection, head, time, "key-added", {"name": name, "budget": budget, "rate": rate})
        return key

    def revoke_key(self, name: str) -> None:
        """Make a key worthless from the next request on.

        Raises:
            InputError: there is no key of that name, or it is revoked already.
        """
        with self._transaction(writes=True) as connection:
            head, time = audit.lock_head(connection), _now()
            record = _find(connection, name=name)
            if record is None:
                raise InputError(f"there is no key of the name {name!r}")
            if record.revoked is not None:
                raise InputError(f"the key {name!r} was revoked already, at {record.revoked}")
            connection.execute(tables.keys.update().filter_by(name=name).values(revoked=time))
            audit.append(connection, head, time, "key-revoked", {"name": name})

    def list_keys(self) -> list[KeyRecord]:
        """Return all keys, revoked ones too, in the order in which they were made."""
        with self._transaction() as connection:
            return _find_all(connection)

    def find_key(self, key: str) -> KeyRecord | None:
        """Return the record of a key that a client shows, or ``None`` if there is no such key."""
        with self._transaction() as connection:
            return _find(connection, hash=_hash(key))

    def has_keys(self) -> bool:
        """Return whether any key was ever made."""
        with self._transaction() as connection:
            return connection.execute(tables.keys.select().limit(1)).first() is not None

    def known(self, key: KeyRecord, model: str, contents: Sequence[bytes]) -> dict[bytes, int]:
        """Return the answers that this key was given before; they are free.

        Raises:
            OverBudget: the other samples are more than the budget has left.
        """
        with self._transaction() as connection:
            found = _known(connection, key.number, model, contents)
            _check_budget(_find(connection, id=key.number) or key, len(set(contents)) - len(found))
        return found

    def charge(
        self, key: KeyRecord, model: str, contents: Sequence[bytes], computed: Mapping[bytes, int]
    ) -> Charge:
        """Charge for the answers that are new, and record that all of them are given.

        Whatever is raised, nothing is charged.

        Args:
            key: key to charge.
            model: digest of the model that answered.
            contents: content keys of the request's samples.
            computed: label of each content that was not known before.

        Returns:
            The charge. A content that another request asked for meanwhile has the label which that request
            got.

        Raises:
            OverBudget: the new samples are more than the budget has left.
            KeyRevoked: the key was revoked meanwhile.
        """
        with self._transaction(writes=True) as connection:
            head, time = audit.lock_head(connection), _now()
            record = _find(connection, id=key.number)
            if record is None or record.revoked is not None:
                raise KeyRevoked
            labels = _known(connection, key.number, model, contents)
            new = {content: computed[content] for content in dict.fromkeys(contents) if content not in labels}
            _check_budget(record, len(new))
            if new:
                shared = {"key_id": key.number, "model": model, "entry": head.entries + 1}
                rows = [{"content": content, "label": label} | shared for content, label in new.items()]
                connection.execute(tables.answers.insert(), rows)
            record = replace(record, used=record.used + len(new))
            changed = tables.keys.update().filter_by(id=key.number)
            connection.execute(changed.values(used=record.used, last_used=time))
            labels |= new
            given = answers_digest(labels.items())
            body = {"name": record.name, "model": model, "asked": len(contents), "given": given}
            body |= {"charged": len(new), "digest": answers_digest(new.items())}
            entry = audit.append(connection, head, time, "answered", body)
        return Charge(labels, record.budget, entry, time, given)

    def verify(self, anchor: Head | None = None) -> Verdict:
        """Check the whole audit log, and the tables against it.

        Args:
            anchor: head that an earlier check returned; the log must contain it.
        """
        with self._transaction() as connection:
            if connection.dialect.name == "postgresql":  # all statements see the same moment
                connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            return audit.verify(connection, anchor)


def _find(connection: Connection, **wanted: object) -> KeyRecord | None:
    return next(iter(_find_all(connection, **wanted)), None)


def _find_all(connection: Connection, **wanted: object) -> list[KeyRecord]:
    """Read the records of keys with the wanted columns, in the order in which the keys were made."""
    table = tables.keys.c
    columns = (table.id, table.name, table.budget, table.rate, table.created, table.revoked, table.used)
    rows = connection.execute(select(*columns, table.last_used).filter_by(**wanted).order_by(table.id))
    return [KeyRecord(*row) for row in rows]


def _known(connection: Connection, key: int, model: str, contents: Sequence[bytes]) -> dict[bytes, int]:
    table, wanted = tables.answers.c, list(set(contents))
    found: dict[bytes, int] = {}
    for start in range(0, len(wanted), _MOST_ASKED):
        asked = select(table.content, table.label).filter_by(key_id=key, model=model)
        some = table.content.in_(wanted[start : start + _MOST_ASKED])
        found |= {bytes(content): label for content, label in connection.execute(asked.where(some))}
    return found


def _check_budget(key: KeyRecord, new: int) -> None:
    if new > 0 and key.used + new > key.limit:
        raise OverBudget(
            f"The request holds {new:,} samples not asked before, but the key's budget has "
            f"{key.budget.remaining:,} left; nothing was charged."
        )


def _hash(key: str) -> str:
    # The key is 256 random bits, so a slow hash would protect nothing.
    return hashlib.sha256(key.encode()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
