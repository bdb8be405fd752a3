"""Ledgers of format 1: refused in one line, or brought to the present format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from ucds.errors import DamagedFileError, InputError
from ucds.serving import audit, tables

OLD_FORMAT = "ucds-ledger/1"


def check_format(found: str) -> None:
    """Make sure that a ledger has the present format.

    Raises:
        InputError: the format is an older one.
        DamagedFileError: the format is unknown.
    """
    if found == OLD_FORMAT:
        raise InputError(
            f"the ledger has the older format {found!r}: stop the service, make a copy of the ledger, and "
            "run `ucds ledger migrate`"
        )
    if found != tables.FORMAT:
        raise DamagedFileError(
            f"the ledger has format {found!r}, but this version of ucds writes {tables.FORMAT!r}"
        )


def migrate(connection: sa.Connection, time: str) -> None:
    """Rebuild the tables of format 1 as those of format 2.

    The log stays, entry for entry. A new entry puts the secrets of all keys under the chain.

    Args:
        connection: connection in a transaction that writes.
        time: time of the new entry.

    Raises:
        InputError: there is no ledger of format 1.
    """
    if not sa.inspect(connection).has_table("head"):
        raise InputError("the database holds no ledger")
    found = connection.execute(sa.select(tables.head.c.format)).scalar()
    if found != OLD_FORMAT:
        raise InputError(f"there is nothing to migrate: the ledger has format {found!r}")
    connection.exec_driver_sql("DROP INDEX ix_answers_entry")
    for name in ("keys", "answers"):
        connection.exec_driver_sql(f"ALTER TABLE {name} RENAME TO {name}_1")
    tables.metadata.create_all(connection)
    kept = "id, name, budget, rate, created, revoked, used, last_used"
    connection.exec_driver_sql(f"INSERT INTO keys ({kept}) SELECT {kept} FROM keys_1")
    connection.exec_driver_sql(
        "INSERT INTO answers (key_id, model, content, label, entry) "
        "SELECT key_id, model, content, label, entry FROM answers_1"
    )
    old = connection.exec_driver_sql("SELECT id, hash, created FROM keys_1 ORDER BY id").all()
    secrets = [{"key": row.id, "secret": row.hash, "tail": None, "created": row.created} for row in old]
    connection.execute(tables.head.update().values(format=tables.FORMAT))
    audit.append(connection, audit.lock_head(connection), time, "ledger-migrated", {"secrets": secrets})
    for name in ("answers_1", "keys_1"):
        connection.exec_driver_sql(f"DROP TABLE {name}")


class OldEntries:
    """The changes that entries of format 1 stand for, which name a key and not its number.

    Args:
        numbers: numbers of the keys, in the order in which they were made.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = numbers
        self._keys: dict[str, int] = {}
        self._used: Counter[str] = Counter()

    @staticmethod
    def is_one(kind: str, body: Mapping[str, Any]) -> bool:
        """Return whether an entry has format 1."""
        return kind in ("key-added", "key-revoked", "answered") and "key" not in body

    def complete(self, kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of an entry with what the present format also holds.

        Raises:
            KeyError: a field of the body is missing, or the key that it names.
            IndexError: the key has no number.
        """
        name = body["name"]
        if kind == "key-added":
            self._keys[name] = self._numbers[len(self._keys)]
        self._used[name] += body.get("charged", 0)
        unknown = {"expires": None, "secret": None, "tail": None}
        return {**unknown, **body, "key": self._keys[name], "used": self._used[name]}
