"""The check of a ledger: log against rules, answers against log, both against outside records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Row

from ucds.errors import DamagedFileError, InputError
from ucds.files import require_writable, write_atomically
from ucds.labels.journal import KeptReceipt, read_receipts
from ucds.labels.wire import answers_digest, is_authentic, read_signers
from ucds.serving import log
from ucds.serving.checkpoints import read_checkpoints
from ucds.serving.database import Database
from ucds.serving.keys import as_text
from ucds.serving.ledger import Ledger
from ucds.serving.log import Entry
from ucds.serving.state import Answered, Archived, RuleBroken, State, Statement, open_snapshot, parse_body

_AT_A_TIME = 1000
_MOST_AHEAD = timedelta(minutes=1)


@dataclass(frozen=True)
class Verdict:
    """The result of a check."""

    number: int  # number of entries, as far as they hold
    hash: str  # hash of the last of these entries
    first: int  # first entry that was read; those before it are in archives that were not given
    faults: tuple[str, ...]  # one sentence for each fault; none when all is well
    agreed: int  # checkpoints and receipts that agree with the log
    lost: int  # checkpoints and receipts that name entries whose loss was accepted
    unnamed: int  # entries at the end, without snapshots, that nothing kept elsewhere names


def verify(
    place: str | Path,
    *,
    signers: Collection[str] = (),
    checkpoints: Iterable[Path] = (),
    receipts: Iterable[Path] = (),
    archives: Sequence[Path] = (),
) -> Verdict:
    """Check a whole ledger at one moment.

    Without the provider's public keys, the signers, no snapshot stands for the entries before it, and nothing
    that is kept elsewhere can be compared. Archives are given the oldest first.
    """
    signers = read_signers(signers)
    told = [(path, one) for path in checkpoints for one in read_checkpoints(path)]
    kept = [(path, number, one) for path in receipts for number, one in enumerate(read_receipts(path), 1)]
    if (told or kept) and not signers:
        raise InputError("name the provider's public key as `signer`, to compare checkpoints or receipts")
    with closing(Database(place)) as database, database.transaction() as connection:
        database.prepare(connection)
        check = _Check(connection, signers, {one.number for _, one in told}, [one for *_, one in kept])
        check.read(archives)
        for path, statement in told:
            check.compare_statement(f"the checkpoint of {statement.time} in {path}", statement)
        for path, number, receipt in kept:
            check.compare_receipt(f"receipt {number} of {path}", receipt)
        return check.verdict()


def archive(ledger: Ledger, out: Path) -> int:
    """Move all entries before the last snapshot into a file, and return their number.

    Answers stay, so that repeated questions stay free. `verify` reads the file in place of the entries.
    """
    out = require_writable(out)
    if out.exists():
        raise InputError(f"{out} is there already: name a new file for the archive")
    if faults := verify(ledger.place, signers=ledger.signers).faults:
        raise DamagedFileError(f"the ledger does not agree with its log, so it stays as it is: {faults[0]}")
    with ledger.reading() as (connection, _):
        snapshot, oldest = log.read_snapshot(connection), next(log.read_entries(connection))
        if snapshot is None or snapshot == oldest:
            raise InputError("there is nothing to archive: the log has no snapshot since its first entry")
        old = takewhile(lambda entry: entry != snapshot, log.read_entries(connection))
        write_atomically(out, lambda file: file.writelines(map(log.to_line, old)), is_private=True)
    with ledger.writing() as writing:
        if log.read_snapshot(writing.connection) != snapshot:
            out.unlink()
            raise InputError("the service took a snapshot meanwhile: run the same command again")
        writing.append(Archived(first=snapshot.number))
        writing.connection.execute(log.log.delete().where(log.log.c.number < snapshot.number))
    return snapshot.number - oldest.number


class _Check:
    """Reads the log once, from the beginning to the end, with the answers of each entry."""

    def __init__(
        self, connection: Connection, signers: Collection[str], numbers: set[int], kept: list[KeptReceipt]
    ) -> None:
        self._connection, self._signers, self._numbers = connection, signers, numbers
        self._wanted = {digest for one in kept for digest in one.receipt.entries}
        self._state, self._first, self._faults = State(), 1, list[str]()
        self._hashes: dict[int, str] = {}  # of the entries that checkpoints name
        self._entries: dict[str, Entry] = {}  # those that receipts name
        self._gone: dict[int, int] = {}  # key of each entry whose answers are not there
        self._answers, self._keys = 0, set[int]()  # number of answers, and keys that were given them
        self._agreed = self._lost = self._named = self._last = 0

    def read(self, archives: Iterable[Path]) -> None:
        """Check the rules, and the answers of each entry."""
        try:
            entries = self._open(archives)
            while some := list(islice(entries, _AT_A_TIME)):
                rows = log.answers_of(self._connection, [entry.number for entry in some])
                for entry in some:
                    self._state = self._state.after(entry, self._signers)
                    self._note(entry)
                    self._faults += self._check_answers(entry, rows.get(entry.number, []))
            self._check_rest()
        except RuleBroken as error:
            self._faults.append(str(error))

    def verdict(self) -> Verdict:
        """Return what was found."""
        state, unnamed = self._state, max(0, self._last - self._named)
        faults = tuple(self._faults)
        return Verdict(state.number, state.hash, self._first, faults, self._agreed, self._lost, unnamed)

    def _open(self, archives: Iterable[Path]) -> Iterator[Entry]:
        """Return the entries to check, from the oldest one given; a snapshot replaces older entries."""
        entries = log.read_entries(self._connection)
        first = next(entries, None)
        if first is None:
            raise RuleBroken("the log is empty")
        start = first.number
        old = (one for path in archives for one in log.read_archive(path) if one.number < start)
        entries = chain(old, [first], entries)
        oldest = next(entries)
        if oldest.number == 1:
            return chain([oldest], entries)
        if not self._signers:
            raise RuleBroken(f"entry {oldest.number} begins the log: name the key that signed it as `signer`")
        self._state, self._first = open_snapshot(oldest, self._signers), oldest.number
        assert self._state.statement is not None
        self._hashes[oldest.number - 1] = self._state.statement.hash
        self._note(oldest)
        return entries

    def _note(self, entry: Entry) -> None:
        """Keep parts of an entry for later comparisons."""
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
        self._keys |= {row.key for row in rows}
        if not isinstance(body, Answered):
            if rows:
                yield f"there are answers of entry {entry.number}, which charged for none"
        elif not rows:
            self._gone[entry.number] = body.key
        elif len(rows) != body.charged or log.digest_rows(rows) != body.digest:
            yield f"the answers of entry {entry.number} were changed"
        elif any((row.key, row.model) != (body.key, body.model) for row in rows):
            yield f"the answers of entry {entry.number} were given to another key, or by another model"

    def _check_rest(self) -> None:
        """Check the rules that need the whole log."""
        forgotten = {number for number, key in self._state.keys.items() if key.forgotten}
        gone = [entry for entry, key in self._gone.items() if key not in forgotten]
        self._faults += [f"the answers of entry {entry} are gone" for entry in gone]
        kept = [self._state.keys[number].name for number in sorted(forgotten & self._keys)]
        self._faults += [f"there are answers of the key {name!r}, which was forgotten" for name in kept]
        uses = [((n, m), use.mean) for n, key in self._state.keys.items() for m, use in key.models.items()]
        if log.digests_of_means(self._connection) != {use: mean for use, mean in uses if mean}:
            self._faults.append("means of calibrations were changed, added or removed")
        asked = sa.select(sa.func.count()).select_from(log.answers)
        if self._first > 1:
            asked = asked.where(log.answers.c.entry >= self._first)
        if self._connection.execute(asked).scalar_one() != self._answers:
            self._faults.append("there are answers of entries that are not in the log")
        if self._state.time > as_text(datetime.now(UTC) + _MOST_AHEAD):
            what = f"the log ends at {self._state.time}, which lies in the future"
            self._faults.append(f"{what}: if the clock is right, `ucds ledger accept-clock` repairs this")

    def compare_statement(self, source: str, told: Statement) -> None:
        """Compare a checkpoint with the log."""
        if told.signer not in self._signers:
            self._faults.append(f"{source} is signed with another key than the provider's")
        elif told.number < self._first - 1:
            self._faults.append(f"{source} names entry {told.number}, which is archived: give the archives")
        elif self._hashes.get(told.number) == told.hash:
            self._agreed += 1
            self._named = max(self._named, told.number)
        elif self._state.excuses(told):
            self._lost += 1
        else:
            self._faults.append(
                f"{source} names an entry {told.number} that is not in the log, which ends with "
                f"{self._state.number}"
            )

    def compare_receipt(self, source: str, kept: KeptReceipt) -> None:
        """Compare a receipt with the log, and its labels with the answers."""
        receipt = kept.receipt
        labels = {bytes.fromhex(content): label for content, label in kept.labels.items()}
        missing = [digest for digest in receipt.entries if digest not in self._entries]
        if not is_authentic(receipt):
            self._faults.append(f"{source} has a wrong signature")
        elif receipt.signer not in self._signers:
            self._faults.append(f"{source} is signed with another key than the provider's")
        elif receipt.answers_digest != answers_digest(labels.items()):
            self._faults.append(f"{source} stands beside labels other than those it was given for")
        elif missing and self._state.excuses(receipt):
            self._lost += 1
        elif missing:
            advice = "" if self._first == 1 else "; if it is archived, give the archives"
            name = f"{missing[0][:16]}.."
            self._faults.append(f"{source} names an entry {name}, which is not in the log{advice}")
        elif not self._holds(kept, labels):
            self._faults.append(f"{source} holds other answers than the entries that it names")
        else:
            self._agreed += 1
            self._named = max(self._named, *(self._entries[digest].number for digest in receipt.entries))

    def _holds(self, kept: KeptReceipt, labels: dict[bytes, int]) -> bool:
        """Return whether the entries charged for these answers, those that the ledger still has."""
        entries = [self._entries[digest] for digest in kept.receipt.entries]
        bodies = [parse_body(entry) for entry in entries]
        charges = [body for body in bodies if isinstance(body, Answered)]
        model = kept.receipt.model_digest
        if any((body.model, body.privacy) != (model, kept.receipt.privacy) for body in charges):
            return False
        if any(self._state.keys[body.key].forgotten for body in charges):
            return True
        rows = list(log.select_in(self._connection, log.answers.c.entry, [entry.number for entry in entries]))
        if any(isinstance(body, Archived) for body in bodies):
            rows += log.select_in(self._connection, log.answers.c.content, labels, model=model)
        return labels.items() <= {(bytes(row.content), row.label) for row in rows}
