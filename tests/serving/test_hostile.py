"""The service refuses what is wrong, stays up, and stays small."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import label_service
import numpy as np
import pytest
from hostile import MULTIPART, Request, array_corpus, header, image_corpus, multipart, mutations
from serving_kit import (
    NPY,
    FakeImageLabeller,
    Service,
    files,
    make_run,
    picture,
    running,
    vector,
)

from ucds.labels.wire import PROBLEM_TYPE, Problem
from ucds.serving.ledger import Ledger
from ucds.serving.limits import Limits
from ucds.serving.verify import verify

REFUSALS = {400, 408, 411, 413, 415, 422}


def check_no_label(answer: httpx.Response, name: str) -> None:
    """Refused in words, or answered that no sample can be used."""
    if answer.status_code == 200:
        assert set(answer.json()["labels"]) == {None}, name
        return
    assert answer.status_code in REFUSALS, f"{name}: {answer.status_code} {answer.text}"
    assert answer.headers["content-type"] == PROBLEM_TYPE, name
    problem = Problem.model_validate(answer.json())
    assert problem.status == answer.status_code
    assert "Traceback" not in problem.detail


def test_hostile_images(pictures: Service) -> None:
    with pictures.client() as client:
        for name, (body, headers) in image_corpus().items():
            check_no_label(client.post("/v1/labels", content=body, headers=headers), name)
    answer = pictures.ask(picture(4)).json()
    assert (answer["labels"], answer["budget"]["used"]) == ([4], 1)


def test_hostile_arrays(vectors: Service) -> None:
    with vectors.client() as client:
        for name, (body, headers) in array_corpus().items():
            answer = client.post("/v1/labels", content=body, headers=headers)
            if name == "array: nan":
                assert answer.json()["labels"] == [1, None]
                assert answer.json()["unusable"] == [{"position": 1, "reason": "holds NaN or infinity"}]
            else:
                check_no_label(answer, name)
    answer = vectors.ask(vector(4))
    assert (answer.json()["labels"], answer.json()["budget"]["used"]) == ([4], 2)


@pytest.mark.parametrize(
    "words",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 4), }",
        '{"shape":(1,4,),"fortran_order":False,"descr":"<f4"}   \n',
    ],
    ids=["as NumPy writes it", "as others may"],
)
def test_every_way_to_write_the_header_of_an_array(vectors: Service, words: str) -> None:
    body = header(words, np.array(vector(4), "<f4").tobytes())
    with vectors.client() as client:
        assert client.post("/v1/labels", content=body, headers=NPY).json()["labels"] == [4]


def connect(service: Service) -> socket.socket:
    parts = urlsplit(service.url)
    assert parts.hostname is not None
    return socket.create_connection((parts.hostname, parts.port or 80), timeout=10)


def answer_to(service: Service, *pieces: bytes, pause: float = 0.0) -> bytes:
    """What comes back on a bare connection until the other side closes it, or says nothing for 3 seconds."""
    with connect(service) as connection:
        connection.settimeout(3)
        received = b""
        try:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause)
            while data := connection.recv(65536):
                received += data
        except (ConnectionError, TimeoutError):
            pass
    return received


def head(key: str | None, *lines: str, type_: str = MULTIPART["Content-Type"]) -> bytes:
    words = [
        "POST /v1/labels HTTP/1.1",
        "Host: service",
        f"Authorization: Bearer {key}",
        f"Content-Type: {type_}",
        *lines,
    ]
    return ("\r\n".join(words) + "\r\n\r\n").encode()


def still_answers(service: Service) -> None:
    assert service.ask(picture(7)).json()["labels"] == [7]


def test_what_is_no_http_is_refused(pictures: Service) -> None:
    assert b" 400 " in answer_to(pictures, b"\x16\x03\x01\x02\x00 no http at all\r\n\r\n")
    still_answers(pictures)


def test_a_body_that_comes_too_slowly_is_refused(pictures: Service) -> None:
    body = multipart(picture(1))
    begun = time.monotonic()
    answer = answer_to(pictures, head(pictures.key, f"Content-Length: {len(body)}"), body[:50])
    assert b"HTTP/1.1 408" in answer
    assert 0.8 < time.monotonic() - begun < 9
    still_answers(pictures)


def test_a_length_that_is_a_lie_is_of_no_use(pictures: Service) -> None:
    body = multipart(picture(1))
    assert b"HTTP/1.1 413" in answer_to(pictures, head(pictures.key, "Content-Length: 99999999999"), body)
    assert answer_to(pictures, head(pictures.key, "Content-Length: 40"), body)[9:12] in (b"400", b"422")
    both = head(pictures.key, "Content-Length: 5", "Transfer-Encoding: chunked")
    # In one piece: what came after the answer would end the connection before the answer could be read.
    hidden = head(pictures.key, "Content-Length: 0")
    answer = answer_to(pictures, both + b"5\r\nabcde\r\n0\r\n\r\n" + hidden)
    assert answer.startswith(b"HTTP/1.1 400")  # one request, and not a hidden second one
    assert answer.count(b"HTTP/1.1") == 1
    for nonsense in ("-1", "1e3", "5, 6", "0x10", "9" * 30):
        assert b" 200 " not in answer_to(pictures, head(pictures.key, f"Content-Length: {nonsense}"), body)
    still_answers(pictures)


def test_a_body_without_a_length_is_refused_before_it_is_read(pictures: Service) -> None:
    answer = answer_to(pictures, head(pictures.key, "Transfer-Encoding: chunked", "Connection: close"))
    assert b"HTTP/1.1 411" in answer
    assert PROBLEM_TYPE.encode() in answer
    still_answers(pictures)


def test_a_body_that_was_packed_is_refused(pictures: Service) -> None:
    with pictures.client() as client:
        packed = {"Content-Encoding": "gzip"}
        answer = client.post("/v1/labels", files=files(picture(1)), headers=packed)
    assert (answer.status_code, answer.headers["accept-encoding"]) == (415, "identity")


def test_a_client_that_leaves_in_the_middle_is_charged_nothing(pictures: Service) -> None:
    body = multipart(picture(1))
    with connect(pictures) as connection:
        connection.sendall(head(pictures.key, f"Content-Length: {len(body)}") + body[:100])
    still_answers(pictures)
    assert pictures.ledger.list_keys()[0].used == 1


def test_requests_beyond_the_memory_are_told_to_come_again(ledger: Ledger) -> None:
    limits = Limits(max_request_bytes=100_000, max_body_bytes=100_000, body_seconds=3)
    keys = [ledger.add_key(name, 10) for name in ("anna", "bert")]
    with running(FakeImageLabeller(), ledger, limits) as service, connect(service) as slow:
        slow.sendall(head(keys[0], "Content-Length: 99000") + multipart(bytes(50_000), end=b""))
        time.sleep(0.3)
        answer = service.ask(bytes(20_000), key=keys[1])
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"


def resident_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


def bombard(service: Service, requests: list[Request]) -> list[int]:
    with service.client() as client, ThreadPoolExecutor(8) as pool:

        def send(request: Request) -> int:
            answer = client.post("/v1/labels", content=request[0], headers=request[1])
            if answer.status_code != 200:
                check_no_label(answer, repr(request[0][:80]))
            return answer.status_code

        return list(pool.map(send, requests))


def assault(service: Service, pid: int, count: int) -> None:
    """Bad requests of every kind; memory is compared once each kind was seen."""
    corpus, mutated = list(image_corpus().values()), mutations(seed=1)
    bombard(service, corpus * 2 + [mutated() for _ in range(100)])
    before, sent = resident_mib(pid), 0
    while sent < count:
        wave = corpus + [mutated() for _ in range(min(count, 450))]
        assert max(bombard(service, wave)) < 500
        sent += len(wave)
    grown = resident_mib(pid) - before
    print(f"{sent} malformed requests: {before:.0f} MiB, then {grown:+.0f} MiB")
    assert grown < 100


LIMITS = (
    "waste-seconds=1000000",
    "max-batch=20",
    "max-image-bytes=200000",
    "max-image-pixels=1000000",
    "max-request-bytes=1000000",
)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_five_thousand_malformed_requests(tmp_path: Path) -> None:
    from ucds.backbones import build_backbone

    run = make_run(tmp_path / "run", build_backbone("ucds/oriented_edges", weights="none"))
    book = Ledger(run, create=True)
    key = book.add_key("hostile", 10**6)
    options = [word for limit in LIMITS for word in ("--limit", limit)]
    with label_service.service(run, "--port", 0, *options) as (process, url):
        service = Service(url, "", book, key)
        before = service.ask(picture(2), picture(9)).json()["labels"]
        assault(service, process.pid, 5000)
        assert service.ask(picture(2), picture(9)).json()["labels"] == before
    book.close()
    assert verify(run).faults == ()
