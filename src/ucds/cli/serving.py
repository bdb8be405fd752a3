"""The source owner's service: who may ask, how much, and what was answered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ucds.cli.app import app
from ucds.cli.options import AcceleratorOption, JsonOption, QuietOption, RunArgument, say
from ucds.errors import InputError

if TYPE_CHECKING:
    from ucds.serving.ledger import KeyRecord, Ledger

PANEL = "Source owner"

keys = typer.Typer(help="Who may ask the label service, and how much.", no_args_is_help=True)
ledger = typer.Typer(help="What the label service answered, and to whom.", no_args_is_help=True)
app.add_typer(keys, name="keys", rich_help_panel=PANEL)
app.add_typer(ledger, name="ledger", rich_help_panel=PANEL)

LedgerOption = Annotated[
    str,
    typer.Option(
        "--ledger",
        envvar="UCDS_LEDGER",
        help="Run folder that is served, a SQLite file, or postgresql://USER@HOST/NAME.",
    ),
]
NameArgument = Annotated[str, typer.Argument(help="Whose key it is.")]


@app.command("serve", rich_help_panel=PANEL)
def serve_command(
    run: RunArgument,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate chain, PEM.", show_default="no TLS")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key, PEM.", show_default=False)] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            envvar="UCDS_LEDGER",
            help="SQLite file, or postgresql://USER@HOST/NAME.",
            show_default="RUN/ledger.sqlite",
        ),
    ] = None,
    max_batch: Annotated[int, typer.Option(min=1, help="Samples in one request.")] = 256,
    max_image_mb: Annotated[float, typer.Option(min=0.001, help="Of one image file.")] = 16,
    max_megapixels: Annotated[float, typer.Option(min=0.001, help="Of one image.")] = 33.5,
    max_request_mb: Annotated[float, typer.Option(min=0.001, help="Of one request.")] = 64,
    max_queue: Annotated[int, typer.Option(min=1, help="Samples accepted and not yet answered.")] = 1024,
    max_connections: Annotated[int, typer.Option(min=1, help="Open connections.")] = 512,
    body_seconds: Annotated[float, typer.Option(min=0.1, help="For a client to send a request.")] = 60.0,
    model_batch: Annotated[
        int | None,
        typer.Option(min=1, help="Samples the model takes at a time.", show_default="16 on CPU, 64 on GPU"),
    ] = None,
    metrics_from: Annotated[
        list[str] | None,
        typer.Option(help="Network that may read /metrics; may be repeated.", show_default="loopback"),
    ] = None,
    accelerator: AcceleratorOption = "auto",
    quiet: QuietOption = False,
) -> None:
    """Answer over HTTP with one integer a sample, to those who hold a key."""
    from ucds.serving.metrics import LOOPBACK
    from ucds.serving.serve import serve
    from ucds.serving.server import Address
    from ucds.serving.settings import MIB, Limits

    limits = Limits(
        max_batch=max_batch,
        max_image_bytes=int(max_image_mb * MIB),
        max_image_pixels=int(max_megapixels * 1e6),
        max_request_bytes=int(max_request_mb * MIB),
        max_body_bytes=max(Limits.max_body_bytes, int(max_request_mb * MIB)),
        max_queue=max(max_queue, max_batch),
        max_connections=max_connections,
        body_seconds=body_seconds,
    )
    serve(
        run,
        Address(host, port, tls_cert, tls_key),
        ledger=ledger,
        limits=limits,
        model_batch=model_batch,
        metrics_from=metrics_from or LOOPBACK,
        accelerator=accelerator,
        notice=(lambda sentence: None) if quiet else say,
        ready=lambda url: print(f"listening on {url}", flush=True),
    )


@keys.command("add")
def add_key(
    name: NameArgument,
    budget: Annotated[int, typer.Option(min=0, help="Distinct samples that may be labelled.")],
    ledger: LedgerOption,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Samples a second.", show_default="no bound")
    ] = None,
) -> None:
    """Make a key. It is printed once; the ledger keeps its hash alone."""
    with _opened(ledger, create=True) as book:
        print(book.add_key(name, budget, rate), flush=True)
    say(f"this is the key of {name!r}; it cannot be shown again")


@keys.command("list")
def list_keys(ledger: LedgerOption, as_json: JsonOption = False) -> None:
    """List the keys, revoked ones too."""
    show_ledger(ledger, as_json)


@keys.command("revoke")
def revoke_key(name: NameArgument, ledger: LedgerOption) -> None:
    """Refuse a key from the next request on."""
    with _opened(ledger) as book:
        book.revoke_key(name)
    say(f"key {name!r} is revoked")


@ledger.command("show")
def show_ledger(ledger: LedgerOption, as_json: JsonOption = False) -> None:
    """Show budget, use and last use of each key."""
    import json

    with _opened(ledger) as book:
        records = book.list_keys()
    if as_json:
        print(json.dumps([_as_json(record) for record in records], indent=2))
        return
    print(f"{'key':<24}{'budget':>12}{'used':>12}{'left':>12}{'rate':>8}  {'last use':<26}state")
    for record in records:
        rate = "-" if record.rate is None else f"{record.rate:g}"
        state = "active" if record.revoked is None else f"revoked {record.revoked}"
        print(
            f"{record.name:<24}{record.limit:>12,}{record.used:>12,}{record.budget.remaining:>12,}{rate:>8}"
            f"  {(record.last_used or '-')[:19]:<26}{state}"
        )


@ledger.command("verify")
def verify_ledger(
    ledger: LedgerOption,
    anchor: Annotated[
        str | None,
        typer.Option(
            help="A head printed earlier, NUMBER:HASH: the log must contain it.", show_default=False
        ),
    ] = None,
) -> None:
    """Check the audit log and all that was charged; exit status 2 if something was changed.

    Prints the log's head. Kept elsewhere, it shows later that nothing before it was cut off or
    written anew.
    """
    from ucds.serving.audit import Head

    expected = Head.parse(anchor) if anchor else None
    with _opened(ledger) as book:
        verdict = book.verify(expected)
    for fault in verdict.faults:
        say(f"fault: {fault}")
    if verdict.faults:
        raise typer.Exit(2)
    say(f"{verdict.head.entries:,} entries, all as they were written")
    print(verdict.head)


@contextmanager
def _opened(place: str, *, create: bool = False) -> Iterator[Ledger]:
    from ucds.serving.ledger import Ledger, LedgerAway

    book = Ledger(place, create=create)
    try:
        yield book
    except LedgerAway as error:
        raise InputError(f"the ledger cannot be used: {error}") from None
    finally:
        book.close()


def _as_json(record: KeyRecord) -> dict[str, object]:
    return {
        "name": record.name,
        "budget": record.limit,
        "used": record.used,
        "remaining": record.budget.remaining,
        "rate": record.rate,
        "created": record.created,
        "last_used": record.last_used,
        "revoked": record.revoked,
    }
