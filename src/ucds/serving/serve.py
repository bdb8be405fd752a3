"""The label service of a source run as one function: from the run folder to answers over HTTP."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_address, ip_network
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from ucds.arguments import checked
from ucds.choices import Accelerator
from ucds.errors import InputError, brief
from ucds.serving.app import BehindProxy, create_app
from ucds.serving.checkpoints import Snapshots
from ucds.serving.database import ledger_url
from ucds.serving.keys import as_text
from ucds.serving.labeller import USUAL_BATCH, ModelLabeller
from ucds.serving.ledger import Ledger
from ucds.serving.limits import Limits
from ucds.serving.ops import create_ops_app
from ucds.serving.service import Service
from ucds.serving.signing import SIGNING_KEY_FILE, Signer
from ucds.training.model_file import load_model
from ucds.training.options import Compute

FIRST_KEY, FIRST_BUDGET = "first", 10_000
_KEEP_ALIVE_SECONDS = 75  # longer than the proxy keeps a connection: else it sends into one that is closed


@checked
def serve(
    run: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    ops_port: int | None = None,
    behind_proxy: str | None = None,
    ledger: str | Path | None = None,
    signing_key: str | Path | None = None,
    signers: Iterable[str] = (),
    checkpoints: str | Path | None = None,
    model_batch: int = USUAL_BATCH,
    limits: Limits | None = None,
    accelerator: Accelerator = "auto",
    notice: Callable[[str], None] = lambda sentence: None,
    ready: Callable[[str], None] = lambda url: None,
    stop: threading.Event | None = None,
) -> None:
    """Answer label requests over HTTP until SIGTERM, SIGINT or an event; ``ucds serve`` does the same.

    The service neither encrypts nor bounds connections: a reverse proxy in front does both, see
    ``docs/operating.md``. If there is no ledger yet, and only this machine can reach the service, it makes a
    ledger with a first key.

    Args:
        run: folder of a finished source run.
        host: name or number of an address of this machine; or ``unix:PATH``, a socket for its user and group.
        port: port; 0 takes a free one.
        ops_port: port on the same host for ``/healthz``, ``/readyz`` and ``/metrics``; none if ``None``.
        behind_proxy: address or network of the proxy in front. Only the proxy is answered, and it tells the
            addresses of clients. Needed if other machines can reach ``host``.
        ledger: SQLite file or PostgreSQL address; ``ledger.sqlite`` in the run folder if ``None``.
        signing_key: PEM file of the key that signs receipts, made if it does not exist; ``signing-key.pem``
            in the run folder if ``None``.
        signers: earlier public keys of the provider, whose snapshots of the ledger are also accepted.
        checkpoints: file for signed snapshots of the ledger's log; none are written outside the ledger if
            ``None``.
        model_batch: number of samples that the model takes at a time; larger numbers only help on a GPU.
        limits: limits of a request and of the service; the defaults if ``None``.
        accelerator: device to compute on.
        notice: receiver of messages that the provider should see before the service starts.
        ready: receiver of the service's URL, called once clients can connect.
        stop: event by which another thread ends the service; signals reach only the main thread.

    Raises:
        InputError: the run, the address, the ledger or the file of checkpoints cannot be used; the ledger
            was set back; or an event loop runs in this thread.
        DamagedFileError: the model file, the ledger or the signing key cannot be read.
        NoSpaceError: the ledger or the signing key cannot be written.
        ServiceUnavailableError: the ledger's database cannot be reached.
    """
    _check_exposure(host, behind_proxy)
    with suppress(RuntimeError):  # there should be none
        asyncio.get_running_loop()
        raise InputError("a service has an event loop of its own: call `serve` in another thread")
    stored = load_model(Path(run), role="source")
    labeller = ModelLabeller(stored, Compute(accelerator), model_batch)
    with ExitStack() as stack:
        book = _open_ledger(ledger or run, _is_loopback(host), notice)
        stack.callback(book.close)
        signer = Signer.open(Path(signing_key).resolve() if signing_key else Path(run) / SIGNING_KEY_FILE)
        book.trust(signer.public, *signers)
        snapshots = Snapshots(book, signer, None if checkpoints is None else Path(checkpoints))
        stack.callback(snapshots.close)
        service = Service(labeller, book, signer, limits or Limits())
        stack.callback(service.close)
        if service.weakness:
            notice(f"warning: {service.weakness}")
        service.metrics.watch("ucds_checkpoint_failures", "Failed checkpoints", lambda: snapshots.failures)
        answer = partial(listen, service, ready=ready, stop=stop)
        answer(host=host, port=port, ops_port=ops_port, behind_proxy=behind_proxy)


def listen(
    service: Service,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    ops_port: int | None = None,
    behind_proxy: str | None = None,
    ready: Callable[[str], None],
    stop: threading.Event | None = None,
) -> None:
    """Answer over HTTP for a service that is open already; :func:`serve` explains the other arguments."""
    with ExitStack() as stack:
        listening = stack.enter_context(_listening(host, port))
        # The collector of garbage passes over what is there already. There are hundreds of
        # thousands of objects, over which it would pass in a quarter of a second, while every thread waits.
        gc.collect()
        gc.freeze()
        stack.callback(gc.unfreeze)
        if ops_port is not None:
            ops = create_ops_app(service.metrics, service.check_ready)
            near = "127.0.0.1" if _socket_path(host) else host
            stack.enter_context(_in_thread(_Server(ops), stack.enter_context(_listening(near, ops_port))))
        app: ASGIApp = create_app(service)
        if behind_proxy is not None or _socket_path(host):
            app = BehindProxy(app, None if behind_proxy is None else ip_network(behind_proxy))
        server = _Server(app, service.limits.shutdown_seconds, stop)
        shown = f"[{host}]" if ":" in host else host
        # A client that connects from now on waits for an answer.
        ready(host if _socket_path(host) else f"http://{shown}:{listening.getsockname()[1]}")
        server.run(sockets=[listening])


class _Server(uvicorn.Server):
    """Server that stops at an event as at a signal, with status 0."""

    def __init__(
        self, app: ASGIApp, shutdown_seconds: float = 1, stop: threading.Event | None = None
    ) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        config = uvicorn.Config(
            app,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=max(1, int(shutdown_seconds)),
        )
        super().__init__(config)
        self._stop = stop

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # uvicorn would raise the signal once more at the end, and the process would not end with status 0.
        self.force_exit |= self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        self.should_exit |= self._stop is not None and self._stop.is_set()
        return await super().on_tick(counter)


@contextmanager
def _in_thread(server: _Server, listening: socket.socket) -> Iterator[None]:
    """Answer the operator in a separate thread, so that clients' requests cannot delay it."""
    thread = threading.Thread(target=server.run, args=([listening],), name="ops", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


def _addresses(host: str) -> list[str]:
    """Return the addresses for a name or a number of this machine."""
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise InputError(f"there is no address {brief(host)}: {getattr(error, 'strerror', error)}") from None
    return sorted(str(entry[4][0]).partition("%")[0] for entry in found)


def _is_loopback(host: str) -> bool:
    """Return whether only this machine can reach one of its addresses."""
    addresses = [] if _socket_path(host) else _addresses(host)
    return all(ip_address(address).is_loopback for address in addresses)


def _socket_path(host: str) -> Path | None:
    """Return the path of a Unix socket; ``None`` for an address."""
    return Path(host.removeprefix("unix:")) if host.startswith("unix:") else None


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """Listen on an address or a Unix socket."""
    path = _socket_path(host)
    try:
        opened = _bind(_addresses(host)[0], port) if path is None else _bind_locally(path)
    except (OSError, OverflowError) as error:
        where = host if path else f"{host} port {port}"
        raise InputError(f"cannot listen on {where}: {getattr(error, 'strerror', None) or error}") from None
    with opened:
        yield opened
    if path is not None:
        path.unlink(missing_ok=True)


def _bind_locally(path: Path) -> socket.socket:
    """Make a Unix socket for user and group, and replace a socket on which no process answers any more."""
    if path.is_socket():
        with suppress(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as other:
            other.connect(str(path))
            raise InputError(f"cannot listen on unix:{path}: another process answers there")
        path.unlink()
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    path.chmod(0o660)  # nobody can connect before it listens
    made.listen(2048)
    return made


def _bind(number: str, port: int) -> socket.socket:
    """Listen on an address, given by its number."""
    family = socket.AF_INET6 if ":" in number else socket.AF_INET
    listening = socket.create_server((number, port), family=family, backlog=2048)
    # Else the second part of an answer waits 40 ms until the client's system acknowledges the first: asyncio
    # sets this only for a socket that names the protocol TCP, which those of `create_server` do not.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _check_exposure(host: str, behind_proxy: str | None) -> None:
    """Refuse to answer other machines without a proxy that encrypts and bounds their connections."""
    if behind_proxy is not None:
        if _socket_path(host):
            raise InputError(f"a proxy on {host} has no address: leave `behind_proxy` out")
        try:
            ip_network(behind_proxy)
        except ValueError:
            raise InputError(
                f"`behind_proxy` is the address or network of a proxy (10.0.0.7), not {brief(behind_proxy)}"
            ) from None
    elif not _is_loopback(host):
        raise InputError(
            f"{host} can be reached from other machines, but the service does not encrypt: put a reverse "
            "proxy in front (docs/operating.md) and name its address as `behind_proxy`"
        )


def _open_ledger(place: str | Path, may_make: bool, notice: Callable[[str], None]) -> Ledger:
    """Open the ledger; if there is none and only this machine is answered, make one with a first key."""
    url = ledger_url(place)
    is_there = url.get_backend_name() != "sqlite" or Path(str(url.database)).exists()
    is_new = may_make and not is_there
    book = Ledger(place, create=is_new)
    if is_new:
        secret = book.add_key(FIRST_KEY, FIRST_BUDGET)
        notice(
            f"warning: there was no ledger, so {book.shown} is new; its first key, for {FIRST_BUDGET:,} "
            f"labels, is shown this once: {secret}"
        )
    elif all(key.end(as_text(datetime.now(UTC))) for key in book.list_keys()):
        notice("warning: there is no active key, so nobody is answered: make one with `ucds keys add`")
    return book
