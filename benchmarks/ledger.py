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
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path

from records import table
from sqlalchemy import insert

from ucds.labels.wire import answers_digest
from ucds.serving import log
from ucds.serving.checkpoints import EVERY
from ucds.serving.ledger import Ledger
from ucds.serving.signing import Signer
from ucds.serving.state import Answered
from ucds.serving.verify import verify

KEYS, MODEL, CHARGES, OPENINGS = 10, "a" * 32, 200, 5


def grow(book: Ledger, signer: Signer, entries: int) -> None:
    """Append charges of one sample, a transaction for those up to a snapshot."""
    while (first := book.state().number + 1) <= entries:
        with book.writing() as writing:
            given = []
            for number in range(first, min(first + EVERY, entries + 1)):
                content, key = number.to_bytes(16, "big"), number % KEYS + 1
                digest = answers_digest([(content, 1)])
                writing.append(Answered(key=key, model=MODEL, charged=1, digest=digest, request="f" * 32))
                given.append({"key": key, "model": MODEL, "content": content, "label": 1, "entry": number})
            writing.connection.execute(insert(log.answers), given)
        book.take_snapshot(signer, EVERY)


def median_time(calls: Iterable[Callable[[], object]]) -> float:
    """Median seconds of some calls."""
    seconds = []
    for call in calls:
        begun = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


def measure(folder: Path, entries: int) -> tuple[float, float, float]:
    """Make a ledger, and take the seconds of an opening, of a charge for one sample, and of a full check."""
    signer = Signer.open(folder / "key.pem")
    with closing(Ledger(folder, create=True)) as book:
        book.set_signer(signer.public)
        secrets = [book.add_key(f"client-{number}", 10**9) for number in range(KEYS)]
        grow(book, signer, entries - EVERY // 2)
    opening = median_time([lambda: Ledger(folder).close()] * OPENINGS)
    with closing(Ledger(folder)) as book:
        key = book.authenticate(secrets[0])
        contents = [(2**100 + number).to_bytes(16, "big") for number in range(CHARGES)]
        charge = median_time(
            partial(book.charge, key, MODEL, [content], {content: 1}, request="f" * 32)
            for content in contents
        )
    begun = time.perf_counter()
    assert verify(folder).faults == ()
    return opening, charge, time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--entries", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    options = parser.parse_args()
    rows, first = list[list[str]](), 0.0
    for entries in options.entries:
        with tempfile.TemporaryDirectory() as folder:
            opening, charge, check = measure(Path(folder), entries)
        first = first or charge
        times = [f"{opening:.3f}", f"{1000 * charge:.2f}", f"{charge / first:.2f}", f"{check:.1f}"]
        rows.append([f"{entries:,}", *times])
        print(rows[-1], flush=True)
    head = ["entries", "opening, s", "charge, ms", "times the first", "check, s"]
    text = (
        "# The ledger by its length\n\n"
        "Made by `python benchmarks/ledger.py`; not edited by hand.\n\n"
        f"SQLite, {KEYS} keys, one sample a charge, a snapshot every {EVERY:,} entries; medians of "
        f"{OPENINGS} openings and {CHARGES} charges. Python {platform.python_version()}, "
        f"{platform.machine()}.\n\n"
    )
    options.out.write_text(text + table(head, rows) + "\n")


if __name__ == "__main__":
    main()
