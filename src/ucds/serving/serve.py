"""The label service of a source run as one function: from the run folder to answers over HTTP."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ucds.choices import Accelerator
from ucds.errors import InputError, UserError
from ucds.serving.app import create_app
from ucds.serving.checkpoints import EVERY, CheckpointWriter, parse_place
from ucds.serving.database import LEDGER_FILE
from ucds.serving.front import LOOPBACK_HOSTS, check_hosts, writing_access_log
from ucds.serving.labeller import ModelLabeller
from ucds.serving.ledger import Ledger
from ucds.serving.metrics import LOOPBACK
from ucds.serving.server import Address, Sockets, describe_exposure, run_server
from ucds.serving.settings import Limits
from ucds.serving.signing import SIGNING_KEY_FILE, Signer
from ucds.serving.workers import Workers


def serve(
    run: str | Path,
    address: Address | None = None,
    *,
    ledger: str | Path | None = None,
    signing_key: str | Path | None = None,
    checkpoints: str | Path | None = None,
    checkpoint_every: int = EVERY,
    open_to_all: bool = False,
    workers: int = 1,
    limits: Limits | None = None,
    model_batch: int | None = None,
    metrics_from: Sequence[str] = LOOPBACK,
    hosts: Sequence[str] = (),
    access_log: str | Path | None = None,
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
        workers: number of processes that answer. Each has the model, and the limits for itself, except that
            they share budgets and rates, and the processes that decode.
        limits: limits of a request and of the service; the defaults if ``None``.
        model_batch: samples that the model takes at a time; 16 on a CPU and 64 on a GPU if ``None``.
        metrics_from: networks that may read ``/metrics``.
        hosts: names by which the service may be asked; by default those of this machine where nobody else can
            reach it, and any name elsewhere.
        access_log: file for one line of JSON a request; the standard error if ``"-"``, no log if ``None``.
        accelerator: device to compute on.
        notice: receives what the provider should know before the service starts.
        ready: receives the service's URL once clients can connect.
        stop: event that ends the service, set by another thread; signals reach the main thread alone.

    Raises:
        InputError: the run, the address, a host, the ledger or the place of checkpoints cannot be used; there
            is no ledger, or it was wound back; or it is to be open to all and there is a ledger.
        DamagedFileError: the model file, the ledger or the signing key cannot be read.
        NoSpaceError: the ledger or the signing key cannot be written.
        ServiceUnavailableError: the ledger's database or the place of checkpoints cannot be reached.
    """
    options = ServiceOptions(
        run=Path(run),
        address=address or Address(),
        ledger=None if open_to_all else ledger or Path(run),
        signing_key=Path(signing_key or Path(run) / SIGNING_KEY_FILE),
        limits=limits or Limits(),
        model_batch=model_batch,
        metrics_from=tuple(metrics_from),
        hosts=tuple(hosts),
        access_log=access_log,
        accelerator=accelerator,
    )
    check_hosts(options.hosts)
    if workers < 1:
        raise InputError("a service has at least one worker")
    if open_to_all:
        _refuse_ledger(Path(run), ledger)
    labeller = ModelLabeller.load(options.run, accelerator, model_batch) if workers == 1 else None
    with ExitStack() as stack:
        opened, writer = None, None
        if options.ledger is not None:
            book, signer = opened = stack.enter_context(_open_ledger(options.ledger, options.signing_key))
            if checkpoints is not None:
                writer = CheckpointWriter(book, signer, parse_place(checkpoints), checkpoint_every)
                stack.callback(writer.close)
        for sentence in describe_exposure(options.address, opened and opened[0]):
            notice(sentence)
        bound = stack.enter_context(options.address.bind())
        if labeller is not None:
            _run(options, labeller, opened, writer, bound, ready, stop)
        else:
            _run_workers(options, workers, opened and opened[0], writer, bound, ready, stop)


@dataclass(frozen=True)
class ServiceOptions:
    """What one process of a service is told; see :func:`serve`.

    Attributes:
        run: folder of a finished source run.
        address: address of the service.
        ledger: place of the ledger; ``None`` for a service that is open to all.
        signing_key: file of the key that signs receipts.
        limits: limits of a request and of the process.
        model_batch: samples that the model takes at a time.
        metrics_from: networks that may read the metrics.
        hosts: names by which the service may be asked.
        access_log: file for one line of JSON a request.
        accelerator: device to compute on.
    """

    run: Path
    address: Address
    ledger: str | Path | None
    signing_key: Path
    limits: Limits
    model_batch: int | None
    metrics_from: tuple[str, ...]
    hosts: tuple[str, ...]
    access_log: str | Path | None
    accelerator: Accelerator


def answer(
    options: ServiceOptions,
    bound: Sockets,
    ready: Callable[[str], None],
    stop: threading.Event,
    rates: int,
) -> None:
    """Answer on sockets that another process opened, as one of several workers.

    Args:
        options: options of the service.
        bound: sockets to answer on.
        ready: called once clients can connect.
        stop: event that ends the process.
        rates: open file in which the workers share the rates of the keys, by its number.

    Raises:
        UserError: the model or the ledger cannot be used; :func:`serve` names the kinds.
    """
    labeller = ModelLabeller.load(options.run, options.accelerator, options.model_batch)
    with ExitStack() as stack:
        opened = None
        if options.ledger is not None:
            opened = stack.enter_context(_open_ledger(options.ledger, options.signing_key))
        _run(options, labeller, opened, None, bound, ready, stop, rates)


@contextmanager
def _open_ledger(place: str | Path, signing_key: Path) -> Iterator[tuple[Ledger, Signer]]:
    book = Ledger(place, create=False)
    try:
        signer = Signer.open(signing_key)
        book.set_signer(signer.public)
        yield book, signer
    finally:
        book.close()


def _run(
    options: ServiceOptions,
    labeller: ModelLabeller,
    opened: tuple[Ledger, Signer] | None,
    writer: CheckpointWriter | None,
    bound: Sockets,
    ready: Callable[[str], None],
    stop: threading.Event | None,
    rates: int | None = None,
) -> None:
    """Answer in this process."""
    address = options.address
    app = create_app(
        labeller,
        opened and opened[0],
        options.limits,
        signer=opened and opened[1],
        checkpoints=writer,
        metrics_from=options.metrics_from,
        hosts=options.hosts or ((*LOOPBACK_HOSTS, address.host) if address.is_loopback else ()),
        shared_rates=rates,
    )
    with writing_access_log(options.access_log), _collecting_only_what_is_new():
        run_server(app, address, options.limits, ready, stop, bound)


@contextmanager
def _collecting_only_what_is_new() -> Iterator[None]:
    """Keep the collector of garbage from all that is there already.

    With torch that is 420,000 objects, for which it takes a quarter of a second and stops every thread.
    Connections are garbage that it must collect: many of them, and it begins again and again.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _run_workers(
    options: ServiceOptions,
    count: int,
    book: Ledger | None,
    writer: CheckpointWriter | None,
    bound: Sockets,
    ready: Callable[[str], None],
    stop: threading.Event | None,
) -> None:
    """Answer in several processes, while this one watches them, and writes checkpoints for all."""
    told = replace(options, limits=options.limits.for_one_of(count))
    workers = Workers(count, told, bound, options.limits.shutdown_seconds)

    def tick() -> None:
        if book is not None and writer is not None:
            with suppress(UserError):  # the workers say what is wrong with the ledger
                writer.note(book.read_head().entries)

    workers.run(lambda: ready(options.address.url(bound)), stop or threading.Event(), tick)


def _refuse_ledger(run: Path, ledger: str | Path | None) -> None:
    """Make sure that nobody opens a service to all whose keys were meant to guard it."""
    found = ledger or (run / LEDGER_FILE if (run / LEDGER_FILE).exists() else None)
    if found is not None:
        raise InputError(
            f"an open service answers everybody and has no ledger, but here is one, {found}: leave out "
            "--open, or the ledger"
        )
