"""The ledger's database as all its users see it: transactions, and the one right to write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from ucds.errors import ServiceUnavailableError
from ucds.serving import audit, database, keys, migration, tables
from ucds.serving.audit import Head


@dataclass
class Writing:
    """A transaction that holds the head of the log.

    Attributes:
        connection: connection in the transaction.
        head: end of the log.
        time: time of the transaction, ISO 8601 in UTC.
    """

    connection: Connection
    head: Head
    time: str

    def append(self, kind: audit.Kind, **body: Any) -> None:
        """Add an entry to the log, and make the changes that it stands for."""
        self.head = audit.append(self.connection, self.head, self.time, kind, body)


class Book:
    """An open ledger, without what is done with it.

    Every method raises ServiceUnavailableError when the database does not answer, does not take the
    transaction, was deleted or replaced, or holds fewer entries than before; NoSpaceError when its disk is
    full; and DamagedFileError when its file is damaged.

    Args:
        place: run folder, SQLite file, or database address.
        create: whether a ledger is made when there is none.

    Raises:
        InputError: the place cannot be used, or there is no ledger and none is to be made, or the ledger has
            an older format.
        DamagedFileError: the file is not a ledger.
        NoSpaceError: the file cannot be written.
        ServiceUnavailableError: the database cannot be reached.
    """

    def __init__(self, place: str | Path, *, create: bool = True) -> None:
        self.url = database.ledger_url(place)
        self._engine = database.connect(self.url, create=create)
        self._guard: database.FileGuard | None = None
        self._seen = 0
        with ExitStack() as unless_opened:
            unless_opened.callback(self.close)
            with self.transaction(writes=True, problem="cannot be opened") as connection:
                migration.check_format(database.prepare_tables(connection, create=create))
                self._seen = audit.read_head(connection).entries
            self._guard = database.FileGuard(self.url)
            unless_opened.pop_all()

    def close(self) -> None:
        """Close the connections to the database."""
        self._engine.dispose()

    @contextmanager
    def transaction(self, *, writes: bool = False, problem: str = "cannot be used") -> Iterator[Connection]:
        """Open a transaction; it is on disk when the context ends, or nothing of it is.

        Args:
            writes: whether it writes.
            problem: words of the error when the database does not take it.
        """
        self._check_files()
        shown = self.url.render_as_string(hide_password=True)
        with (
            database.explaining(f"the ledger {shown} {problem}"),
            self._engine.execution_options(**{database.WRITES: writes}).begin() as connection,
        ):
            yield connection
        self._check_files()

    @contextmanager
    def writing(self) -> Iterator[Writing]:
        """Open a transaction that holds the head of the log; all other writers wait for its end."""
        with self.transaction(writes=True) as connection:
            head = audit.lock_head(connection)
            if head.entries < self._seen:
                raise ServiceUnavailableError(
                    f"the ledger holds {head.entries} entries, but it had {self._seen}: it was wound back"
                )
            writing = Writing(connection, head, keys.now())
            yield writing
        self._seen = max(self._seen, writing.head.entries)

    def read_head(self) -> Head:
        """Return the end of the log."""
        with self.transaction() as connection:
            return audit.read_head(connection)

    def holds(self, head: Head) -> bool:
        """Return whether the log holds an entry that was written down before."""
        if head == Head(0, tables.GENESIS):
            return True
        with self.transaction() as connection:
            named = select(tables.audit.c.number).filter_by(number=head.entries, hash=head.hash)
            return connection.execute(named).first() is not None

    def check_writable(self) -> None:
        """Make sure that a charge could be written now, by a write that changes nothing."""
        with self.writing() as writing:
            writing.connection.execute(select(tables.keys.c.id).limit(1))
            writing.connection.execute(tables.head.update().values(entries=writing.head.entries))

    def _check_files(self) -> None:
        if self._guard is not None:
            self._guard.check()
