"""The check of a ledger: the log by its rules, the answers by the log, both by what is kept elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row

from ucds.labels.journal import read_receipts
from ucds.labels.receipts import KeptReceipt, answers_digest, is_authentic
from ucds.serving import database, log
from ucds.serving.checkpoints import read_checkpoints
from ucds.serving.keys import as_text
from ucds.serving.log import Entry, Head
from ucds.serving.replay import MOST_BEHIND
from ucds.serving.state import Answered, Archived, RuleBroken, State, Statement, open_snapshot, parse_body

_AT_A_TIME = 1000


@dataclass(frozen=True)
class Verdict:
    """The result of a check.

    Attributes:
        head: end of the log, as far as it holds.
        first: number of the first entry that was read; those before it are in archives that were not given.
        faults: one sentence for each fault; none when all is well.
        agreed: number of checkpoints and receipts that agree with the log.
        lost: number of checkpoints and receipts that name entries whose loss was accepted.
        unnamed: number of entries at the end of the log that nothing kept elsewhere names: if they, or
            entries after them, were removed, this check could not see it. Snapshots are not counted.
    """

    head: Head
    first: int
    faults: tuple[str, ...]
    agreed: int
    lost: int
    unnamed: int


def verify(
    place: str | Path,
    *,
    checkpoints: Iterable[Path] = (),
    receipts: Iterable[Path] = (),
    archives: Sequence[Path] = (),
) -> Verdict:
    """Check a whole ledger, as it is at one moment.

    Args:
        place: run folder, SQLite file, or database address.
        checkpoints: files that the service wrote.
        receipts: files that clients kept.
        archives: files that `ucds ledger archive` wrote, the oldest first.

    Raises:
        UserError: the database or a file cannot be used, or a checkpoint has a wrong signature.
    """
    told = [
        (f"the checkpoint of {one.time} in {path}", one)
        for path in checkpoints
        for one in read_checkpoints(path)
    ]
    kept = [
        (f"receipt {number} of {path}", one)
        for path in receipts
        for number, one in enumerate(read_receipts(path), 1)
    ]
    with database.looking(place) as connection:
        check = _Check(connection, told, kept)
        check.read(chain.from_iterable(map(log.read_archive, archives)))
        return check.compare()


class _Check:
    """Reads the log once, from the beginning to the end, with the answers of each entry."""

    def __init__(
        self,
        connection: Connection,
        told: list[tuple[str, Statement]],
        kept: list[tuple[str, KeptReceipt]],
    ) -> None:
        self._connection, self._told, self._kept = connection, told, kept
        self._state, self._first = State(), 1
        self._faults: list[str] = []
        self._gone: dict[int, int] = {}  # key of each entry whose answers are not there
        self._answers, self._keys = 0, set[int]()  # number of answers, and keys that were given them
        self._numbers = {one.number for _, one in told}
        self._hashes = {0: log.GENESIS}  # of the entries that checkpoints name
        self._wanted = {digest for _, one in kept for digest in one.receipt.entries}
        self._entries: dict[str, Entry] = {}  # those that receipts name
        self._agreed = self._lost = self._named = self._last = 0

    def read(self, archived: Iterator[Entry]) -> None:
        """Check the rules, and the answers of each entry."""
        try:
            entries = self._start(archived)
            while some := list(islice(entries, _AT_A_TIME)):
                rows = log.answers_of(self._connection, [entry.number for entry in some])
                for entry in some:
                    self._state = self._state.after(entry)
                    self._note(entry)
                    self._faults += self._check_answers(entry, rows.get(entry.number, []))
            self._check_rest()
        except RuleBroken as error:
            self._faults.append(str(error))

    def compare(self) -> Verdict:
        """Compare the log with what was kept elsewhere, and return what was found."""
        for source, told in self._told:
            self._settle(self._check_statement(told), told.time, told.number, source)
        for source, kept in self._kept:
            self._settle(self._check_receipt(kept), kept.receipt.time, None, source)
        unnamed = max(0, self._last - self._named)
        return Verdict(self._state.head, self._first, tuple(self._faults), self._agreed, self._lost, unnamed)

    def _start(self, archived: Iterator[Entry]) -> Iterator[Entry]:
        """Return the entries to check; without archives, begin after the snapshot that comes first."""
        entries = log.read_entries(self._connection)
        first, oldest = next(entries, None), next(archived, None)
        if first is None:
            raise RuleBroken("the log is empty")
        if oldest is not None:
            old = (entry for entry in chain([oldest], archived) if entry.number < first.number)
            return chain(old, [first], entries)
        if first.number == 1:
            return chain([first], entries)
        self._state = open_snapshot(first)
        assert self._state.statement is not None
        self._first, self._hashes[first.number - 1] = first.number, self._state.statement.hash
        self._note(first)
        return entries

    def _note(self, entry: Entry) -> None:
        """Keep what is compared later."""
        if entry.number in self._numbers:
            self._hashes[entry.number] = entry.hash
        if entry.hash in self._wanted:
            self._entries[entry.hash] = entry
        if entry.kind != "Snapshot":
            self._last = entry.number

    def _check_answers(self, entry: Entry, rows: list[Row[Any]]) -> Iterator[str]:
        """Compare the answers that one entry charged for with the rows that name the entry."""
        body = parse_body(entry)
        self._answers += len(rows)
        if not isinstance(body, Answered):
            if rows:
                yield f"there are answers of entry {entry.number}, which gave none"
        elif not rows:
            self._gone[entry.number] = body.key
        elif len(rows) != body.charged or digest_rows(rows) != body.digest:
            yield f"the answers of entry {entry.number} were changed"
        elif any((row.key, row.model) != (body.key, body.model) for row in rows):
            yield f"the answers of entry {entry.number} were given to another key, or by another model"
        self._keys |= {row.key for row in rows}

    def _check_rest(self) -> None:
        """Check what only the whole log can tell."""
        forgotten = {number for number, key in self._state.keys.items() if key.forgotten}
        gone = [entry for entry, key in self._gone.items() if key not in forgotten]
        self._faults += [f"the answers of entry {entry} are gone" for entry in gone]
        kept = [self._state.keys[number].name for number in sorted(forgotten & self._keys)]
        self._faults += [f"there are answers of the key {name!r}, which was forgotten" for name in kept]
        if log.count_answers(self._connection, self._first) != self._answers:
            self._faults.append("there are answers of entries that are not in the log")
        if self._state.time > as_text(datetime.now(UTC) + MOST_BEHIND):
            self._faults.append(f"the log ends at {self._state.time}, which is still to come")

    def _settle(self, fault: str | None, time: str, number: int | None, source: str) -> None:
        """Count what agrees and what is an accepted loss; the rest is a fault."""
        if fault is None:
            self._agreed += 1
        elif "not in the log" in fault and self._state.excuses(time, number):
            self._lost += 1
        else:
            self._faults.append(f"{source} {fault}")

    def _check_statement(self, told: Statement) -> str | None:
        if told.signer not in self._state.signers:
            return "is signed with a key that the log does not name"
        if 0 < told.number < self._first - 1:
            return f"names entry {told.number}, which is archived: give the archives"
        if self._hashes.get(told.number) != told.hash:
            return (
                f"names an entry {told.number} that is not in the log, which ends with {self._state.number}"
            )
        self._named = max(self._named, told.number)
        return None

    def _check_receipt(self, kept: KeptReceipt) -> str | None:
        receipt = kept.receipt
        labels = {bytes.fromhex(content): label for content, label in kept.labels.items()}
        if not is_authentic(receipt):
            return "has a wrong signature"
        if receipt.signer not in self._state.signers:
            return "is signed with a key that the log does not name"
        if receipt.answers_digest != answers_digest(labels.items()):
            return "stands beside other labels than it was given for"
        if missing := [digest for digest in receipt.entries if digest not in self._entries]:
            archived = "" if self._first == 1 else "; if it is archived, give the archives"
            return f"names an entry {missing[0][:16]}.., which is not in the log{archived}"
        entries = [self._entries[digest] for digest in receipt.entries]
        if not self._holds(kept, labels, entries):
            return "holds other answers than the entries that it names"
        self._named = max(self._named, *(entry.number for entry in entries))
        return None

    def _holds(self, kept: KeptReceipt, labels: dict[bytes, int], entries: list[Entry]) -> bool:
        """Return whether the entries charged for these answers, as far as the ledger still has them."""
        bodies = [parse_body(entry) for entry in entries]
        for body in bodies:
            told = (kept.receipt.model_digest, kept.receipt.privacy)
            if isinstance(body, Answered) and (body.model, body.privacy) != told:
                return False
        if any(isinstance(body, Answered) and self._state.keys[body.key].forgotten for body in bodies):
            return True
        rows = log.answers_of(self._connection, [entry.number for entry in entries]).values()
        given = {(bytes(row.content), row.label) for some in rows for row in some}
        if any(isinstance(body, Archived) for body in bodies):
            given |= log.find_labels(self._connection, kept.receipt.model_digest, labels)
        return labels.items() <= given


def digest_rows(rows: list[Row[Any]]) -> str:
    """Compute the digest of some answers, as an entry names it."""
    return answers_digest((bytes(row.content), row.label) for row in rows)
