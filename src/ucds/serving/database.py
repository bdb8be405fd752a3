"""The database of the ledger: a SQLite file that must stay where it is, or PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from ucds.errors import DamagedFileError, InputError, NoSpaceError, ServiceUnavailableError, UserError
from ucds.serving.log import log, metadata

LEDGER_FILE = "ledger.sqlite"
WRITES = "ucds_writes"  # execution option of a connection whose transactions write
_HOW = "`ucds keys add` makes one"
_POSTGRESQL: dict[str, Any] = {
    "connect_args": {"connect_timeout": 10, "options": "-c synchronous_commit=on -c lock_timeout=60000"},
    "pool_pre_ping": True,
    "pool_size": 16,
}


def ledger_url(place: str | Path) -> URL:
    """Return the address of the database that a run folder, a file or an address means.

    Raises:
        InputError: the place can be none of these.
    """
    text = str(place)
    if "://" not in text:
        path = Path(place)
        path = path / LEDGER_FILE if path.is_dir() else path
        return URL.create("sqlite", database=str(path.absolute()))
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise InputError("the ledger's address cannot be read: write postgresql://USER@HOST/NAME") from None
    backend = url.get_backend_name()
    if backend == "sqlite" and url.database and url.database != ":memory:":
        return url
    if backend in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    raise InputError(f"a ledger lies in a SQLite file or in PostgreSQL, not in {backend}")


def connect(url: URL, *, create: bool) -> sa.Engine:
    """Connect to the database of a ledger; nothing is read of it yet.

    Raises:
        UserError: the database cannot be used; `Ledger` names the kinds.
    """
    try:
        if url.get_backend_name() != "sqlite":
            return sa.create_engine(url, **_POSTGRESQL)
        _prepare_file(Path(str(url.database)), create)
        return _sqlite_engine(url)
    except (ModuleNotFoundError, NoSuchModuleError):
        raise InputError("PostgreSQL needs its driver: pip install 'ucds[postgres]'") from None


def prepare_tables(connection: sa.Connection, *, create: bool) -> None:
    """Make the tables of a ledger if there are none and they are wanted.

    Raises:
        InputError: there is no ledger, and none is to be made.
    """
    if not sa.inspect(connection).has_table(log.name):
        if not create:
            raise InputError(f"the database holds no ledger: {_HOW}")
        metadata.create_all(connection)


def lock(connection: sa.Connection) -> None:
    """Take the right to write until the transaction ends; SQLite gave it when the transaction began."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7512041)")


def read_clock(connection: sa.Connection) -> datetime | None:
    """Return the time of PostgreSQL, which is the same for all replicas; ``None`` for SQLite."""
    if connection.dialect.name != "postgresql":
        return None
    found: datetime = connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()
    return found


@contextmanager
def explaining(problem: str) -> Iterator[None]:
    """Turn faults of the database into errors for users, whose messages begin with the problem.

    Raises:
        UserError: the database cannot be used.
    """
    try:
        yield
    except SQLAlchemyError as error:
        raise _explain(error, problem) from error
    except UnicodeDecodeError:  # Python cannot read what SQLite says of a damaged name
        raise DamagedFileError(f"{problem}: it holds a name that is not UTF-8") from None


def _explain(error: SQLAlchemyError, problem: str) -> UserError:
    original = getattr(error, "orig", None)
    message = f"{problem}: {str(original or error).strip().splitlines()[0]}"
    code = getattr(original, "sqlite_errorname", None) or getattr(original, "sqlstate", None) or ""
    if code.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return DamagedFileError(message)
    if code.startswith(("SQLITE_FULL", "SQLITE_READONLY", "53100")):  # 53100: disk_full of PostgreSQL
        return NoSpaceError(message)
    return InputError(message) if code.startswith("SQLITE_CANTOPEN") else ServiceUnavailableError(message)


@contextmanager
def looking(place: str | Path) -> Iterator[sa.Connection]:
    """Open a transaction that sees one moment of a ledger, without any care for what the ledger holds.

    Raises:
        InputError: there is no ledger.
        UserError: the database cannot be used.
    """
    url = ledger_url(place)
    engine = connect(url, create=False)
    try:
        with (
            explaining(f"the ledger {url.render_as_string(hide_password=True)} cannot be read"),
            engine.begin() as connection,
        ):
            if connection.dialect.name == "postgresql":  # SQLite shows one moment by itself
                connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            prepare_tables(connection, create=False)
            yield connection
    finally:
        engine.dispose()


class FileGuard:
    """Notices that the files of an open SQLite database were deleted or replaced.

    SQLite would go on writing into the deleted file, and what it wrote would be gone with the process.

    Args:
        url: address of an open database; one in PostgreSQL has nothing to guard.
    """

    def __init__(self, url: URL) -> None:
        ends = ("", "-wal", "-shm") if url.get_backend_name() == "sqlite" else ()
        self._known = {path: _identity(path) for path in (f"{url.database}{end}" for end in ends)}

    def check(self) -> None:
        """Make sure that all files are those that were opened.

        Raises:
            ServiceUnavailableError: a file is gone, or another one has its place.
        """
        for path, identity in self._known.items():
            if _identity(path) != identity:
                raise ServiceUnavailableError(
                    f"{path} was deleted or replaced while it was in use: stop what uses it, restore the "
                    "ledger, run `ucds ledger verify`, and start again"
                )


def _identity(path: str) -> tuple[int, int] | None:
    with suppress(OSError):
        found = Path(path).stat()
        return found.st_dev, found.st_ino
    return None


def _prepare_file(path: Path, create: bool) -> None:
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} for a ledger: give a run folder or an address")
    if path.exists():
        return
    if not create:
        raise InputError(f"there is no ledger {path}: {_HOW}")
    try:  # readable by its owner alone, from the first moment on
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError as error:
        raise NoSpaceError(f"the ledger {path} cannot be written: {error.strerror}") from None


def _sqlite_engine(url: URL) -> sa.Engine:
    engine = sa.create_engine(url, connect_args={"timeout": 60, "check_same_thread": False}, pool_size=16)

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # transactions begin where `begin` says
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # an answer is given only when its charge is on disk

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get(WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
