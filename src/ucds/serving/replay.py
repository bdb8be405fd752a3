"""The ledger as one process follows it: it reads the log to its end, and appends in exclusive transactions.

The state advances only by entries in the database, never by what a process intends to write. Each transaction
first checks the last entry that this process saw, and then reads later entries. So a revocation holds from
the next request on in all replicas, and a log that was set back is noticed even if entries were added since.
"""

from __future__ import annotations

import getpass
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import Connection

from ucds.errors import DamagedFileError, InputError, ServiceUnavailableError, UserError
from ucds.labels.wire import read_signers
from ucds.serving import log
from ucds.serving import state as rules
from ucds.serving.database import Database
from ucds.serving.keys import as_text
from ucds.serving.log import Entry
from ucds.serving.signing import Signer

MOST_AHEAD = timedelta(days=1)
"""Time by which a clock may be ahead of the last entry, so that a wrong clock cannot date the log."""

_RETRY_SECONDS = 1.0
_ROOM = 2**20  # bytes that must be free before a service is ready again


@dataclass
class Writing:
    """A transaction with the right to write, its time, and the state after its entries."""

    connection: Connection
    state: rules.State
    clock: str
    operator: str
    entry: Entry | None = None

    @property
    def time(self) -> str:
        """Time of the next entry: the clock's, but never before the time of the last entry."""
        return max(self.clock, self.state.time)

    def append(self, body: rules.Body, blanks: int = 0) -> Entry:
        """Append an entry to the log, followed by blanks that hide its length."""
        is_accepted, last = isinstance(body, rules.ClockAccepted), self.state.time
        ahead = datetime.fromisoformat(self.clock) - datetime.fromisoformat(last)
        if self.state.number and not is_accepted and ahead > MOST_AHEAD:
            raise ServiceUnavailableError(
                f"the clock says {self.clock}, a day or more after the ledger's last entry of {last}: set "
                "the clock or, if it is right, run `ucds ledger accept-clock`"
            )
        kind, words = type(body).__name__, body.model_dump_json() + " " * blanks
        number = self.state.number + 1
        time = self.clock if is_accepted else self.time
        self.entry = Entry.after(self.state.hash, number, time, self.operator, kind, words)
        self.state = self.state.after(self.entry)
        self.connection.execute(log.log.insert().values(vars(self.entry)))
        return self.entry


class Replay:
    """The log of a ledger as this process has read it; several threads may use it.

    Every method raises DamagedFileError when the log was changed or set back; ServiceUnavailableError when
    the database does not answer, does not take the transaction, or was deleted or replaced, or when the clock
    is far ahead of the log; and NoSpaceError when the disk is full.

    Where there is no ledger, one is made if ``create`` says so. The clock tells the present time; in
    PostgreSQL, its own clock dates what is written.
    """

    def __init__(
        self,
        place: str | Path,
        *,
        create: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._operator, self._clock = _operator(), clock
        self.place, self._database = place, Database(place, create=create)
        self.shown = self._database.shown
        self._reading, self._queue = threading.Lock(), threading.Lock()  # as SQLite keeps no order
        self._state, self._tail = rules.State(), None  # type: rules.State, Entry | None
        self.signers: tuple[str, ...] = ()
        self._damage: str | None = None
        self._failure: UserError | None = None
        self._next_try = 0.0
        with ExitStack() as unless_opened:
            unless_opened.callback(self.close)
            with self._database.transaction(writes=create) as connection:
                if self._database.prepare(connection, create=create):
                    self._writing(connection).append(rules.Begun())
                self._advance(connection)
            unless_opened.pop_all()

    def close(self) -> None:
        """Close the connections to the database."""
        self._database.close()

    def trust(self, *signers: str) -> None:
        """Accept snapshots that these public keys have signed and no others, and read the log anew.

        A service trusts its own key, whatever the log says. Without a call of this, any key is accepted.
        """
        self.signers = read_signers(signers)
        self._state, self._tail = rules.State(), None
        self.state()

    @contextmanager
    def reading(self) -> Iterator[tuple[Connection, rules.State]]:
        """Open a transaction, read the log to its end, and yield the state of the ledger."""
        with self._until_damaged(), self._database.transaction() as connection:
            yield connection, self._advance(connection)

    @contextmanager
    def writing(self) -> Iterator[Writing]:
        """Open a transaction with the exclusive right to write, with the log read to its end.

        It may append one entry. When the context ends, either the entry is on disk or nothing is.
        """
        try:
            with self._until_damaged(), self._queue, self._database.transaction(writes=True) as connection:
                present = self._advance(connection)
                writing = self._writing(connection)
                yield writing
        except UserError as error:
            if not isinstance(error, InputError):
                self._failure = error
            raise
        if writing.entry is not None:
            self._failure = None
            with self._reading:
                if self._state is present:  # else another thread has read it already
                    self._state, self._tail = writing.state, writing.entry

    def state(self) -> rules.State:
        """Read the log to its end, and return the state of the ledger."""
        with self.reading() as (_, present):
            return present

    def holds(self, told: rules.Statement) -> bool:
        """Return whether the log holds the entry that a checkpoint names, or its loss was accepted."""
        with self.reading() as (connection, present):
            entry = log.find_entries(connection, [told.number]).get(told.number)
        same = told.number < present.first if entry is None else entry.hash == told.hash
        known = not self.signers or told.signer in self.signers
        return known and (same or present.excuses(told))

    def take_snapshot(self, signer: Signer, least: int = 1, blanks: int = 0) -> rules.Statement | None:
        """Append a signed snapshot if ``least`` entries came since the last one; else return ``None``."""
        with self.writing() as writing:
            present = writing.state
            if present.unsigned < least:
                return None
            fields = {"number": present.number, "hash": present.hash, "era": present.era}
            told = signer.sign(rules.Statement, time=writing.time, state=present.digest(), **fields)
            writing.append(rules.Snapshot(statement=told, state=present), blanks)
        return told

    def accept_clock(self) -> str:
        """Record that the clock is right despite the time of the last entry; return the time."""
        with self.writing() as writing:
            return writing.append(rules.ClockAccepted()).time

    def check_counts(self) -> None:
        """Make sure that each key has as many answers from each model as the log charged for."""
        with self.writing() as writing:  # so that no charge comes in between
            keys = [key for key in writing.state.keys.values() if not key.forgotten]
            charged = {
                (key.number, m): use.answers for key in keys for m, use in key.models.items() if use.answers
            }
            if log.count_answers(writing.connection) != charged:
                raise self._damaged("answers were added or removed")

    def check_ready(self, signer: Signer) -> None:
        """Make sure that the log can be read and, after a failed write, that writing works again."""
        self.state()
        failure = self._failure
        if failure is None:
            return
        if time.monotonic() < self._next_try:
            raise failure
        self._next_try = time.monotonic() + _RETRY_SECONDS
        self.take_snapshot(signer, least=0, blanks=_ROOM)  # a small entry may fit where a charge does not

    def _advance(self, connection: Connection) -> rules.State:
        """Read the entries that were added, after checking that the last one seen is still there."""
        with self._reading:
            present, tail = self._state, self._tail
            try:
                if tail is None and (tail := log.read_snapshot(connection)):  # for all entries before it
                    present = rules.open_snapshot(tail, self.signers)
                entries = log.read_entries(connection, max(1, present.number))
                if tail is not None and next(entries, None) != tail:
                    present, tail = self._skip_archived(connection)
                    entries = log.read_entries(connection, present.number + 1)
                for tail in entries:
                    present = present.after(tail, self.signers)
            except rules.RuleBroken as error:
                raise self._damaged(str(error)) from None
            if tail is None:
                raise self._damaged("the log is empty")
            self._state, self._tail = present, tail
            return present

    def _skip_archived(self, connection: Connection) -> tuple[rules.State, Entry]:
        """If all entries that this process saw are archived, continue from the first one left, a snapshot."""
        first = next(log.read_entries(connection), None)
        with suppress(rules.RuleBroken):
            if first is not None and first.number > self._state.number:
                return rules.open_snapshot(first, self.signers), first
        raise self._damaged(f"it no longer holds entry {self._state.number}, which this process saw")

    @contextmanager
    def _until_damaged(self) -> Iterator[None]:
        """Refuse every use of the ledger once a check of it has failed."""
        if self._damage is not None:
            raise DamagedFileError(self._damage)
        try:
            yield
        except DamagedFileError as error:
            self._damage = str(error)
            raise

    def _damaged(self, reason: str) -> DamagedFileError:
        return DamagedFileError(
            f"the ledger {self.shown} was changed or set back: {reason}; run `ucds ledger verify`"
        )

    def _writing(self, connection: Connection) -> Writing:
        """Return a transaction that may write, with its clock."""
        clock = self._database.read_clock(connection) or self._clock()
        return Writing(connection, self._state, as_text(clock), self._operator)


def _operator() -> str:
    """Return the name of the acting user for the log: ``UCDS_OPERATOR``, or else the process's user."""
    name = os.environ.get("UCDS_OPERATOR", "")
    if len(name) > log.LONGEST_NAME or not name.isprintable():
        raise InputError(f"UCDS_OPERATOR must be a name of at most {log.LONGEST_NAME} printable letters")
    try:
        return name or getpass.getuser()[: log.LONGEST_NAME]
    except (KeyError, OSError):  # a user without a name, as in some containers
        return f"user {os.getuid()}"
