"""The check of a ledger: every row of its tables must be what the log says, and the log what was signed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Row, Table, select

from ucds.files import parse_json
from ucds.labels.receipts import answers_digest
from ucds.serving import audit, migration, tables
from ucds.serving.audit import Head

_REPLAYED = {
    tables.keys: "key",
    tables.secrets: "a secret of key",
    tables.calibrations: "a calibration of key",
}
"""Tables whose rows follow from the log, and what a row is called."""

_AT_A_TIME = 1000
_LONGEST_SHOWN = 80  # characters of a value in a message


@dataclass(frozen=True)
class Claim:
    """What somebody wrote down, or holds signed, of the log.

    Attributes:
        source: words that name the source in a message.
        head: entry of the log that it names.
        signer: public key of the signature; ``None`` without one.
        model: model that the entry must name; ``None`` for any.
        given: digest of answers that the entry must name; ``None`` for any.
    """

    source: str
    head: Head
    signer: str | None = None
    model: str | None = None
    given: str | None = None


@dataclass(frozen=True)
class Verdict:
    """The result of a check of the log.

    Attributes:
        head: end of the log, as its record says.
        faults: one sentence for each fault; none when all is well.
    """

    head: Head
    faults: tuple[str, ...]


def verify(connection: Connection, claims: Sequence[Claim]) -> Verdict:
    """Read the whole log, and compare it with its head, with all tables, and with what was claimed.

    Args:
        connection: connection in a transaction, so that all tables are seen at one moment.
        claims: statements of anchors, receipts and checkpoints about the log.
    """
    heads = connection.execute(select(tables.head)).all()
    if len(heads) != 1:
        return Verdict(Head(0, tables.GENESIS), (f"the log has {len(heads)} heads and not one",))
    head = Head(heads[0].entries, heads[0].hash)
    is_whole = (heads[0].id, heads[0].format) == (1, tables.FORMAT)
    faults = [] if is_whole else ["the head of the log was changed"]
    try:
        checker = _Checker(connection, claims)
        faults += checker.check_chain(head) or checker.check_rows()
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        faults.append(f"an entry or a row has a form that ucds does not write ({type(error).__name__})")
    return Verdict(head, tuple(faults))


class _Checker:
    """Reads the log once, and makes its changes again in memory."""

    def __init__(self, connection: Connection, claims: Sequence[Claim]) -> None:
        self._connection = connection
        self._claims: dict[int, list[Claim]] = {}
        for claim in claims:
            self._claims.setdefault(claim.head.entries, []).append(claim)
        self._rows: dict[Table, dict[Any, dict[str, Any]]] = {table: {} for table in _REPLAYED}
        self._charged: Counter[int] = Counter()
        self._signers: set[str] = set()
        self._old = migration.OldEntries(self._old_numbers())

    def check_chain(self, head: Head) -> list[str]:
        """Compare the log with its head, the answers and the claims."""
        found, last = list(self._check_claims(Head(0, tables.GENESIS), {})), Head(0, tables.GENESIS)
        answers = self._read_answers()
        pending = next(answers, None)
        for row in self._stream(tables.audit):
            if row.number != last.entries + 1:
                return [*found, f"entry {last.entries + 1} is missing"]
            if row.hash != audit.entry_hash(last.hash, row.number, row.time, row.kind, row.body):
                return [*found, f"entry {row.number} was changed, or one before it"]
            last, body = Head(row.number, row.hash), parse_json(row.body)
            if migration.OldEntries.is_one(row.kind, body):
                body = self._old.complete(row.kind, body)
            self._replay(row.kind, row.time, body)
            rows: list[Row[Any]] = []
            while pending is not None and pending[0] < row.number:
                found.append(f"there are answers of an entry {pending[0]}, which is not in the log")
                pending = next(answers, None)
            if pending is not None and pending[0] == row.number:
                rows, pending = pending[1], next(answers, None)
            found += self._check_answers(row.number, row.kind, body, rows)
            found += self._check_claims(last, body)
        if pending is not None:
            found.append(f"there are answers of an entry {pending[0]}, which is not in the log")
        if last != head:
            found.append(f"the log ends with entry {last.entries}, but its head says {head.entries}")
        return found + list(self._check_missing(last))

    def check_rows(self) -> list[str]:
        """Compare keys and secrets with what the log says."""
        found: list[str] = []
        for table, expected in self._rows.items():
            (primary,) = table.primary_key
            present = {
                row[primary.name]: dict(row) for row in self._connection.execute(select(table)).mappings()
            }
            for key in expected.keys() | present.keys():
                found += self._compare(table, key, expected.get(key), present.get(key))
        return sorted(found)

    def _replay(self, kind: str, time: str, body: Mapping[str, Any]) -> None:
        for change in audit.changes_of(kind, time, body):
            rows = self._rows[change.table]
            (primary,) = change.table.primary_key
            rows[change.key] = rows.get(change.key, {primary.name: change.key}) | change.values
        if kind == "signer-set":
            self._signers.add(body["signer"])

    def _check_answers(
        self, number: int, kind: str, body: Mapping[str, Any], rows: list[Row[Any]]
    ) -> Iterator[str]:
        """Compare the answers that one entry charged for with the rows that name the entry."""
        charged = body["charged"] if kind == "answered" else 0
        pairs = [(bytes(row.content), row.label) for row in rows]
        if len(rows) != charged or (charged and answers_digest(pairs) != body["digest"]):
            yield f"the answers of entry {number} were changed"
        elif any((row.key_id, row.model) != (body["key"], body["model"]) for row in rows):
            yield f"the answers of entry {number} were given to another key, or by another model"
        if kind == "answered":
            self._charged[body["key"]] += charged
            if (total := self._charged[body["key"]]) != body["used"]:
                yield f"entry {number} says {body['used']} samples used, but {total} were charged"

    def _check_claims(self, head: Head, body: Mapping[str, Any]) -> Iterator[str]:
        for claim in self._claims.pop(head.entries, []):
            if claim.head.hash != head.hash:
                yield f"entry {head.entries} is not the one that {claim.source} names"
            elif claim.given is not None and (claim.given, claim.model) != (
                body.get("given"),
                body.get("model"),
            ):
                yield f"entry {head.entries} holds other answers than {claim.source}"
            if claim.signer is not None and claim.signer not in self._signers:
                yield f"{claim.source} is signed with a key that the log does not name up to there"

    def _check_missing(self, last: Head) -> Iterator[str]:
        for number, claims in sorted(self._claims.items()):
            yield f"the log ends with entry {last.entries}, but {claims[0].source} names entry {number}"

    def _compare(
        self, table: Table, key: Any, expected: dict[str, Any] | None, present: dict[str, Any] | None
    ) -> Iterator[str]:
        """Compare one row with what the log says of it; the hash of a secret is not shown."""
        row = expected or present or {}
        name = row.get("name") or self._rows[tables.keys].get(row.get("key_id"), {}).get("name")
        owner = f"{_REPLAYED[table]} {name!r}"
        if expected is None:
            yield f"{owner} is not in the log"
        elif present is None:
            yield f"{owner} is in the log, but its record is gone"
        else:
            for column, told in sorted(expected.items()):
                if present[column] != told:
                    yield f"{owner} has {column} {_short(present[column])}, but the log says {_short(told)}"

    def _read_answers(self) -> Iterator[tuple[int, list[Row[Any]]]]:
        """Yield the answers of each entry, in the order of the entries."""
        for number, rows in groupby(self._stream(tables.answers), key=lambda row: row.entry):
            yield number, list(rows)

    def _stream(self, table: Table) -> Iterator[Row[Any]]:
        """Yield the rows of a table, a part of them in memory at a time."""
        order = table.c.number if table is tables.audit else table.c.entry
        parts = {"yield_per": _AT_A_TIME}
        yield from self._connection.execute(select(table).order_by(order), execution_options=parts)

    def _old_numbers(self) -> list[int]:
        """Read the numbers of the keys that were made before the ledger was migrated."""
        asked = select(tables.audit.c.body).filter_by(kind="ledger-migrated")
        body = self._connection.execute(asked).scalar()
        return [] if body is None else [old["key"] for old in parse_json(body)["secrets"]]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}.."
