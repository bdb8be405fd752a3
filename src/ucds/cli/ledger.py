"""The provider's ledger: who may ask, how much, and what was answered."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ucds.cli import options
from ucds.cli.app import app
from ucds.errors import InputError
from ucds.training.progress import end_bar

if TYPE_CHECKING:
    from ucds.serving.keys import KeyRecord
    from ucds.serving.ledger import Ledger

keys = typer.Typer(help="Create, change, revoke and list the keys of clients.", no_args_is_help=True)
ledger = typer.Typer(help="Check, sign and move the record of keys and answers.", no_args_is_help=True)
app.add_typer(keys, name="keys", rich_help_panel=options.PROVIDER)
app.add_typer(ledger, name="ledger", rich_help_panel=options.PROVIDER)

LedgerOption = Annotated[
    str,
    typer.Option(
        "--ledger",
        envvar="UCDS_LEDGER",
        help="Run folder that is served, a SQLite file, or postgresql://USER@HOST/NAME.",
    ),
]
NameArgument = Annotated[str, typer.Argument(help="Name of the key's owner.")]
EndHelp = "End of the key: 90d, 12h, 30m, a date or time, or never."


@keys.command("add")
def add_key(
    name: NameArgument,
    budget: Annotated[int, typer.Option(min=0, help="Distinct samples that may be labelled.")],
    ledger: LedgerOption,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Samples a second.", show_default="no bound")
    ] = None,
    expires: Annotated[str, typer.Option(help=EndHelp)] = "never",
) -> None:
    """Make a key. It is printed once; the ledger keeps only its hash."""
    options.start()
    from ucds.serving.keys import check_terms, parse_end

    end = parse_end(expires)
    check_terms(name, budget, rate)  # before a ledger is made for a key that cannot be
    with _open_ledger(ledger, create=True) as book:
        print(book.add_key(name, budget, rate, expires=end), flush=True)
    options.say(f"this is the key of {name!r}; it cannot be shown again")


@keys.command("rotate")
def rotate_key(
    name: NameArgument,
    ledger: LedgerOption,
    grace_hours: Annotated[
        float, typer.Option(min=0, max=8760, help="Hours for which the old secret stays valid.")
    ] = 24,
) -> None:
    """Give a key a new secret, with the same budget. The old one stays valid for some time."""
    with _open_ledger(ledger) as book:
        print(book.rotate_key(name, timedelta(hours=grace_hours)), flush=True)
    options.say(f"this is the new key of {name!r}; the old one ends in {grace_hours:g} hours")


@keys.command("set-budget")
def set_budget(
    name: NameArgument,
    budget: Annotated[int, typer.Argument(min=0, help="Distinct samples that may be labelled in all.")],
    ledger: LedgerOption,
) -> None:
    """Change the budget of a key; what it used stays used."""
    with _open_ledger(ledger) as book:
        book.change_key(name, budget=budget)
    options.say(f"the budget of {name!r} is {budget:,}")


@keys.command("set-rate")
def set_rate(
    name: NameArgument,
    rate: Annotated[str, typer.Argument(help="Samples a second, or none for no bound.")],
    ledger: LedgerOption,
) -> None:
    """Change the rate of a key."""
    try:
        value = None if rate == "none" else float(rate)
    except ValueError:
        raise InputError(f"{rate!r} is no rate: write samples a second, or none") from None
    with _open_ledger(ledger) as book:
        book.change_key(name, rate=value)
    options.say(f"the rate of {name!r} is {'without bound' if value is None else f'{value:g} a second'}")


@keys.command("expire")
def expire_key(
    name: NameArgument, end: Annotated[str, typer.Argument(help=EndHelp)], ledger: LedgerOption
) -> None:
    """Change the end of a key. Unlike a revoked key, one that has ended can be given more time."""
    options.start()
    from ucds.serving.keys import as_text, parse_end

    time = parse_end(end)
    with _open_ledger(ledger) as book:
        book.change_key(name, expires=time)
    options.say(f"key {name!r} ends {'never' if time is None else as_text(time)}")


@keys.command("revoke")
def revoke_key(name: NameArgument, ledger: LedgerOption) -> None:
    """Refuse a key from the next request on. Its name may be used again."""
    with _open_ledger(ledger) as book:
        book.revoke_key(name)
    options.say(f"key {name!r} is revoked")


@keys.command("list")
def list_keys(
    ledger: LedgerOption,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """List the keys, revoked ones too, with the budget, use and last use of each.

    Of a key's secrets the last four characters are shown.
    """
    with _open_ledger(ledger) as book:
        records = book.list_keys()
    if as_json:
        shown = ("name", "used", "rate", "created", "last_used", "revoked", "expires", "tails")
        entries = [
            {name: getattr(record, name) for name in shown}
            | {"budget": record.limit, "remaining": record.budget.remaining}
            for record in records
        ]
        print(json.dumps(entries, indent=2))
        return
    rows = [["key", "secrets", "budget", "used", "left", "rate", "last use", "state"]]
    for record in records:
        counts = (f"{number:,}" for number in (record.limit, record.used, record.budget.remaining))
        rate = "-" if record.rate is None else f"{record.rate:g}"
        last_use = (record.last_used or "-")[:16]
        rows.append([record.name, " ".join(record.tails) or "-", *counts, rate, last_use, _state(record)])
    for row in rows:
        print(_lay_out(row, rows))


@ledger.command("verify")
def verify_ledger(
    ledger: LedgerOption,
    anchor: Annotated[
        str | None,
        typer.Option(help="Head printed earlier, NUMBER:HASH: the log must contain it.", show_default=False),
    ] = None,
    receipts: Annotated[
        list[Path] | None,
        typer.Option(help="Receipts that a client kept; may be repeated.", show_default=False),
    ] = None,
    checkpoints: Annotated[
        list[Path] | None,
        typer.Option(help="Checkpoints, a file or a folder; may be repeated.", show_default=False),
    ] = None,
) -> None:
    """Check the audit log and all tables against it; exit status 2 if something was changed.

    Prints the log's head. Receipts, checkpoints and an earlier head also show
    whether the whole ledger was wound back or written anew.
    """
    options.start()
    from ucds.serving.audit import Head
    from ucds.serving.evidence import claims_of_checkpoints, claims_of_receipts

    expected = Head.parse(anchor) if anchor else None
    found = [claims_of_receipts(path) for path in receipts or ()]
    found += [claims_of_checkpoints(path) for path in checkpoints or ()]
    claims = [claim for some, _ in found for claim in some]
    with _open_ledger(ledger) as book:
        verdict = book.verify(expected, claims)
    faults = [fault for _, some in found for fault in some] + list(verdict.faults)
    for fault in faults:
        options.say(f"fault: {fault}")
    if faults:
        raise typer.Exit(2)
    agree = f"; {len(claims):,} receipts and checkpoints agree" if found else ""
    options.say(f"{verdict.head.entries:,} entries, all as they were written{agree}")
    print(verdict.head)


@ledger.command("sign-with")
def sign_with(
    signing_key: Annotated[Path, typer.Argument(help="PEM file of an Ed25519 key; made if it is not there.")],
    ledger: LedgerOption,
) -> None:
    """Change the key that signs receipts and checkpoints, when the old one is lost. Prints its public key."""
    from ucds.serving.signing import Signer

    with _open_ledger(ledger) as book:
        public = Signer.open(signing_key).public
        book.set_signer(public, replace=True)
    options.say(f"start the service again with --signing-key {signing_key}")
    print(public)


@ledger.command("migrate")
def migrate_ledger(ledger: LedgerOption) -> None:
    """Bring a ledger of an older version of ucds to the present format, if it agrees with its own log."""
    options.start()
    from ucds.serving.ledger import migrate

    migrate(ledger)
    end_bar()
    options.say("the ledger has the present format")


def _lay_out(row: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Put the cells of a row under each other with those of all rows; counts and rates end at one column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = [
        f"{cell:{'>' if 2 <= number <= 5 else '<'}{width}}"
        for number, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def _state(record: KeyRecord) -> str:
    if record.revoked is not None:
        return f"revoked {record.revoked[:19]}"
    if record.expires is None:
        return "active"
    return f"{'ended' if record.has_expired else 'active until'} {record.expires[:19]}"


@contextmanager
def _open_ledger(place: str, *, create: bool = False) -> Iterator[Ledger]:
    options.start()
    from ucds.serving.ledger import Ledger

    book = Ledger(place, create=create)
    end_bar()
    try:
        yield book
    finally:
        book.close()
