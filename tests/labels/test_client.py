"""Tests of the client of a label service: every answer that a service may give."""

import socket
import ssl
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fake_service import KEY, FakeService, Reply, label_of, problem
from label_service import make_certificate

from ucds.errors import InputError, RefusedError, ServiceUnavailableError, UserError
from ucds.labels.client import LabelClient
from ucds.labels.questions import body_of_images

IMAGE = b"\x89PNG one"
BODY = body_of_images([IMAGE])


def _client(service: FakeService, **options: Any) -> LabelClient:
    return LabelClient(service.url, KEY, **{"first_wait": 0.01, "patience": 5.0} | options)


def _ask(service: FakeService, **options: Any) -> list[int | None]:
    with _client(service, **options) as client:
        return client.ask(BODY, 1).labels


NO_WAITS = ["Fri, 31 Dec 2999 23:59:59 GMT", "\xb2", "9" * 400, "soon", "-3"]
AGAIN: list[Reply | None] = [
    None,  # the connection was lost
    (429, {"Content-Type": "text/html"}, b"<h1>429 Too Many Requests</h1>"),  # the bound of a proxy
    *(problem(status, {"Retry-After": "0"}) for status in (429, 502, 503, 504)),
    *(problem(503, {"Retry-After": wait}) for wait in NO_WAITS),
]


@pytest.mark.parametrize("fault", AGAIN)
def test_it_asks_again_when_that_may_help(service: FakeService, fault: Reply | None) -> None:
    service.faults.extend([fault] * 2)
    assert _ask(service) == [label_of(IMAGE)]
    assert service.requests == 3


REFUSED = (400, 401, 422)
AT_ONCE: list[tuple[Reply, type[UserError], str]] = [
    *((problem(status), RefusedError, f"answers {status}: no: {status}") for status in REFUSED),
    (problem(500), ServiceUnavailableError, "answers 500: no: 500"),
    (problem(503, {"Retry-After": "3600"}), ServiceUnavailableError, "no: 503; try again later"),
    ((200, {}, b"<html>hello</html>"), RefusedError, "not have the agreed form"),
    ((200, {}, b"[" * 5_000_000), RefusedError, "too long an answer"),
    ((200, {"Content-Encoding": "gzip"}, b"\x1f\x8b"), RefusedError, "not have the agreed form"),
    ((404, {}, b"<html>not here</html>"), RefusedError, "is that the address"),
    ((307, {"Location": "https://elsewhere/"}, b""), RefusedError, "redirects to https://elsewhere"),
    # to what a library would not take for an address
    *(((301, {"Location": place}, b""), RefusedError, "redirects") for place in ("http://[::1", "\xff", "")),
]


@pytest.mark.parametrize(("reply", "kind", "words"), AT_ONCE)
def test_it_does_not_ask_again_when_that_cannot_help(
    service: FakeService, reply: Reply, kind: type[UserError], words: str
) -> None:
    service.faults.append(reply)
    with pytest.raises(kind, match=words):
        _ask(service)
    assert service.requests == 1


def test_it_waits_as_long_as_it_is_asked_to_until_its_patience_ends(service: FakeService) -> None:
    service.faults.extend([problem(429, {"Retry-After": "1"})] * 9)
    with pytest.raises(ServiceUnavailableError, match="no: 429; try again later"):
        _ask(service, patience=1.1)
    assert service.requests <= 2
    with pytest.raises(ServiceUnavailableError, match=r"cannot be reached .*; try again later") as caught:
        LabelClient("http://127.0.0.1:9", KEY, patience=0.1, first_wait=0.05).info()
    assert "\n" not in str(caught.value)


def test_nothing_is_repeated_after_a_stop(service: FakeService) -> None:
    service.faults.append(problem(503, {"Retry-After": "60"}))
    client = _client(service, patience=3600.0)
    threading.Timer(0.3, client.stop).start()
    started = time.monotonic()
    with pytest.raises(ServiceUnavailableError, match="no: 503$"):
        client.ask(BODY, 1)
    assert time.monotonic() - started < 30
    assert service.requests == 1
    with client:
        client.info()
    with pytest.raises(InputError, match="this client is closed"):
        client.info()


def test_information_is_checked_and_the_key_of_the_receipts_may_be_named_before(service: FakeService) -> None:
    with _client(service, signer=service.info["signer"].upper()) as client:
        assert client.info().signer == service.info["signer"]
    with _client(service, signer="0" * 64) as client, pytest.raises(RefusedError, match="signs its receipts"):
        client.info()
    service.info["weights"] = "AAAA"
    with _client(service) as client, pytest.raises(RefusedError, match="weights: Extra"):
        client.info()


@pytest.mark.parametrize(
    "change",
    [
        {"labels": [], "receipt": None},
        {"labels": [0.0]},
        {"labels": [7]},
        {"labels": [-1]},
        {"labels": [None]},
        {"labels": [None], "unusable": [{"position": 0, "reason": "?"}]},
        {"unusable": [{"position": 0, "reason": "?"}]},
        {"unusable": [{"position": 5, "reason": "?"}]},
        {"receipt": None},
        {"scores": [0.1]},
    ],
)
def test_an_answer_with_anything_but_labels_is_refused(service: FakeService, change: dict[str, Any]) -> None:
    service.change = lambda answer: answer.update(change)
    with pytest.raises(RefusedError, match="does not have the agreed form|gave 0 labels for 1 samples"):
        _ask(service)
    assert service.requests == 1


UNSAFE = ["http://labels.example.org", "http://10.0.0.1:80", "http://localhost.example.org"]
NO_ADDRESSES = [
    "labels.example.org",
    "ftp://example.org",
    "https://",
    "https://a.example/?q=1",
    "http://[bad",
]
NO_ADDRESSES += ["https://localhost:65536", f"https://{64 * 'a'}.example", "https://xn--zz.example"]
NO_ADDRESSES += ["https://a.example/\n"]


@pytest.mark.parametrize("url", UNSAFE + NO_ADDRESSES)
def test_it_sends_no_key_over_an_open_line_or_to_no_address(url: str) -> None:
    with pytest.raises(InputError, match="not encrypted" if url in UNSAFE else "not the address of"):
        LabelClient(url, KEY)


SAFE = ["http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1", "HTTPS://labels.example.org:8443/path"]
SAFE += ["https://[2001:db8::ffff]", "https://b\xfccher.example", "https://xn--bcher-kva.example"]
SAFE += ["https://example.org."]


@pytest.mark.parametrize("url", SAFE)
def test_its_own_machine_and_encrypted_lines_are_safe(url: str) -> None:
    LabelClient(url, KEY)


def test_the_key_stays_out_of_sight() -> None:
    assert KEY not in repr(LabelClient("https://example.org", KEY))
    for host, words in (
        ("example.org", "no user name or password"),
        ("a..b", "not the address of a service"),
    ):
        with pytest.raises(InputError, match=words) as caught:
            LabelClient(f"https://me:{KEY}@{host}", KEY)
        assert KEY not in str(caught.value)
    for key in ("", "two words", "line\nbreak", "schlüssel"):
        with pytest.raises(InputError, match="the key is not one line"):
            LabelClient("https://example.org", key)


def test_no_proxy_comes_between_us_and_our_own_machine(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert _ask(service) == [label_of(IMAGE)]


def drip(listening: socket.socket, head: bytes) -> None:
    """Send the rest of an answer byte by byte."""
    with suppress(OSError):
        connection, _ = listening.accept()
        connection.recv(65536)
        connection.sendall(head)
        while True:
            connection.sendall(b"x")
            time.sleep(0.05)


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-"]
)
def test_its_patience_ends_while_an_answer_drips(head: bytes) -> None:
    started = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=drip, args=(listening, head), daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        client = LabelClient(url, KEY, patience=0.5, first_wait=0.01)
        with client, pytest.raises(ServiceUnavailableError, match="its answer takes too long"):
            client.ask(BODY, 1)
    assert time.monotonic() - started < 20


def test_text_of_a_service_cannot_steer_a_terminal(service: FakeService) -> None:
    nasty = "red \x1b[31m \x9b2J \u202e \x07 \r\n end"
    service.faults.append(problem(403, detail=nasty))
    with pytest.raises(RefusedError) as refused:
        _ask(service)
    assert str(refused.value).isprintable()
    assert r"red \x1b[31m \x9b2J \u202e \x07 end" in str(refused.value)
    service.faults.append((302, {"Location": "http://x/\x9b2J"}, b""))
    with pytest.raises(RefusedError, match=r"redirects to http://x/\\x9b2J"):
        _ask(service)


def test_a_service_with_a_certificate_of_its_own_is_reached(
    service: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, context = make_certificate(tmp_path), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    service.socket = context.wrap_socket(service.socket, server_side=True)
    url = service.url.replace("http://127.0.0.1", "https://localhost")
    client = LabelClient(url, KEY, patience=1.0)
    with client, pytest.raises(ServiceUnavailableError, match="CERTIFICATE"):
        client.info()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with LabelClient(url, KEY) as client:
        assert client.info().provider == "alpha"
