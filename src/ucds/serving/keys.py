"""Keys as the ledger records them: a name, a budget, a rate, and the times of their life."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

from sqlalchemy import Connection, select

from ucds.errors import InputError
from ucds.labels.wire import Budget
from ucds.serving import tables
from ucds.serving.credentials import hash_secret

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


class KeyEnded(Exception):  # noqa: N818  (an answer of the ledger, not a fault)
    """The key was revoked, or its time is over."""


@dataclass(frozen=True)
class KeyRecord:
    """The ledger's record of one key; its secrets are not in the ledger.

    Attributes:
        number: number of the key in the ledger.
        name: name of its holder.
        limit: distinct samples that may be labelled.
        rate: samples a second; ``None`` without bound.
        created: time when it was made, ISO 8601 in UTC.
        revoked: time when it was revoked; ``None`` while it is not.
        expires: time when it ends by itself; ``None`` if it does not. In a record found by a secret, this is
            the end of that secret if it comes first.
        used: distinct samples labelled so far.
        last_used: time of its last answer; ``None`` before the first.
        tails: last four characters of each valid secret, the newest last; filled in by
            `Ledger.list_keys` alone.
    """

    number: int
    name: str
    limit: int
    rate: float | None
    created: str
    revoked: str | None
    expires: str | None
    used: int
    last_used: str | None
    tails: tuple[str, ...] = ()

    @property
    def budget(self) -> Budget:
        """Budget as the client is told."""
        return Budget(limit=self.limit, used=self.used, remaining=max(0, self.limit - self.used))

    @property
    def has_expired(self) -> bool:
        """Whether its time is over."""
        return self.expires is not None and self.expires <= now()

    @property
    def is_active(self) -> bool:
        """Whether it may ask."""
        return self.revoked is None and not self.has_expired


def now() -> str:
    """Return the present time in UTC, as the ledger writes times; such texts are in the order of time."""
    return as_text(datetime.now(UTC))


def as_text(time: datetime) -> str:
    """Write a time as the ledger does."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds")


def parse_end(text: str) -> datetime | None:
    """Return the time that a user means by the end of a key.

    Args:
        text: time from now such as ``90d``, ``12h`` or ``30m``; date or time in ISO 8601, in UTC if it names
            no zone; or ``never``.

    Raises:
        InputError: the text is none of these.
    """
    if text == "never":
        return None
    if found := re.fullmatch(r"([0-9]{1,6})([mhd])", text):
        return datetime.now(UTC) + timedelta(**{_UNITS[found[2]]: int(found[1])})
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        example = date.today() + timedelta(days=365)
        raise InputError(f"{text!r} is no end of a key: write 90d, 12h, 30m, {example} or never") from None


def check_terms(name: str, budget: int, rate: float | None) -> None:
    """Make sure that a key of these terms can be.

    Raises:
        InputError: the name is unusable, or a number is out of range.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r} is no name of a key: use up to 64 letters, digits and . _ @ -")
    if not 0 <= budget < 2**53:  # every reader of JSON reads these exactly
        raise InputError(f"a budget is a number of samples, not {budget}")
    if rate is not None and not 0.001 <= rate <= 1e9:
        raise InputError(f"a rate is a positive number of samples a second (0.001 to 1e9), not {rate}")


def find(connection: Connection, number: int) -> KeyRecord | None:
    """Return the record of the key with a number, or ``None``."""
    return next(_read(connection, id=number), None)


def find_named(connection: Connection, name: str) -> KeyRecord:
    """Return the record of the key of a name that is not revoked.

    Raises:
        InputError: there is no key of that name, or it is revoked.
    """
    records = list(_read(connection, name=name))
    for record in records:
        if record.revoked is None:
            return record
    if not records:
        raise InputError(f"there is no key of the name {name!r}")
    raise InputError(f"the key {name!r} was revoked already, at {records[-1].revoked}")


def is_taken(connection: Connection, name: str) -> bool:
    """Return whether a key of that name is there and not revoked."""
    return next(_read(connection, name=name, revoked=None), None) is not None


def find_by_secret(connection: Connection, secret: str) -> KeyRecord | None:
    """Return the record of the key that a secret belongs to, or ``None``."""
    row = connection.execute(select(tables.secrets).filter_by(hash=hash_secret(secret))).one_or_none()
    record = None if row is None else find(connection, row.key_id)
    if row is None or record is None:
        return None
    ends = [end for end in (record.expires, row.expires) if end is not None]
    return replace(record, expires=min(ends, default=None))


def list_all(connection: Connection) -> list[KeyRecord]:
    """Return all keys, revoked ones too, in the order in which they were made."""
    tails: dict[int, list[str]] = {}
    for row in connection.execute(select(tables.secrets).order_by(tables.secrets.c.created)):
        if row.expires is None or row.expires > now():
            tails.setdefault(row.key_id, []).append(row.tail or "????")
    return [replace(record, tails=tuple(tails.get(record.number, ()))) for record in _read(connection)]


def valid_secrets(connection: Connection, number: int) -> dict[str, str | None]:
    """Return the hashes of a key's secrets that are valid now, each with its end."""
    rows = connection.execute(select(tables.secrets).filter_by(key_id=number))
    return {row.hash: row.expires for row in rows if row.expires is None or row.expires > now()}


def _read(connection: Connection, **wanted: object) -> Iterator[KeyRecord]:
    """Read the records of keys with the wanted columns, in the order in which the keys were made."""
    table = tables.keys.c
    columns = (table.id, table.name, table.budget, table.rate, table.created, table.revoked, table.expires)
    asked = select(*columns, table.used, table.last_used).filter_by(**wanted).order_by(table.id)
    for row in connection.execute(asked).all():
        yield KeyRecord(*row)
