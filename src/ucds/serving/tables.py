"""The ledger's tables, and how to open the database they lie in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Float,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from ucds.errors import InputError

FORMAT = "ucds-ledger/1"
LEDGER_FILE = "ledger.sqlite"
WRITES = "ucds_writes"
"""Execution option of a connection whose transactions write."""

metadata = MetaData()

keys = Table(
    "keys",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(64), nullable=False, unique=True),
    Column("hash", String(64), nullable=False, unique=True),
    Column("budget", BigInteger, nullable=False),
    Column("rate", Float),
    Column("created", String(32), nullable=False),
    Column("revoked", String(32)),
    Column("used", BigInteger, nullable=False, default=0),
    Column("last_used", String(32)),
)

answers = Table(
    "answers",
    metadata,
    Column("key_id", Integer, ForeignKey("keys.id"), primary_key=True),
    Column("model", String(64), primary_key=True),
    Column("content", LargeBinary(16), primary_key=True),
    Column("label", Integer, nullable=False),
    Column("entry", BigInteger, nullable=False, index=True),
)

audit = Table(
    "audit",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("time", String(32), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("body", Text, nullable=False),
    Column("hash", String(64), nullable=False),
)

# One row. Whoever writes locks it first, so writers of all processes and replicas come one by one.
head = Table(
    "head",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("format", String(32), nullable=False),
    Column("entries", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
)


def parse_place(place: str | Path) -> URL:
    """The database that a person means: a run folder, a file, or an address.

    Raises:
        UserError: it can be none of these.
    """
    text = str(place)
    if "://" not in text:
        path = Path(place)
        if path.is_dir():
            path = path / LEDGER_FILE
        elif not path.parent.is_dir():
            raise InputError(
                f"there is no folder {path.parent} for a ledger: give a run folder or an address"
            )
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


def open_engine(url: URL, *, create: bool) -> Engine:
    """Connect to a database, and make the tables when it has none.

    Raises:
        UserError: it cannot be reached, or there is no ledger and none is to be made.
    """
    is_sqlite = url.get_backend_name() == "sqlite"
    if is_sqlite:
        _prepare_file(Path(str(url.database)), create)
    try:
        engine = _sqlite_engine(url) if is_sqlite else _postgresql_engine(url)
        with engine.connect().execution_options(**{WRITES: True}) as connection, connection.begin():
            if not is_sqlite:  # two replicas that start at once
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7512041)")
            _make_tables(connection)
    except (ModuleNotFoundError, NoSuchModuleError):
        raise InputError("PostgreSQL needs its driver: pip install 'ucds[postgres]'") from None
    except SQLAlchemyError as error:
        cause = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        shown = url.render_as_string(hide_password=True)
        raise InputError(f"the ledger {shown} cannot be opened: {cause}") from None
    return engine


def _prepare_file(path: Path, create: bool) -> None:
    if path.exists():
        return
    if not create:
        raise InputError(f"there is no ledger {path}: `ucds keys add` makes one")
    # For its owner alone, from the first moment on.
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))


def _make_tables(connection: Connection) -> None:
    metadata.create_all(connection)
    row = connection.execute(head.select()).one_or_none()
    if row is None:
        connection.execute(head.insert().values(id=1, format=FORMAT, entries=0, hash="0" * 64))
    elif row.format != FORMAT:
        raise InputError(f"the ledger has format {row.format!r}, but this version of ucds writes {FORMAT!r}")


def _sqlite_engine(url: URL) -> Engine:
    engine = create_engine(url, connect_args={"timeout": 60, "check_same_thread": False}, pool_size=16)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # transactions begin where we say, below
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")  # an answer is given only when its charge is on disk
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgresql_engine(url: URL) -> Engine:
    arguments = {"connect_timeout": 10, "options": "-c synchronous_commit=on -c lock_timeout=60000"}
    return create_engine(url, pool_pre_ping=True, pool_size=16, connect_args=arguments)
