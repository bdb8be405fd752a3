"""The ledger's tables, and the database that holds them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from ucds.errors import DamagedFileError, InputError, NoSpaceError, ServiceUnavailableError, UserError

FORMAT = "ucds-ledger/1"
GENESIS = "0" * 64  # hash before the first entry of the log
LEDGER_FILE = "ledger.sqlite"
WRITES = "ucds_writes"  # execution option of a connection whose transactions write
_POSTGRESQL: dict[str, Any] = {
    "connect_args": {"connect_timeout": 10, "options": "-c synchronous_commit=on -c lock_timeout=60000"},
    "pool_pre_ping": True,
    "pool_size": 16,
}

metadata = sa.MetaData()

keys = sa.Table(
    "keys",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(64), nullable=False, unique=True),
    sa.Column("hash", sa.String(64), nullable=False, unique=True),
    sa.Column("budget", sa.BigInteger, nullable=False),
    sa.Column("rate", sa.Float),
    sa.Column("created", sa.String(32), nullable=False),
    sa.Column("revoked", sa.String(32)),
    sa.Column("used", sa.BigInteger, nullable=False, default=0),
    sa.Column("last_used", sa.String(32)),
)

answers = sa.Table(
    "answers",
    metadata,
    sa.Column("key_id", sa.Integer, sa.ForeignKey("keys.id"), primary_key=True),
    sa.Column("model", sa.String(64), primary_key=True),
    sa.Column("content", sa.LargeBinary(16), primary_key=True),
    sa.Column("label", sa.Integer, nullable=False),
    sa.Column("entry", sa.BigInteger, nullable=False, index=True),
)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("time", sa.String(32), nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
)

# One row. Each writer locks it first, so the writers of all processes and replicas follow one another.
head = sa.Table(
    "head",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("format", sa.String(32), nullable=False),
    sa.Column("entries", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
)


def parse_place(place: str | Path) -> URL:
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


def open_engine(url: URL, *, create: bool) -> sa.Engine:
    """Connect to a database, and make the tables when it has none.

    Raises:
        UserError: the database cannot be used; `Ledger` names the kinds.
    """
    is_sqlite = url.get_backend_name() == "sqlite"
    if is_sqlite:
        _prepare_file(Path(str(url.database)), create)
    try:
        engine = _sqlite_engine(url) if is_sqlite else sa.create_engine(url, **_POSTGRESQL)
        with engine.execution_options(**{WRITES: True}).begin() as connection:
            if not is_sqlite:  # two replicas that start at once
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7512041)")
            _make_tables(connection)
    except (ModuleNotFoundError, NoSuchModuleError):
        raise InputError("PostgreSQL needs its driver: pip install 'ucds[postgres]'") from None
    except SQLAlchemyError as error:
        shown = url.render_as_string(hide_password=True)
        raise explain(error, f"the ledger {shown} cannot be opened") from None
    return engine


def explain(error: SQLAlchemyError, problem: str) -> UserError:
    """Return the error for users that a fault of the database means; the message begins with the problem."""
    original = getattr(error, "orig", None)
    message = f"{problem}: {str(original or error).strip().splitlines()[0]}"
    code = getattr(original, "sqlite_errorname", None) or getattr(original, "sqlstate", None) or ""
    if code.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return DamagedFileError(message)
    if code.startswith(("SQLITE_FULL", "SQLITE_READONLY", "53100")):  # 53100: disk_full of PostgreSQL
        return NoSpaceError(message)
    return InputError(message) if code.startswith("SQLITE_CANTOPEN") else ServiceUnavailableError(message)


def _prepare_file(path: Path, create: bool) -> None:
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} for a ledger: give a run folder or an address")
    if path.exists():
        return
    if not create:
        raise InputError(f"there is no ledger {path}: `ucds keys add` makes one")
    try:  # readable by its owner alone, from the first moment on
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError as error:
        raise NoSpaceError(f"the ledger {path} cannot be written: {error.strerror}") from None


def _make_tables(connection: sa.Connection) -> None:
    metadata.create_all(connection)
    row = connection.execute(head.select()).one_or_none()
    if row is None:
        connection.execute(head.insert().values(id=1, format=FORMAT, entries=0, hash=GENESIS))
    elif row.format != FORMAT:
        raise DamagedFileError(
            f"the ledger has format {row.format!r}, but this version of ucds writes {FORMAT!r}"
        )


def _sqlite_engine(url: URL) -> sa.Engine:
    engine = sa.create_engine(url, connect_args={"timeout": 60, "check_same_thread": False}, pool_size=16)

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # transactions begin where `begin` says
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # an answer is given only when its charge is on disk
        connection.execute("PRAGMA foreign_keys = ON")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get(WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
