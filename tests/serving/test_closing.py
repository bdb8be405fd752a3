"""A client that is refused while it sends can read why; one that goes on sending is cut off."""

from __future__ import annotations

import socket
import time

import pytest
from serving_kit import Service
from test_hostile import connect, head


def read_slowly(connection: socket.socket) -> bytes:
    """What can be read by a client that looks at the answer only after a while."""
    time.sleep(0.3)
    received = b""
    while data := connection.recv(65536):
        received += data
    return received


@pytest.mark.parametrize(
    ("status", "lines"),
    [
        (b"400", ("Content-Length: 5", "Transfer-Encoding: chunked")),
        (b"411", ("Transfer-Encoding: chunked",)),
        (b"413", ("Content-Length: 99999999999", "Connection: close")),
        (b"401", ("Content-Length: 8000000", "Connection: close")),
    ],
)
def test_the_answer_is_read_whatever_was_sent_after_it(
    pictures: Service, status: bytes, lines: tuple[str, ...]
) -> None:
    if status == b"401":
        pictures.key = "unknown"
    for _ in range(5):
        with connect(pictures) as connection:
            connection.sendall(head(pictures, *lines))
            for _ in range(8):
                connection.sendall(bytes(100_000))
            answer = read_slowly(connection)
        assert answer.startswith(b"HTTP/1.1 " + status), answer
        assert answer.count(b"HTTP/1.1") == 1
        assert answer.endswith(b"}")


def send_until_cut_off(connection: socket.socket, data: bytes, pause: float) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        connection.sendall(data)
        time.sleep(pause)


@pytest.mark.parametrize(("length", "pause"), [(100_000, 0.0), (1, 0.1)], ids=["bytes", "seconds"])
def test_a_client_that_goes_on_sending_is_cut_off(pictures: Service, length: int, pause: float) -> None:
    with connect(pictures) as connection:
        connection.sendall(head(pictures, "Transfer-Encoding: chunked"))
        with pytest.raises(ConnectionError):
            send_until_cut_off(connection, bytes(length), pause)
