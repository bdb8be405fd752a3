"""How long a ledger takes to open and to charge, by the number of its entries.

    python benchmarks/ledger.py

A log of each length is written by the ledger's own rules, with a signed snapshot every thousand entries and
some entries after the last one. Rewrites ledger.md.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from records import table
from sqlalchemy import Connection, insert

from ucds.labels.wire import answers_digest
from ucds.serving import log
from ucds.serving.checkpoints import EVERY
from ucds.serving.ledger import Ledger
from ucds.serving.log import Entry
from ucds.serving.signing import Signer
from ucds.serving.state import Answered, Body, Snapshot, State, Statement
from ucds.serving.verify import verify

KEYS, MODEL, CHARGES, OPENINGS = 10, "a" * 32, 200, 5


@dataclass(frozen=True)
class Row:
    """Times of one length.

    Attributes:
        entries: number of entries.
        opening: median seconds of an opening.
        charge: median seconds of a charge for one sample.
        check: seconds of `ucds ledger verify`; every entry and every answer.
    """

    entries: int
    opening: float
    charge: float
    check: float


def grow(connection: Connection, state: State, signer: Signer, entries: int) -> None:
    """Append charges of one sample, and snapshots, many rows in one statement."""
    rows: list[dict[str, object]] = []
    given: list[dict[str, object]] = []
    while state.number < entries:
        body: Body
        if state.unsigned >= EVERY:
            told = {"number": state.number, "hash": state.hash, "time": state.time, "state": state.digest()}
            body = Snapshot(statement=signer.sign(Statement, **told), state=state)
        else:
            content, key = state.number.to_bytes(16, "big"), state.number % KEYS + 1
            digest = answers_digest([(content, 1)])
            body = Answered(key=key, model=MODEL, charged=1, digest=digest, request="f" * 32)
            number = state.number + 1
            given.append({"key": key, "model": MODEL, "content": content, "label": 1, "entry": number})
        entry = Entry.after(
            state.hash,
            state.number + 1,
            state.time,
            "benchmark",
            type(body).__name__,
            body.model_dump_json(),
        )
        state = state.after(entry)
        rows.append(vars(entry))
        if len(rows) == 10_000 or state.number == entries:
            connection.execute(insert(log.log), rows)
            connection.execute(insert(log.answers), given)
            rows, given = [], []


def measure(folder: Path, entries: int) -> Row:
    """Make a ledger, and take the times."""
    signer, book = Signer.open(folder / "key.pem"), Ledger(folder, create=True)
    book.set_signer(signer.public)
    secrets = [book.add_key(f"client-{number}", 10**9) for number in range(KEYS)]
    with book.writing() as writing:
        grow(writing.connection, writing.state, signer, entries - EVERY // 2)
    book.close()
    openings = []
    for _ in range(OPENINGS):
        begun = time.perf_counter()
        book = Ledger(folder)
        openings.append(time.perf_counter() - begun)
        book.close()
    book, charges = Ledger(folder), []
    key = book.authenticate(secrets[0])
    for number in range(CHARGES):
        content = (2**100 + number).to_bytes(16, "big")
        begun = time.perf_counter()
        book.charge(key, MODEL, [content], {content: 1}, request="f" * 32)
        charges.append(time.perf_counter() - begun)
    book.close()
    begun = time.perf_counter()
    assert verify(folder).faults == ()
    checked = time.perf_counter() - begun
    return Row(entries, statistics.median(openings), statistics.median(charges), checked)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--entries", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    options = parser.parse_args()
    rows = []
    for entries in options.entries:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(Path(folder), entries))
        print(rows[-1], flush=True)
    cells = [
        [
            f"{row.entries:,}",
            f"{row.opening:.3f}",
            f"{1000 * row.charge:.2f}",
            f"{row.charge / rows[0].charge:.2f}",
            f"{row.check:.1f}",
        ]
        for row in rows
    ]
    head = ["entries", "opening, s", "charge, ms", "times the first", "check, s"]
    text = (
        "# The ledger by its length\n\n"
        "Made by `python benchmarks/ledger.py`; not edited by hand.\n\n"
        f"SQLite, {KEYS} keys, one sample a charge, a snapshot every {EVERY:,} entries; medians of "
        f"{OPENINGS} openings and {CHARGES} charges. Python {platform.python_version()}, "
        f"{platform.machine()}.\n\n"
    )
    options.out.write_text(text + table(head, cells) + "\n")


if __name__ == "__main__":
    main()
