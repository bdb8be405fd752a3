"""TLS of the service itself: clients that begin no handshake, or cannot finish it, hold up nobody."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from serving_kit import NPY, FakeLabeller, Service, in_thread, npy, vector, wait_until
from test_hostile import connect
from test_server import certificate

from ucds.serving.app import create_app
from ucds.serving.server import Address, run_server
from ucds.serving.settings import Limits


@contextmanager
def encrypted(folder: Path, limits: Limits) -> Iterator[tuple[Service, ssl.SSLContext]]:
    """A service with TLS, and what its clients trust."""
    chain, key = certificate(folder)
    app, address = (
        create_app(FakeLabeller(), limits=limits),
        Address(port=0, certificate=chain, private_key=key),
    )
    with in_thread(lambda ready, stop: run_server(app, address, limits, ready, stop)) as url:
        yield Service(url, app, None, None), ssl.create_default_context(cafile=str(chain))


def is_open(connection: socket.socket) -> bool:
    connection.settimeout(0.01)
    try:
        return connection.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


def test_silent_connections_make_room_before_they_are_encrypted(tmp_path: Path) -> None:
    limits = Limits(max_connections=12, max_requests=4, header_seconds=30)
    with encrypted(tmp_path, limits) as (service, trusted), ExitStack() as stack:
        silent = [stack.enter_context(connect(service)) for _ in range(30)]
        wait_until(lambda: sum(map(is_open, silent)) <= 6)  # half of all is the most for one address
        assert httpx.get(f"{service.url}/healthz", verify=trusted).status_code == 200


def test_a_handshake_has_the_time_of_headers(tmp_path: Path) -> None:
    with encrypted(tmp_path, Limits(header_seconds=0.5)) as (service, trusted):
        with connect(service) as silent, connect(service) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            wait_until(lambda: not is_open(silent) and not is_open(plain), 5)
        with httpx.Client(base_url=service.url, verify=trusted) as client:
            for number in range(20):
                answer = client.post("/v1/labels", content=npy([vector(number % 7)]), headers=NPY)
                assert answer.json()["labels"] == [number % 7]
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{service.url}/healthz", verify=trusted)


def test_a_request_may_come_with_the_end_of_the_handshake(tmp_path: Path) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with encrypted(tmp_path, Limits()) as (service, trusted), connect(service) as connection:
        client = trusted.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")

        def until_done(step: Callable[[], bytes | None]) -> bytes | None:
            while True:
                with suppress(ssl.SSLWantReadError):
                    return step()
                connection.sendall(outgoing.read())
                incoming.write(connection.recv(2**16))

        until_done(client.do_handshake)
        # The end of the handshake is not sent yet: it leaves with the request.
        client.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        answer = until_done(lambda: client.read(2**16))
    assert answer is not None
    assert answer.startswith(b"HTTP/1.1 200")
