"""Runs the application on a socket, and stops it without losing a request."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from ucds.errors import InputError
from ucds.serving.answering import Answering
from ucds.serving.handshakes import Handshake
from ucds.serving.health import create_health_app
from ucds.serving.ledger import Ledger
from ucds.serving.places import Places
from ucds.serving.protocol import PatientProtocol
from ucds.serving.settings import Limits

# asyncio accepts as many connections as uvicorn's `backlog` in one turn of its loop, during which nobody is
# answered: few are accepted in a turn, and the others wait in the system's queue.
_ACCEPTED_AT_ONCE, _BACKLOG = 8, 2048


@dataclass(frozen=True)
class Address:
    """The address that the service listens on.

    Attributes:
        host: name or number of an address of this machine.
        port: port; 0 takes a free one.
        certificate: PEM file for TLS; without one the traffic is not encrypted.
        private_key: PEM file of the certificate's key.
        health_port: port on which nothing but ``/healthz`` and ``/readyz`` is answered, without TLS.

    Raises:
        InputError: only one of the two files is given, or a file does not exist.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    certificate: Path | None = None
    private_key: Path | None = None
    health_port: int | None = None

    def __post_init__(self) -> None:
        """Refuse half of a pair, and files that are not there."""
        if (self.certificate is None) != (self.private_key is None):
            raise InputError("TLS needs both a certificate and its key: --tls-cert and --tls-key")
        for path in (self.certificate, self.private_key):
            if path is not None and not path.is_file():
                raise InputError(f"there is no file {path}")

    @property
    def is_loopback(self) -> bool:
        """Whether nobody outside this machine can reach it."""
        return all(ip_address(number).is_loopback for number in self._numbers())

    def _numbers(self) -> set[str]:
        if not self.host:
            return {"0.0.0.0"}
        try:
            found = socket.getaddrinfo(self.host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"there is no address {self.host!r}: {reason}") from None
        return {str(entry[4][0]).partition("%")[0] for entry in found}

    def bind(self) -> Sockets:
        """Open the sockets of this address.

        Raises:
            InputError: the address or a port is not available.
        """
        main = self._bind(self.port)
        try:
            return Sockets(main, None if self.health_port is None else self._bind(self.health_port))
        except InputError:
            main.close()
            raise

    def _bind(self, port: int) -> socket.socket:
        number = sorted(self._numbers())[0]
        family = socket.AF_INET6 if ":" in number else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((number, port))
        except (OSError, OverflowError) as error:
            bound.close()
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"cannot listen on {self.host} port {port}: {reason}") from None
        return bound

    def url(self, bound: Sockets) -> str:
        """Return the URL of the service at sockets of this address."""
        scheme = "https" if self.certificate else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{bound.main.getsockname()[1]}"


@dataclass(frozen=True)
class Sockets:
    """The sockets that a service answers on, in one process or in several.

    Attributes:
        main: socket for all that is asked.
        health: socket for ``/healthz`` and ``/readyz`` alone; ``None`` without such a port.
    """

    main: socket.socket
    health: socket.socket | None = None

    def __enter__(self) -> Sockets:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.all():
            one.close()

    def all(self) -> list[socket.socket]:
        """Return the sockets in the order of the attributes."""
        return [self.main, *([] if self.health is None else [self.health])]


def describe_exposure(address: Address, ledger: Ledger | None) -> list[str]:
    """Return what the provider should know before the service starts, one sentence each.

    Args:
        address: address of the service.
        ledger: ledger of the service; ``None`` if it is open to all.
    """
    said = []
    if ledger is None:
        said.append("warning: everybody who can reach the service is answered, without a key or a limit")
    elif not any(key.is_active for key in ledger.list_keys()):
        said.append("warning: there is no active key, so nobody is answered: make one with `ucds keys add`")
    if not address.is_loopback and address.certificate is None:
        said.append("warning: no TLS: keys and images can be read on the way; use --tls-cert and --tls-key")
    return said


def run_server(
    app: FastAPI,
    address: Address,
    limits: Limits,
    ready: Callable[[str], None] = lambda url: None,
    stop: threading.Event | None = None,
    bound: Sockets | None = None,
) -> None:
    """Answer until SIGTERM, SIGINT or the event; then finish what was accepted, and close the application.

    Args:
        app: application from `create_app`.
        address: address to listen on.
        limits: limits of connections and time.
        ready: receives the service's URL once clients can connect.
        stop: event that ends the service, set by another thread.
        bound: sockets to answer on; those of the address are opened and closed if ``None``.

    Raises:
        InputError: the port or the certificate cannot be used.
    """
    try:
        with nullcontext(bound) if bound is not None else address.bind() as listening:
            config, health = _config(app, limits, address), None
            if listening.health is not None:
                answering: Answering = app.state.answering
                health = _Lane(listening.health, _config(create_health_app(answering.check_ready), limits))
            server = _Server(config, lambda: ready(address.url(listening)), stop, health)
            with warnings.catch_warnings():
                # Libraries report every damaged file and form: a client could fill the log with that.
                for name in ("PIL", "python_multipart"):
                    logging.getLogger(name).setLevel(logging.CRITICAL)
                warnings.filterwarnings("ignore", module=r"PIL\.")
                server.run(sockets=[listening.main])
    finally:
        app.state.answering.close()


@dataclass(frozen=True)
class _Lane:
    """A socket with connections and an application of its own."""

    listening: socket.socket
    config: uvicorn.Config


class _Server(uvicorn.Server):
    """Answers on a socket for health too, says when it is ready, and stops at an event as at a signal."""

    def __init__(
        self,
        config: uvicorn.Config,
        ready: Callable[[], None],
        stop: threading.Event | None,
        health: _Lane | None,
    ) -> None:
        super().__init__(config)
        self._ready, self._stop, self._health = ready, stop, health

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(_BACKLOG)
        if self._health is not None:
            await self._answer_health(self._health)
        if self.started:
            self._ready()

    async def _answer_health(self, lane: _Lane) -> None:
        def make_protocol() -> PatientProtocol:
            protocol: type[PatientProtocol] = lane.config.http_protocol_class  # type: ignore[assignment]
            return protocol(config=lane.config, server_state=self.server_state, app_state=self.lifespan.state)

        loop = asyncio.get_running_loop()
        self.servers.append(
            await loop.create_server(make_protocol, sock=lane.listening, backlog=_ACCEPTED_AT_ONCE)
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # uvicorn would raise the signal once more at the end, and the process would not end with status 0.
        self.force_exit |= self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        self.should_exit |= self._stop is not None and self._stop.is_set()
        return await super().on_tick(counter)


def _config(app: ASGIApp, limits: Limits, address: Address | None = None) -> uvicorn.Config:
    """Build the settings of one socket, whose connections are bounded by themselves; TLS is the address's."""

    class Protocol(PatientProtocol):
        header_seconds = limits.header_seconds
        places = Places(
            limits.max_connections, limits.for_one(limits.max_connections, limits.max_requests + 1)
        )
        linger_bytes = limits.max_request_bytes

    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=_ACCEPTED_AT_ONCE,
        proxy_headers=False,
        h11_max_incomplete_event_size=limits.max_header_bytes,
        timeout_keep_alive=max(1, int(limits.keep_alive_seconds)),
        timeout_graceful_shutdown=max(1, int(limits.shutdown_seconds)),
        ssl_certfile=None if address is None else address.certificate,
        ssl_keyfile=None if address is None or address.private_key is None else str(address.private_key),
    )
    try:
        config.load()
    except OSError as error:  # an SSLError is one
        raise InputError(f"the certificate or its key cannot be used: {error.strerror or error}") from None
    if (context := config.ssl) is not None:

        def begin_handshake(**told: Any) -> Handshake:
            return Handshake(Protocol(**told), context)

        config.ssl, config.http_protocol_class = None, begin_handshake  # type: ignore[assignment]
    return config
