"""The provider's service: who may ask, how much, and what was answered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ucds.choices import Accelerator
from ucds.cli import options
from ucds.cli.app import app

if TYPE_CHECKING:
    from ucds.serving.ledger import Ledger

keys = typer.Typer(help="Who may ask the label service, and how much.", no_args_is_help=True)
ledger = typer.Typer(help="What the label service answered, and to whom.", no_args_is_help=True)
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


@app.command("serve", rich_help_panel=options.PROVIDER)
def serve_command(
    run: options.RunArgument,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate chain, PEM.", show_default="no TLS")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="Private key of the certificate, PEM.", show_default=False)
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            envvar="UCDS_LEDGER",
            help="SQLite file, or postgresql://USER@HOST/NAME.",
            show_default="RUN/ledger.sqlite",
        ),
    ] = None,
    signing_key: Annotated[
        Path | None,
        typer.Option(
            envvar="UCDS_SIGNING_KEY",
            help="Key that signs receipts, PEM; made if it does not exist.",
            show_default="RUN/signing-key.pem",
        ),
    ] = None,
    max_batch: Annotated[int, typer.Option(min=1, help="Most samples in one request.")] = 256,
    max_image_mb: Annotated[float, typer.Option(min=0.001, help="Largest image file.")] = 16,
    max_megapixels: Annotated[float, typer.Option(min=0.001, help="Largest image.")] = 33.5,
    max_request_mb: Annotated[float, typer.Option(min=0.001, help="Largest request.")] = 64,
    max_queue: Annotated[int, typer.Option(min=1, help="Most samples accepted and not yet answered.")] = 1024,
    max_connections: Annotated[int, typer.Option(min=2, help="Most open connections.")] = 512,
    body_seconds: Annotated[float, typer.Option(min=0.1, help="Time for a client to send a request.")] = 60.0,
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--also-format",
            help="PPM or JPEG2000: read as well as JPEG, PNG, WebP, BMP, GIF, TIFF; may be repeated.",
            show_default=False,
        ),
    ] = None,
    decode_seconds: Annotated[float, typer.Option(min=0.1, help="Processor time to decode one image.")] = 5.0,
    decode_memory_mb: Annotated[
        float, typer.Option(min=16, help="Memory of each process that decodes images.")
    ] = 512,
    decode_workers: Annotated[
        int, typer.Option(min=0, help="Processes that decode images; 0: one more than processors.")
    ] = 0,
    stop_seconds: Annotated[
        float, typer.Option(min=1, help="Time for accepted requests when the service is asked to stop.")
    ] = 10.0,
    waste_seconds: Annotated[
        float, typer.Option(min=0.1, help="Seconds a minute that a client's unusable images may cost.")
    ] = 10.0,
    client_share: Annotated[
        float, typer.Option(min=0.01, max=1, help="Share of the service that one client may hold.")
    ] = 0.5,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Name by which the service may be asked; may be repeated.",
            show_default="on loopback its names, elsewhere any",
        ),
    ] = None,
    access_log: Annotated[
        str | None,
        typer.Option(help="File for one line of JSON a request; - is stderr.", show_default="none"),
    ] = None,
    model_batch: Annotated[
        int | None,
        typer.Option(min=1, help="Samples the model takes at a time.", show_default="16 on CPU, 64 on GPU"),
    ] = None,
    metrics_from: Annotated[
        list[str] | None,
        typer.Option(help="Network that may read /metrics; may be repeated.", show_default="loopback"),
    ] = None,
    accelerator: Annotated[Accelerator, typer.Option(help="Device to compute on.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but warnings and errors.")] = False,
) -> None:
    """Answer over HTTP with one integer a sample, to those who hold a key."""
    from ucds.data.decode import COMMON_FORMATS
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
        max_requests=min(Limits.max_requests, max_connections - 1),
        body_seconds=body_seconds,
        formats=(*COMMON_FORMATS, *(name.upper() for name in formats or ())),
        decode_seconds=decode_seconds,
        decode_memory_bytes=int(decode_memory_mb * MIB),
        decode_workers=decode_workers,
        waste_seconds=waste_seconds,
        shutdown_seconds=stop_seconds,
        client_share=client_share,
    )
    serve(
        run,
        Address(host, port, tls_cert, tls_key),
        ledger=ledger,
        signing_key=signing_key,
        limits=limits,
        model_batch=model_batch,
        metrics_from=metrics_from or LOOPBACK,
        hosts=allow_host or (),
        access_log=access_log,
        accelerator=accelerator,
        notice=options.say_warning if quiet else options.say,
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
    """Make a key. It is printed once; the ledger keeps only its hash."""
    with _open_ledger(ledger, create=True) as book:
        print(book.add_key(name, budget, rate), flush=True)
    options.say(f"this is the key of {name!r}; it cannot be shown again")


@keys.command("revoke")
def revoke_key(name: NameArgument, ledger: LedgerOption) -> None:
    """Refuse a key from the next request on."""
    with _open_ledger(ledger) as book:
        book.revoke_key(name)
    options.say(f"key {name!r} is revoked")


@keys.command("list")
@ledger.command("show")
def show_ledger(
    ledger: LedgerOption,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """List the keys, revoked ones too, with the budget, use and last use of each."""
    with _open_ledger(ledger) as book:
        records = book.list_keys()
    if as_json:
        shown = ("name", "used", "rate", "created", "last_used", "revoked")
        rows = [
            {name: getattr(record, name) for name in shown}
            | {"budget": record.limit, "remaining": record.budget.remaining}
            for record in records
        ]
        print(json.dumps(rows, indent=2))
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
        typer.Option(help="Head printed earlier, NUMBER:HASH: the log must contain it.", show_default=False),
    ] = None,
) -> None:
    """Check the audit log and all that was charged; exit status 2 if something was changed.

    Prints the log's head. A head that you keep elsewhere shows later whether
    anything before it was removed or changed.
    """
    from ucds.serving.audit import Head

    expected = Head.parse(anchor) if anchor else None
    with _open_ledger(ledger) as book:
        verdict = book.verify(expected)
    for fault in verdict.faults:
        options.say(f"fault: {fault}")
    if verdict.faults:
        raise typer.Exit(2)
    options.say(f"{verdict.head.entries:,} entries, all as they were written")
    print(verdict.head)


@contextmanager
def _open_ledger(place: str, *, create: bool = False) -> Iterator[Ledger]:
    from ucds.serving.ledger import Ledger

    book = Ledger(place, create=create)
    try:
        yield book
    finally:
        book.close()
