"""The provider's label service, and the command that measures what labels give away."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ucds.choices import Accelerator
from ucds.cli import options
from ucds.cli.target import ServiceGroup


@options.command("serve", options.PROVIDER)
def serve_command(
    run: options.RunArgument,
    output: options.Output,
    host: Annotated[
        str, Option(help="Address to listen on, or unix:PATH for a proxy on this machine.")
    ] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    ops_port: Annotated[
        int | None,
        Option(
            min=0,
            max=65535,
            envvar="UCDS_OPS_PORT",
            help="Port on the same host for /healthz, /readyz and /metrics.",
            show_default="none",
        ),
    ] = None,
    behind_proxy: Annotated[
        str | None,
        Option(
            metavar="ADDRESS",
            help="Address or network of the reverse proxy; the service answers nobody else.",
            show_default="none",
        ),
    ] = None,
    ledger: Annotated[
        str | None,
        Option(
            envvar="UCDS_LEDGER",
            help="SQLite file, or postgresql://USER@HOST/NAME.",
            show_default="RUN/ledger.sqlite",
        ),
    ] = None,
    signing_key: Annotated[
        Path | None,
        Option(
            envvar="UCDS_SIGNING_KEY",
            help="PEM file of the key that signs receipts; made if it does not exist.",
            show_default="RUN/signing-key.pem",
        ),
    ] = None,
    signers: Annotated[
        list[str] | None,
        Option(
            "--signer",
            help="Earlier public key whose snapshots are also accepted; may be repeated.",
            show_default="none",
        ),
    ] = None,
    checkpoints: Annotated[
        Path | None,
        Option(
            envvar="UCDS_CHECKPOINTS",
            help="File for signed snapshots of the ledger; keep it on another machine.",
            show_default="none",
        ),
    ] = None,
    model_batch: Annotated[int, Option(min=1, help="Samples that the model takes at a time.")] = 8,
    limits: Annotated[
        list[str] | None,
        Option("--limit", metavar="NAME=VALUE", help="Limit to set, such as max-batch=64; may be repeated."),
    ] = None,
    accelerator: Annotated[Accelerator, Option(help="Device to compute on.")] = "auto",
) -> None:
    """Answer over HTTP with one integer per sample, for clients with a key.

    If only this machine reaches it, the first start makes a ledger and prints a key. `ucds keys` makes more.
    """
    output.start()
    from ucds.data.confinement import hide_memory
    from ucds.serving.limits import Limits
    from ucds.serving.serve import serve

    hide_memory()
    serve(
        run,
        host=host,
        port=port,
        ops_port=ops_port,
        behind_proxy=behind_proxy,
        ledger=ledger,
        signing_key=signing_key,
        signers=signers or (),
        checkpoints=checkpoints,
        model_batch=model_batch,
        limits=Limits.parse(limits or ()),
        accelerator=accelerator,
        notice=output.tell,
        ready=lambda url: options.show(f"listening on {url}"),
    )


@options.command("audit", options.PROVIDER)
def audit_command(
    members: Annotated[Path, Option(help="Samples that the model was trained on.")],
    others: Annotated[Path, Option(help="Samples of the same kind that the model was not trained on.")],
    out: Annotated[Path, Option(help="HTML file to write; all figures go into a JSON file beside it.")],
    encoder: options.EncoderGroup,
    work: options.WorkGroup,
    output: options.Output,
    service: ServiceGroup,
    run: Annotated[Path | None, Argument(help="Run folder to audit.")] = None,
    url: Annotated[str | None, Option(help="Label service to audit instead.")] = None,
    effort: Annotated[bool, Option("--quick", help="Use few samples; this takes about a minute.")] = False,
    seed: options.SeedOption = 0,
) -> None:
    """Attack a model through its labels, and report what the labels give away."""
    reporter = output.start()
    from ucds.auditing.audit import QUICK, audit

    client = None if url is None else service.client(url)
    found = audit(
        run,
        members,
        others,
        out,
        client=client,
        encoder=None if encoder.backbone is None else encoder.encoder(),
        effort=QUICK if effort else None,
        seed=seed,
        compute=work.compute(reporter),
    )
    output.present([*found.summary(), f"report written to {out}"], found.to_dict())
