"""The database of the ledger: a SQLite file that must stay where it is, or PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from ucds.errors import DamagedFileError, InputError, NoSpaceError, ServiceUnavailableError, UserError
from ucds.extras import require_extra
from ucds.serving.log import log, metadata

LEDGER_FILE = "ledger.sqlite"
_HOW = "`ucds keys add` makes one"
_SQLITE: dict[str, Any] = {
    # Without a level of isolation, Python begins no transaction by itself.
    "connect_args": {"timeout": 60, "check_same_thread": False, "isolation_level": None},
    "pool_size": 16,
}
_SQLITE_BEGINS = {False: "BEGIN", True: "BEGIN IMMEDIATE"}  # by whether a transaction writes
_POSTGRESQL: dict[str, Any] = {
    "connect_args": {"connect_timeout": 10, "options": "-c synchronous_commit=on -c lock_timeout=60000"},
    "pool_pre_ping": True,
    "pool_size": 16,
}
_POSTGRESQL_BEGINS = {
    False: "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
    True: "SELECT pg_advisory_xact_lock(7512041)",
}


def ledger_url(place: str | Path) -> URL:
    """Return the address of the database for a run folder, a file or an address."""
    text = str(place)
    if not text:
        raise InputError("name the ledger: a run folder, a SQLite file, or postgresql://USER@HOST/NAME")
    if "://" not in text and not re.search(r"(?i)^\s*postgres[\w+]*:|passw(or)?d\s*=", text):
        path = Path(place)
        path = path / LEDGER_FILE if path.is_dir() else path.resolve()
        return URL.create("sqlite", database=str(path.absolute()))
    try:
        url = make_url(text)
        if "@" in f"{url.host}{url.database}" and url.get_backend_name() != "sqlite":
            raise ValueError  # a part of a password
    except (ArgumentError, ValueError):
        wanted = "write postgresql://USER@HOST/NAME, and an @ in a password as %40"
        raise InputError(f"the ledger's address cannot be read: {wanted}") from None
    backend = url.get_backend_name()
    if backend == "sqlite" and url.database and url.database != ":memory:":
        return url
    if backend in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    raise InputError(f"a ledger lies in a SQLite file or in PostgreSQL, not in {backend}")


class Database:
    """Transactions on the tables of a ledger; errors of the database become errors for users."""

    def __init__(self, place: str | Path, *, create: bool = False) -> None:
        url = ledger_url(place)
        self.shown = url.set(query={}).render_as_string(hide_password=True)
        self._path = Path(str(url.database)) if url.get_backend_name() == "sqlite" else None
        self._files: list[tuple[int, int] | None] | None = None
        if self._path is not None:
            _prepare_file(self._path, create)
            self._engine = sa.create_engine(url, **_SQLITE)
            sa.event.listen(self._engine, "connect", _prepare_connection)
            return
        require_extra("postgres", "a ledger in PostgreSQL")
        self._engine = sa.create_engine(url, **_POSTGRESQL)

    def close(self) -> None:
        """Close the connections to the database."""
        self._engine.dispose()

    @contextmanager
    def transaction(self, *, writes: bool = False) -> Iterator[sa.Connection]:
        """Open a transaction with the right to write, or one that sees a single moment of the ledger."""
        try:
            with self._engine.begin() as connection:
                begins = _POSTGRESQL_BEGINS if self._path is None else _SQLITE_BEGINS
                connection.exec_driver_sql(begins[writes])
                self._check_files()
                yield connection
            self._check_files()
        except SQLAlchemyError as error:
            raise _explain(error, f"the ledger {self.shown} cannot be used") from error
        except UnicodeDecodeError:  # Python cannot read what SQLite says of a damaged name
            raise DamagedFileError(f"the ledger {self.shown} holds a name that is not UTF-8") from None

    def prepare(self, connection: sa.Connection, *, create: bool = False) -> bool:
        """Make the tables of a ledger if they are missing and wanted; return whether they are new."""
        if sa.inspect(connection).has_table(log.name):
            return False
        if not create:
            raise InputError(f"the database {self.shown} holds no ledger: {_HOW}")
        metadata.create_all(connection)
        return True

    def erase_deleted(self) -> None:
        """Make sure that no file of the database still holds deleted data."""
        with self._engine.connect() as connection:
            if self._path is None:
                outside = connection.execution_options(isolation_level="AUTOCOMMIT")
                outside.exec_driver_sql("VACUUM answers, means")
            elif connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").scalars().one():
                told = "the answers are deleted, but traces stay in the file while other programs read it"
                raise ServiceUnavailableError(f"{told}: run the same command again")

    def read_clock(self, connection: sa.Connection) -> datetime | None:
        """Return the time of PostgreSQL, which is the same for all replicas; ``None`` for SQLite."""
        if self._path is not None:
            return None
        found: datetime = connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()
        return found

    def _check_files(self) -> None:
        """Make sure that all files are those that were opened: SQLite goes on writing into a deleted file."""
        if self._path is None:
            return
        found = [_identity(f"{self._path}{end}") for end in ("", "-wal", "-shm")]
        self._files = self._files or found
        if found != self._files:
            raise ServiceUnavailableError(
                f"a file of the ledger {self._path} was deleted or replaced while it was in use: stop what "
                "uses it, restore the ledger, run `ucds ledger verify`, and start again"
            )


def _explain(error: SQLAlchemyError, problem: str) -> UserError:
    original = getattr(error, "orig", None)
    message = f"{problem}: {str(original or error).strip().splitlines()[0]}"
    code = getattr(original, "sqlite_errorname", None) or getattr(original, "sqlstate", None) or ""
    if code.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return DamagedFileError(message)
    if code.startswith(("SQLITE_FULL", "SQLITE_READONLY", "53100")):  # 53100: disk_full of PostgreSQL
        return NoSpaceError(message)
    return InputError(message) if code.startswith("SQLITE_CANTOPEN") else ServiceUnavailableError(message)


def _identity(path: str) -> tuple[int, int] | None:
    with suppress(OSError):
        found = Path(path).stat()
        return found.st_dev, found.st_ino
    return None


def _prepare_file(path: Path, create: bool) -> None:
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} for a ledger: give a run folder or an address")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise InputError(f"the ledger {path} is a link or no file: put the file itself in its place")
    if path.exists():  # it is not opened here: that would end the locks of SQLite in this process
        return
    if not create:
        raise InputError(f"there is no ledger {path}: {_HOW}")
    try:  # readable by its owner alone, from the first moment on
        path.touch(0o600)
    except OSError as error:
        raise NoSpaceError(f"the ledger {path} cannot be written: {error.strerror}") from None


def _prepare_connection(connection: Any, record: object) -> None:
    """Set what SQLite keeps for a connection."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA secure_delete = ON")  # what is forgotten leaves no trace in the file
    connection.execute("PRAGMA synchronous = FULL")  # an answer is given only when its charge is on disk
