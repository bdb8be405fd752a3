"""The label service of a source run as one function: from the run folder to answers over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from ucds.choices import Accelerator
from ucds.errors import InputError
from ucds.serving.app import create_app
from ucds.serving.checkpoints import EVERY, CheckpointWriter, parse_place
from ucds.serving.database import LEDGER_FILE
from ucds.serving.front import LOOPBACK_HOSTS, writing_access_log
from ucds.serving.labeller import ModelLabeller
from ucds.serving.ledger import Ledger
from ucds.serving.metrics import LOOPBACK
from ucds.serving.server import Address, describe_exposure, run_server
from ucds.serving.settings import Limits, NearCopies
from ucds.serving.signing import SIGNING_KEY_FILE, Signer


def serve(
    run: str | Path,
    address: Address | None = None,
    *,
    ledger: str | Path | None = None,
    signing_key: str | Path | None = None,
    checkpoints: str | Path | None = None,
    checkpoint_every: int = EVERY,
    open_to_all: bool = False,
    limits: Limits | None = None,
    model_batch: int | None = None,
    metrics_from: Sequence[str] = LOOPBACK,
    hosts: Sequence[str] = (),
    access_log: str | Path | None = None,
    near_copies: NearCopies | None = None,
    accelerator: Accelerator = "auto",
    notice: Callable[[str], None] = lambda sentence: None,
    ready: Callable[[str], None] = lambda url: None,
    stop: threading.Event | None = None,
) -> None:
    """Answer label requests over HTTP until SIGTERM, SIGINT or an event; ``ucds serve`` does the same.

    Args:
        run: folder of a finished source run.
        address: host, port and certificate; port 8000 of 127.0.0.1 if ``None``.
        ledger: SQLite file or PostgreSQL address; ``ledger.sqlite`` in the run folder if ``None``.
        signing_key: PEM file of the key that signs receipts; it is made if it does not exist.
            ``signing-key.pem`` in the run folder if ``None``.
        checkpoints: folder, file, or http or https address for signed checkpoints of the ledger's log; none
            are written if ``None``.
        checkpoint_every: number of entries of the log between two checkpoints.
        open_to_all: whether everybody is answered, without key, limit or ledger.
        limits: limits of a request and of the service; the defaults if ``None``.
        model_batch: samples that the model takes at a time; 16 on a CPU and 64 on a GPU if ``None``.
        metrics_from: networks that may read ``/metrics``.
        hosts: names by which the service may be asked; by default those of this machine where nobody else can
            reach it, and any name elsewhere.
        access_log: file for one line of JSON a request; the standard error if ``"-"``, no log if ``None``.
        near_copies: rule about near-copies of images that one key asks about; they are not watched for if
            ``None``.
        accelerator: device to compute on.
        notice: receives what the provider should know before the service starts.
        ready: receives the service's URL once clients can connect.
        stop: event that ends the service, set by another thread; signals reach the main thread alone.

    Raises:
        InputError: the run, the address, the ledger or the place of checkpoints cannot be used; there is no
            ledger, or it was wound back; or it is to be open to all and there is a ledger; or near-copies
            cannot be watched for.
        DamagedFileError: the model file, the ledger or the signing key cannot be read.
        NoSpaceError: the ledger or the signing key cannot be written.
        ServiceUnavailableError: the ledger's database or the place of checkpoints cannot be reached.
    """
    address, limits = address or Address(), limits or Limits()
    labeller = ModelLabeller.load(Path(run), accelerator, model_batch)
    if open_to_all:
        _refuse_ledger(Path(run), ledger)
    with ExitStack() as stack:
        book = writer = signer = None
        if not open_to_all:
            book = Ledger(ledger or Path(run), create=False)
            stack.callback(book.close)
            signer = Signer.open(Path(signing_key or Path(run) / SIGNING_KEY_FILE))
            book.set_signer(signer.public)
            if checkpoints is not None:
                writer = CheckpointWriter(book, signer, parse_place(checkpoints), checkpoint_every)
                stack.callback(writer.close)
        for sentence in describe_exposure(address, book):
            notice(sentence)
        app = create_app(
            labeller,
            book,
            limits,
            signer=signer,
            checkpoints=writer,
            metrics_from=tuple(metrics_from),
            hosts=tuple(hosts) or ((*LOOPBACK_HOSTS, address.host) if address.is_loopback else ()),
            near_copies=near_copies,
        )
        with writing_access_log(access_log):
            run_server(app, address, limits, ready, stop)


def _refuse_ledger(run: Path, ledger: str | Path | None) -> None:
    """Make sure that nobody opens a service to all whose keys were meant to guard it."""
    found = ledger or (run / LEDGER_FILE if (run / LEDGER_FILE).exists() else None)
    if found is not None:
        raise InputError(
            f"an open service answers everybody and has no ledger, but here is one, {found}: leave out "
            "--open, or the ledger"
        )
