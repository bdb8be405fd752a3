"""The provider's ledger: who may ask, how much, and what was answered."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from ucds.cli import options
from ucds.cli.options import app
from ucds.errors import InputError
from ucds.training.progress import end_bar

if TYPE_CHECKING:
    from ucds.serving.keys import Key
    from ucds.serving.ledger import Ledger

keys = typer.Typer(help="Create, change, revoke and list the keys of clients.", no_args_is_help=True)
ledger = typer.Typer(help="Check and keep the record of keys and answers.", no_args_is_help=True)
app.add_typer(keys, name="keys", rich_help_panel=options.PROVIDER)
app.add_typer(ledger, name="ledger", rich_help_panel=options.PROVIDER)

LedgerOption = Annotated[
    str,
    Option(
        "--ledger",
        envvar="UCDS_LEDGER",
        help="Run folder that is served, a SQLite file, or postgresql://USER@HOST/NAME.",
    ),
]
NameArgument = Annotated[str, Argument(help="Name of the key's owner.")]
FromOption = Annotated[
    list[str] | None,
    Option("--from", help="Network that may use the key, or any; may be repeated.", show_default="any"),
]
SignerOption = Annotated[
    list[str] | None,
    Option("--signer", help="Public key of the provider; may be repeated.", show_default="none"),
]
_END = "Expiry of the key: 90d, 12h, 30m, a date or time, or never."
_RATE = "Samples per second, or none."


@options.command("add", of=keys)
def add_key(
    name: NameArgument,
    budget: Annotated[int, Option(min=0, help="Distinct samples that may be labelled.")],
    ledger: LedgerOption,
    output: options.Output,
    rate: Annotated[str, Option(help=_RATE)] = "none",
    expires: Annotated[str, Option(help=_END)] = "never",
    networks: FromOption = None,
) -> None:
    """Make a key. It is printed once; the ledger keeps only its hash."""
    output.start()
    from ucds.serving.keys import check_name, make_terms

    terms: dict[str, Any] = {"rate": rate, "expires": expires, "networks": networks or []}
    check_name(name)
    make_terms(budget=budget, **terms)  # before a ledger is made for a key that cannot be
    with _open_ledger(ledger, output, create=True) as book:
        print(book.add_key(name, budget, **terms), flush=True)
    output.tell(f"this is the key of {name!r}; it cannot be shown again")


@options.command("set", of=keys)
def set_key(
    name: NameArgument,
    ledger: LedgerOption,
    output: options.Output,
    budget: Annotated[int | None, Option(min=0, help="Distinct samples that may be labelled in all.")] = None,
    rate: Annotated[str | None, Option(help=_RATE, show_default="unchanged")] = None,
    expires: Annotated[str | None, Option(help=_END, show_default="unchanged")] = None,
    networks: FromOption = None,
    new_secret: Annotated[
        bool, Option("--new-secret", help="Print a new secret of the key; the old one ends in a day.")
    ] = False,
) -> None:
    """Change a key from the next request on; what it has used still counts."""
    given = {"budget": budget, "rate": rate, "expires": expires, "networks": networks}
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes and not new_secret:
        raise InputError("name what to change: --budget, --rate, --expires, --from or --new-secret")
    with _open_ledger(ledger, output) as book:
        if changes:
            terms = book.set_key(name, **changes)
            rate_shown = "none" if terms.rate is None else f"{terms.rate:g}"
            output.tell(
                f"key {name!r}: budget {terms.budget:,}, rate {rate_shown}, ends {terms.expires or 'never'}, "
                f"from {' '.join(map(str, terms.networks)) or 'any'}"
            )
        if new_secret:
            print(book.renew_key(name), flush=True)


@options.command("revoke", of=keys)
def revoke_key(name: NameArgument, ledger: LedgerOption, output: options.Output) -> None:
    """Refuse a key from the next request on. Its name may be used again."""
    with _open_ledger(ledger, output) as book:
        book.revoke_key(name)
    output.tell(f"key {name!r} is revoked")


@options.command("list", of=keys)
def list_keys(ledger: LedgerOption, output: options.Output) -> None:
    """List the keys, revoked ones too, with the budget, use and last use of each.

    The list shows the last four characters of a key's secrets.
    """
    with _open_ledger(ledger, output) as book:
        found = book.list_keys()
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    tails = {
        key.number: [one.tail for one in key.secrets if one.until is None or one.until > now] for key in found
    }
    if output.as_json:
        shown = {"name", "used", "created", "last_used", "revoked", "forgotten"}
        entries = [
            key.model_dump(include=shown)
            | key.terms.model_dump(mode="json")
            | {"remaining": key.balance.remaining, "tails": tails[key.number]}
            for key in found
        ]
        print(json.dumps(entries, indent=2))
        return
    rows = [["key", "secrets", "budget", "used", "left", "rate", "last use", "state"]]
    for key in found:
        counts = [f"{number:,}" for number in (key.terms.budget, key.used, key.balance.remaining)]
        rate = "-" if key.terms.rate is None else f"{key.terms.rate:g}"
        last_use = (key.last_used or "-")[:16]
        secrets = " ".join(tails[key.number]) or "-"
        rows.append([key.name, secrets, *counts, rate, last_use, _state(key, now)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = [f"{{:{side}{width}}}" for side, width in zip("<<>>>><<", widths, strict=True)]
    for row in rows:
        print("  ".join(cells).format(*row).rstrip())


@options.command("verify", of=ledger)
def verify_ledger(
    ledger: LedgerOption,
    output: options.Output,
    signers: SignerOption = None,
    receipts: Annotated[
        list[Path] | None, Option(help="Receipts that a client kept; may be repeated.", show_default="none")
    ] = None,
    checkpoints: Annotated[
        list[Path] | None,
        Option(help="File of checkpoints that the service wrote; may be repeated.", show_default="none"),
    ] = None,
    archives: Annotated[
        list[Path] | None, Option("--archive", help="Archived entries, oldest first; may be repeated.")
    ] = None,
) -> None:
    """Check all entries and answers, and print the head of the log; exit status 2 if something is wrong.

    Receipts and checkpoints also show whether the whole ledger was set back or rewritten. To check these, or
    archived entries, give --signer.
    """
    output.start()
    from ucds.serving.verify import verify

    verdict = verify(
        ledger,
        signers=signers or (),
        checkpoints=checkpoints or (),
        receipts=receipts or (),
        archives=archives or (),
    )
    end_bar()
    for fault in verdict.faults:
        options.say(f"fault: {fault}")
    if verdict.faults:
        raise typer.Exit(2)
    output.tell(f"entries {verdict.first:,} to {verdict.number:,} follow all rules")
    if verdict.first > 1:
        output.tell(f"entries before {verdict.first:,} are archived and were not read; --archive reads them")
    if receipts or checkpoints:
        lost = f"; {verdict.lost:,} name entries whose loss was accepted" if verdict.lost else ""
        output.tell(f"{verdict.agreed:,} receipts and checkpoints agree{lost}")
    if verdict.unnamed:
        options.say(f"no receipt or checkpoint covers the last {verdict.unnamed:,} entries")
    print(f"{verdict.number}:{verdict.hash}")


@options.command("accept-loss", of=ledger)
def accept_loss(
    ledger: LedgerOption,
    output: options.Output,
    checkpoints: Annotated[Path, Option(help="File of checkpoints that name the lost entries.")],
    signers: SignerOption = None,
) -> None:
    """Accept a restored backup, and write an entry about the loss.

    Keys are no longer charged for labels that were given after the backup.
    """
    with _open_ledger(ledger, output, signers=signers) as book:
        from ucds.serving.checkpoints import accept_loss

        lost = accept_loss(book, checkpoints)
    output.tell(f"accepted: {lost:,} checkpoints name lost entries; start the service again")


@options.command("accept-clock", of=ledger)
def accept_clock(ledger: LedgerOption, output: options.Output) -> None:
    """Accept the present clock although the last entry's date is far from it, and write an entry about it."""
    with _open_ledger(ledger, output) as book:
        time = book.accept_clock()
    output.tell(f"accepted: the ledger goes on at {time}")


@options.command("archive", of=ledger)
def archive_entries(
    ledger: LedgerOption,
    output: options.Output,
    out: Annotated[Path, Option(help="File to write; `ucds ledger verify --archive` reads it.")],
    signers: SignerOption = None,
) -> None:
    """Move all entries before the last snapshot into a file. Answers stay; repeated questions are free."""
    with _open_ledger(ledger, output, signers=signers) as book:
        from ucds.serving.verify import archive

        count = archive(book, out)
    output.tell(f"{count:,} entries are in {out}")


@options.command("forget", of=ledger)
def forget_answers(name: NameArgument, ledger: LedgerOption, output: options.Output) -> None:
    """Delete the answers of a revoked key. The log still says that they were given and deleted."""
    with _open_ledger(ledger, output) as book:
        count = book.forget_key(name)
    output.tell(f"{count:,} answers of {name!r} are deleted")


def _state(key: Key, now: str) -> str:
    if key.revoked is not None:
        return f"{'forgotten, ' if key.forgotten else ''}revoked {key.revoked[:19]}"
    if key.terms.expires is None:
        return "active"
    return f"{'ended' if key.end(now) else 'active until'} {key.terms.expires[:19]}"


def _open_ledger(
    place: str, output: options.Output, *, create: bool = False, signers: list[str] | None = None
) -> closing[Ledger]:
    output.start()
    from ucds.serving.ledger import Ledger

    book = Ledger(place, create=create)
    if signers:
        book.trust(*signers)
    end_bar()
    return closing(book)
