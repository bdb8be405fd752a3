"""How long a ledger takes to open and to charge, by the number of its entries.

    python benchmarks/ledger.py

A log of each length is written by the ledger's own rules, with a signed snapshot every thousand entries and
some entries after the last one. Rewrites ledger.md.
"""

from __future__ import annotations

import platform
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median

from records import Row, table, time_call
from sqlalchemy import insert

from ucds.labels.wire import answers_digest
from ucds.serving import log
from ucds.serving.checkpoints import EVERY
from ucds.serving.ledger import Ledger
from ucds.serving.signing import Signer
from ucds.serving.state import Answered
from ucds.serving.verify import verify

ENTRIES = (1000, 10_000, 100_000, 1_000_000)
KEYS, MODEL, CHARGES, OPENINGS = 10, "a" * 32, 200, 5
TEXT = f"""# The ledger by its length

Made by `python benchmarks/ledger.py`; not edited by hand.

SQLite, {KEYS} keys, one sample a charge, a snapshot every {EVERY:,} entries; medians of \
{OPENINGS} openings and {CHARGES} charges. Python {platform.python_version()}, {platform.machine()}.

"""


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


def measure(folder: Path, entries: int) -> tuple[float, float, float]:
    """Make a ledger, and take the seconds of an opening, of a charge for one sample, and of a full check."""
    signer = Signer.open(folder / "key.pem")
    with closing(Ledger(folder, create=True)) as book:
        book.trust(signer.public)
        secrets = [book.add_key(f"client-{number}", 10**9) for number in range(KEYS)]
        grow(book, signer, entries - EVERY // 2)
    opening = median(time_call(lambda: Ledger(folder).close()) for _ in range(OPENINGS))
    with closing(Ledger(folder)) as book:
        key = book.authenticate(secrets[0])
        contents = [(2**100 + number).to_bytes(16, "big") for number in range(CHARGES)]
        charge = median(
            time_call(partial(book.charge, key, MODEL, [content], {content: 1}, request="f" * 32))
            for content in contents
        )

    def check() -> None:
        assert verify(folder).faults == ()

    return opening, charge, time_call(check)


if __name__ == "__main__":
    rows, first = list[Row](), 0.0
    for entries in ENTRIES:
        with tempfile.TemporaryDirectory() as folder:
            opening, charge, check = measure(Path(folder), entries)
        first = first or charge
        row = {"entries": f"{entries:,}", "opening, s": f"{opening:.3f}"}
        row |= {"charge, ms": f"{1000 * charge:.2f}", "times the first": f"{charge / first:.2f}"}
        rows.append(row | {"check, s": f"{check:.1f}"})
        print(rows[-1], flush=True)
    Path(__file__).with_suffix(".md").write_text(f"{TEXT}{table(rows)}\n")
