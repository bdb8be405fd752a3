"""The provider's label service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ucds.choices import Accelerator
from ucds.cli import options
from ucds.cli.app import app


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
    health_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            envvar="UCDS_HEALTH_PORT",
            help="Port on the same host for /healthz and /readyz alone, without TLS.",
            show_default="none",
        ),
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
    checkpoints: Annotated[
        str | None,
        typer.Option(
            envvar="UCDS_CHECKPOINTS",
            help="Folder, file or https address for signed checkpoints of the ledger.",
            show_default="none",
        ),
    ] = None,
    checkpoint_every: Annotated[
        int, typer.Option(min=1, help="Entries of the ledger between two checkpoints.")
    ] = 1000,
    open_to_all: Annotated[
        bool, typer.Option("--open", help="Answer everybody, without keys, limits or a ledger.")
    ] = False,
    workers: Annotated[
        int, typer.Option(min=1, help="Processes that answer; each has the model and the limits for itself.")
    ] = 1,
    max_batch: Annotated[int, typer.Option(min=1, help="Most samples in one request.")] = 256,
    max_image_mb: Annotated[float, typer.Option(min=0.001, help="Largest image file.")] = 16,
    max_megapixels: Annotated[float, typer.Option(min=0.001, help="Largest image.")] = 33.5,
    max_request_mb: Annotated[float, typer.Option(min=0.001, help="Largest request.")] = 64,
    max_queue: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Most samples accepted and not yet answered.",
            show_default="1024, or one request if that is more",
        ),
    ] = None,
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
        float, typer.Option(min=0.1, help="Seconds a minute spent on one client's unusable images.")
    ] = 10.0,
    client_share: Annotated[
        float,
        typer.Option(min=0.01, max=1, help="Largest share of connections, requests and queue of one client."),
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
    """Answer over HTTP with one integer a sample, to those who hold a key.

    `ucds keys add` makes the ledger and the first key.
    """
    if not quiet:
        options.start()
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
        max_queue=max(Limits.max_queue, max_batch) if max_queue is None else max_queue,
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
        Address(host, port, tls_cert, tls_key, health_port),
        ledger=ledger,
        signing_key=signing_key,
        checkpoints=checkpoints,
        checkpoint_every=checkpoint_every,
        open_to_all=open_to_all,
        workers=workers,
        limits=limits,
        model_batch=model_batch,
        metrics_from=metrics_from or LOOPBACK,
        hosts=allow_host or (),
        access_log=access_log,
        accelerator=accelerator,
        notice=options.say_warning if quiet else options.say,
        ready=lambda url: options.show(f"listening on {url}"),
    )
