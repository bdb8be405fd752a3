"""The audit log: the hash of each entry covers its words and the hash of the entry before it.

Every row of the tables `keys`, `secrets` and `calibrations` follows from the log. `changes_of` says how: who
writes an entry makes these changes, and who checks the log makes them again in memory and compares.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Table, select

from ucds.errors import DamagedFileError, InputError
from ucds.files import parse_json
from ucds.serving import tables

Kind = Literal[
    "key-added",
    "key-rotated",
    "key-changed",
    "key-revoked",
    "key-calibrated",
    "answered",
    "signer-set",
    "ledger-migrated",
]
Body = Mapping[str, Any]


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
        found = re.fullmatch(r"([0-9]{1,18}):([0-9a-fA-F]{64})", text.strip())
        if found is None:
            raise InputError(
                f"{text!r} is not a head of a log: expected NUMBER:HASH, as `ledger verify` prints it"
            )
        return cls(int(found[1]), found[2].lower())


@dataclass(frozen=True)
class Change:
    """A change of one row of a table.

    Attributes:
        table: table of the row.
        key: primary key of the row.
        values: values of some columns; of all others for a new row.
        is_new: whether the row is new.
    """

    table: Table
    key: int | str
    values: dict[str, Any]
    is_new: bool = False


def changes_of(kind: str, time: str, body: Body) -> Iterator[Change]:
    """Yield the changes of rows that an entry stands for.

    Raises:
        ValueError: the kind of the entry is unknown.
        KeyError: a field of the body is missing.
    """
    match kind:
        case "key-added":
            given = {name: body[name] for name in ("name", "budget", "rate", "expires")}
            fresh = {"created": time, "revoked": None, "used": 0, "last_used": None}
            yield Change(tables.keys, body["key"], given | fresh, is_new=True)
            if body["secret"] is not None:  # in format 1 the log did not hold it
                yield _new_secret(time, body)
        case "key-rotated":
            for old, end in body["ending"].items():
                yield Change(tables.secrets, old, {"expires": end})
            yield _new_secret(time, body)
        case "key-changed":
            yield Change(tables.keys, body["key"], dict(body["changes"]))
        case "key-revoked":
            yield Change(tables.keys, body["key"], {"revoked": time})
        case "key-calibrated":
            found = {name: body[name] for name in ("model", "samples", "digest", "mean")}
            place = f"{body['key']} {body['model']}"
            fresh = {"key_id": body["key"], "created": time}
            yield Change(tables.calibrations, place, found | fresh, is_new=True)
        case "answered":
            yield Change(tables.keys, body["key"], {"used": body["used"], "last_used": time})
        case "ledger-migrated":
            for old in body["secrets"]:
                yield _new_secret(old["created"], old)
        case "signer-set":
            pass
        case _:
            raise ValueError(kind)


def _new_secret(time: str, body: Body) -> Change:
    values = {"key_id": body["key"], "tail": body["tail"], "created": time, "expires": None}
    return Change(tables.secrets, body["secret"], values, is_new=True)


def entry_hash(previous: str, number: int, time: str, kind: str, body: str) -> str:
    """Compute the hexadecimal SHA-256 over the previous hash and every word of an entry."""
    words = json.dumps([previous, number, time, kind, body], ensure_ascii=True)
    return hashlib.sha256(words.encode()).hexdigest()


def read_head(connection: Connection) -> Head:
    """Read the head of the log."""
    row = connection.execute(select(tables.head)).one()
    return Head(row.entries, row.hash)


def lock_head(connection: Connection) -> Head:
    """Take the head of the log, and with it the right to write, until the transaction ends."""
    row = connection.execute(select(tables.head).with_for_update()).one()
    return Head(row.entries, row.hash)


def append(connection: Connection, head: Head, time: str, kind: Kind, body: Body) -> Head:
    """Add an entry after the head that `lock_head` returned, make its changes, and return the new head."""
    number, words = head.entries + 1, json.dumps(body, sort_keys=True)
    digest = entry_hash(head.hash, number, time, kind, words)
    row = {"number": number, "time": time, "kind": kind, "body": words, "hash": digest}
    connection.execute(tables.audit.insert().values(row))
    connection.execute(tables.head.update().values(entries=number, hash=digest))
    for change in changes_of(kind, time, body):
        (primary,) = change.table.primary_key
        if change.is_new:
            connection.execute(change.table.insert().values({primary.name: change.key} | change.values))
        else:
            connection.execute(change.table.update().where(primary == change.key).values(change.values))
    return Head(number, digest)


def current_signer(connection: Connection) -> str | None:
    """Return the public key that signs the receipts of this ledger, or ``None`` before the first one.

    Raises:
        DamagedFileError: the entry that names it was changed.
    """
    log = tables.audit.c
    newest = select(log.body).filter_by(kind="signer-set").order_by(log.number.desc()).limit(1)
    body = connection.execute(newest).scalar()
    try:
        return None if body is None else str(parse_json(body)["signer"])
    except (ValueError, KeyError, TypeError):
        raise DamagedFileError("the log of the ledger was changed: run `ucds ledger verify`") from None
