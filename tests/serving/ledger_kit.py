"""A ledger with what is kept of it elsewhere, ways to change its tables behind its back, and PostgreSQL."""

import json
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from serving_kit import free_port
from sqlalchemy import Connection, create_engine

from ucds.labels.journal import Journal, KeptReceipt
from ucds.labels.wire import ServiceInfo, answers_digest
from ucds.serving import log
from ucds.serving.checkpoints import Snapshots
from ucds.serving.database import ledger_url
from ucds.serving.keys import Key
from ucds.serving.ledger import Answers, Ledger
from ucds.serving.log import Entry
from ucds.serving.signing import Signer
from ucds.serving.verify import Verdict, verify

MODELS = ("a" * 32, "b" * 32)


def content(number: int) -> bytes:
    return number.to_bytes(16, "big")


def make_key(ledger: Ledger, budget: int = 10, name: str = "anna", **terms: Any) -> Key:
    return ledger.authenticate(ledger.add_key(name, budget, **terms))


def charge(ledger: Ledger, key: Key, *numbers: int, label: int = 1, model: str = MODELS[0]) -> Answers:
    contents = [content(number) for number in numbers]
    return ledger.charge(key, model, contents, dict.fromkeys(contents, label), request="r")


def used(ledger: Ledger, name: str = "anna") -> int:
    return next(key.used for key in ledger.list_keys() if key.name == name)


@contextmanager
def behind(place: str | Path) -> Iterator[Connection]:
    """The database without the ledger's care."""
    engine = create_engine(ledger_url(place))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def forge(connection: Connection, kind: str, body: dict[str, Any] | str, time: str | None = None) -> Entry:
    """Append an entry that is hashed as it should be, whatever it says."""
    last = list(log.read_entries(connection))[-1]
    words = body if isinstance(body, str) else json.dumps(body)
    entry = Entry.after(last.hash, last.number + 1, time or last.time, "mallory", kind, words)
    connection.execute(log.log.insert().values(vars(entry)))
    return entry


def forge_charge(
    connection: Connection, key: int, numbers: list[int], time: str | None = None, **other: Any
) -> Entry:
    """Charge a key as the service would, without its rules: entry and answers agree."""
    labels = {content(number): 1 for number in numbers}
    digest = answers_digest(labels.items())
    body = {"key": key, "model": MODELS[0], "charged": len(labels), "digest": digest, "request": "r"}
    entry = forge(connection, "Answered", body | other, time)
    shared = {"key": key, "model": MODELS[0], "entry": entry.number, "label": 1}
    connection.execute(log.answers.insert(), [{"content": content} | shared for content in labels])
    return entry


class Provider:
    """A ledger with its signer, and what is kept elsewhere: checkpoints, and the receipts of a client."""

    def __init__(self, ledger: Ledger, signer: Signer, folder: Path) -> None:
        self.ledger, self.signer, self.folder = ledger, signer, folder
        self.marks, self.receipts = folder / "marks", folder / "receipts"

    def snapshots(self, **options: Any) -> Snapshots:
        return Snapshots(self.ledger, self.signer, self.marks, **options)

    def keep(self, key: Key, *numbers: int) -> None:
        """Ask, and keep the receipt as a client does."""
        receipt = charge(self.ledger, key, *numbers).receipt(self.signer, MODELS[0])
        self.write(KeptReceipt(receipt=receipt, labels={content(number).hex(): 1 for number in numbers}))

    def write(self, kept: KeptReceipt) -> None:
        """Add a receipt to those of the client."""
        # No more than a journal looks at.
        info = ServiceInfo.model_construct(
            provider="fake", model_digest=MODELS[0], n_clusters=12, signer=self.signer.public
        )
        with Journal(self.receipts, url="http://127.0.0.1", info=info) as journal:
            journal.add(kept)

    def restore(self, number: int) -> None:
        """Set the ledger back to an entry, as from an old backup, and open it again."""
        self.ledger.close()
        with behind(self.folder) as connection:
            set_back(connection, number)
        self.ledger = Ledger(self.folder)
        self.ledger.trust(self.signer.public)

    def verify(self) -> Verdict:
        """Check the ledger by all that is kept elsewhere."""
        marks, receipts = ([path] if path.exists() else [] for path in (self.marks, self.receipts))
        return verify(self.folder, signers=[self.signer.public], checkpoints=marks, receipts=receipts)


def set_back(connection: Connection, number: int) -> None:
    """Remove all entries after one, and their answers."""
    connection.execute(log.log.delete().where(log.log.c.number > number))
    connection.execute(log.answers.delete().where(log.answers.c.entry > number))


@contextmanager
def postgresql() -> Iterator[str]:
    """Start a private server with an empty database: its address; all of it is removed afterwards."""
    pytest.importorskip("psycopg", reason="PostgreSQL's driver is not installed")
    places = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)
    found = shutil.which("initdb", path=os.pathsep.join([*places, os.environ["PATH"]]))
    if found is None:
        pytest.skip("no PostgreSQL server is installed here")
    programs, folder = Path(found).resolve().parent, Path(tempfile.mkdtemp(prefix="pg"))
    who: dict[str, Any] = {}
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root: then somebody else must
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        who = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    def run(program: str, *options: str | Path) -> None:
        command = [programs / program, "-D", folder / "data", *options]
        subprocess.run(command, stdout=subprocess.DEVNULL, cwd="/", timeout=60, check=True, **who)

    try:
        run("initdb", "-U", "ucds", "--auth=trust", "--no-sync")
        port = free_port()
        options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder}"
        run("pg_ctl", "-w", "-l", folder / "log", "-o", options, "start")
        try:
            yield f"postgresql://ucds@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
