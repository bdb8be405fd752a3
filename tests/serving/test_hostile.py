"""Clients that send what is wrong, or stall the service: it refuses, goes on for others, and stays small."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import label_service
import numpy as np
import psutil
import pytest
from hostile import Request, bad_arrays, bad_requests, header, multipart, mutations
from serving_kit import (
    MULTIPART,
    NPY,
    SMALL,
    FakeImageLabeller,
    FakeLabeller,
    Service,
    answer_to,
    children,
    connect,
    head,
    npy,
    picture,
    refused,
    running,
    vector,
    wait_until,
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
    for name, (body, headers) in bad_requests().items():
        check_no_label(pictures.send(body, headers), name)
    answer = pictures.ask(picture(4)).json()
    assert (answer["labels"], answer["budget"]["used"]) == ([4], 1)


def test_hostile_arrays(vectors: Service) -> None:
    for name, body in bad_arrays().items():
        check_no_label(vectors.send(body, NPY), name)
    answer = vectors.ask(vector(4), [1, float("nan"), 0, 0]).json()
    assert (answer["labels"], answer["budget"]["used"]) == ([4, None], 1)
    assert answer["unusable"] == [{"position": 1, "reason": "holds NaN or infinity"}]


def test_the_header_of_an_array_may_be_written_in_other_ways_than_numpy_does(vectors: Service) -> None:
    words = '{"shape":(1,4,),"fortran_order":False,"descr":"<f4"}   \n'
    body = header(words, np.array(vector(4), "<f4").tobytes())
    assert vectors.send(body, NPY).json()["labels"] == [4]


def test_what_is_no_whole_request_is_refused(pictures: Service) -> None:
    body, key = multipart(picture(1)), pictures.key
    assert b" 400 " in answer_to(pictures, b"\x16\x03\x01\x02\x00 no http at all\r\n\r\n")
    chunked = answer_to(pictures, head(key, "Transfer-Encoding: chunked", "Connection: close"))
    assert b"HTTP/1.1 411" in chunked  # before the body is read
    assert PROBLEM_TYPE.encode() in chunked
    for length, statuses in (("99999999999", [b"413"]), ("40", [b"400", b"422"])):
        words = head(key, f"Content-Length: {length}", "Connection: close")
        assert answer_to(pictures, words, body)[9:12] in statuses
    for nonsense in ("-1", "1e3", "5, 6", "0x10", "9" * 30):
        assert b" 200 " not in answer_to(pictures, head(key, f"Content-Length: {nonsense}"), body)
    assert pictures.ask(picture(7)).json()["labels"] == [7]


def test_no_second_request_hides_behind_two_lengths_of_the_first(pictures: Service) -> None:
    both = head(pictures.key, "Content-Length: 5", "Transfer-Encoding: chunked")
    # In one piece: what came after the answer would end the connection before the answer could be read.
    hidden = head(pictures.key, "Content-Length: 0")
    answer = answer_to(pictures, both + b"5\r\nabcde\r\n0\r\n\r\n" + hidden)
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1


def test_a_body_that_comes_too_slowly_is_refused(pictures: Service) -> None:
    body = multipart(picture(1))
    words = head(pictures.key, f"Content-Length: {len(body)}", "Connection: close")
    begun = time.monotonic()
    assert b"HTTP/1.1 408" in answer_to(pictures, words, body[:50])
    assert 0.8 < time.monotonic() - begun < 9
    assert pictures.ask(picture(7)).json()["labels"] == [7]


def test_a_body_that_was_packed_is_refused(pictures: Service) -> None:
    answer = pictures.send(multipart(picture(1)), MULTIPART | {"Content-Encoding": "gzip"})
    assert (answer.status_code, answer.headers["accept-encoding"]) == (415, "identity")


def test_requests_beyond_the_memory_are_told_to_come_again(ledger: Ledger) -> None:
    limits = Limits(max_request_bytes=100_000, max_body_bytes=100_000, body_seconds=3)
    with running(FakeImageLabeller(), ledger, limits, budget=10) as service, connect(service) as slow:
        slow.sendall(head(service.key, "Content-Length: 99000") + multipart(bytes(50_000), end=b""))
        time.sleep(0.3)
        answer = service.with_a_new_key().ask(bytes(20_000))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


@contextmanager
def pictures_service(
    ledger: Ledger, clock: Callable[[], float] = time.monotonic, **limits: float
) -> Iterator[Service]:
    """Answers for images; two processes decode."""
    settings: dict[str, float] = {"decode_workers": 2, "decode_seconds": 60, "waste_seconds": 1e6}
    found = Limits(**settings | limits)  # type: ignore[arg-type]
    with running(FakeImageLabeller(), ledger, found, budget=1000, clock=clock) as service:
        service.ask(*(picture(1, serial=i) for i in range(8)))  # all processes have started
        yield service


def test_an_abandoned_request_is_finished_and_charged_and_its_repeat_is_free(ledger: Ledger) -> None:
    labeller, rows = FakeLabeller(), [vector(1, i) for i in range(5)]
    labeller.gate.clear()
    body = npy(rows)
    with running(labeller, ledger, budget=100) as service:
        with connect(service) as connection:
            words = head(service.key, f"Content-Length: {len(body)}", type_=NPY["Content-Type"])
            connection.sendall(words + body)
            wait_until(lambda: service.queued == 5)
        labeller.gate.set()
        wait_until(lambda: ledger.list_keys()[0].used == 5)
        batches = labeller.batches
        answer = service.ask(*rows).json()
    assert (answer["labels"], answer["budget"]["used"], labeller.batches) == ([1] * 5, 5, batches)


def test_abandoned_bodies_are_waste_and_cost_no_budget(ledger: Ledger) -> None:
    with running(FakeImageLabeller(), ledger, Limits(waste_seconds=0.1), budget=100) as service:
        for _ in range(8):
            with connect(service) as connection:
                connection.sendall(head(service.key, "Content-Length: 1000") + b"--b")
                time.sleep(0.05)

        wait_until(lambda: "over-waste" in service.ask(picture(1)).text)
    assert ledger.list_keys()[0].used <= 1  # for this picture


def test_requests_beyond_the_share_of_a_key_are_refused_by_their_headers_or_are_waste(ledger: Ledger) -> None:
    labeller = FakeLabeller()
    limits = Limits(max_batch=8, max_queue=24, waste_seconds=0.03, body_seconds=30)

    def ask(start: int, count: int) -> httpx.Response:
        return service.ask(*(vector(1, start + i) for i in range(count)))

    with running(labeller, ledger, limits, budget=100) as service, ThreadPoolExecutor() as pool:
        labeller.gate.clear()
        begun = [pool.submit(ask, 0, 8)]
        wait_until(lambda: service.queued == 8)
        begun.append(pool.submit(ask, 8, 4))
        wait_until(lambda: service.queued == 12)
        refused(service.with_a_new_key().ask(*(vector(1, i) for i in range(8))), 503, "busy")
        words = head(service.key, "Content-Length: 999", "Connection: close", type_=NPY["Content-Type"])
        assert b"over-share" in answer_to(service, words)
        labeller.gate.set()
        wait_until(lambda: service.queued == 0)
        labeller.gate.clear()
        begun.append(pool.submit(ask, 12, 8))
        wait_until(lambda: service.queued == 8)
        kinds = [ask(20 + 8 * i, 8).json()["type"].rpartition(":")[2] for i in range(3)]
        labeller.gate.set()
        assert [one.result().status_code for one in begun] == [200] * 3
    assert kinds == ["over-share", "over-share", "over-waste"]


def test_who_sends_unusable_images_is_refused_for_a_while_and_pays_for_each_once(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """So an honest client with many broken files comes to an end."""
    now, refusals = 0.0, 0
    contents = [*(b"broken %d" % i for i in range(100)), picture(4)]
    with pictures_service(ledger, lambda: now, waste_seconds=1.0) as service:
        other = service.with_a_new_key()
        while (answer := service.ask(*contents)).status_code == 429:
            assert other.ask(picture(2, serial=50 + refusals)).status_code == 200
            refusals, now = refusals + 1, now + int(answer.headers["retry-after"])
            assert refusals < 4  # 100 images cost two seconds in all
        assert service.figure("ucds_samples_unusable_total") >= 100
    assert refusals > 0
    assert [r.message for r in caplog.records if '"event": "waste", "key": "anna"' in r.message]
    assert answer.json()["labels"] == [None] * 100 + [4]


def test_a_decoder_that_gets_no_processor_is_told_to_come_again(ledger: Ledger) -> None:
    with pictures_service(ledger, decode_seconds=0.3) as service:
        for number in children():
            os.kill(number, signal.SIGSTOP)
        answer = service.ask(picture(1, serial=9))
        refused(answer, 503, "busy")
        assert int(answer.headers["retry-after"]) > 0
        used = ledger.list_keys()[0].used
        assert service.ask(picture(1, serial=9)).status_code in (200, 503)
    assert used == 8


def test_slow_bodies_of_one_key_do_not_take_all_places(ledger: Ledger) -> None:
    with pictures_service(ledger, max_requests=6, body_seconds=20) as service, ExitStack() as stack:
        for _ in range(10):
            connection = stack.enter_context(connect(service))
            connection.sendall(head(service.key, "Content-Length: 1000") + b"--b")
        time.sleep(0.5)
        answer = service.ask(picture(1))
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert service.with_a_new_key().ask(picture(1)).status_code == 200


def test_a_refused_upload_of_64_mib_arrives_as_its_refusal(ledger: Ledger) -> None:
    body = bytes(64 * 2**20 + 1)
    with running(FakeImageLabeller(), ledger) as service:
        for key, status in (("ucds_wrong", 401), (ledger.add_key("anna", 1), 413)):
            with service.client(key) as client:
                assert client.post("/v1/labels", content=body, headers=MULTIPART).status_code == status


def test_the_operator_is_answered_while_clients_hold_the_service(ledger: Ledger) -> None:
    limits = Limits(body_seconds=30)
    with running(FakeLabeller(), ledger, limits, budget=100) as service, ExitStack() as stack:
        words = head(service.key, "Content-Length: 1000", type_=NPY["Content-Type"])
        for i in range(100):
            connection = stack.enter_context(connect(service))
            connection.sendall(words + b"x" if i % 2 else b"")
        begun = time.monotonic()
        assert httpx.get(f"{service.ops}/healthz").text == "ok\n"
        assert httpx.get(f"{service.ops}/readyz").text == "ready\n"
        assert time.monotonic() - begun < 5


@contextmanager
def command_for_images(folder: Path, *limits: str) -> Iterator[tuple[Service, subprocess.Popen[str]]]:
    """`ucds serve` in a process of its own, with a key."""
    run = folder / "run"
    (key,) = label_service.make_run(run, "ucds/oriented_edges")
    options = [word for limit in limits for word in ("--limit", limit)]
    with label_service.service(run, "--port", 0, *options) as (process, url):
        yield Service(url, key=key), process
    assert verify(run).faults == ()


@pytest.mark.slow
def test_sigterm_ends_the_service_whatever_is_being_decoded(tmp_path: Path) -> None:
    limits = ("decode-seconds=600", "shutdown-seconds=1", "waste-seconds=1000")
    with command_for_images(tmp_path, *limits) as (service, process), ThreadPoolExecutor(1) as pool:
        lost = pool.submit(service.ask, label_service.slow_bmp())  # whose decoding takes some 3 s
        time.sleep(1)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert time.monotonic() - begun < 14
        assert lost.exception() or lost.result().status_code >= 500


def bombard(service: Service, requests: list[Request]) -> list[int]:
    with service.client() as client, ThreadPoolExecutor(8) as pool:

        def send(request: Request) -> int:
            answer = client.post("/v1/labels", content=request[0], headers=request[1])
            if answer.status_code != 200:
                check_no_label(answer, repr(request[0][:80]))
            return answer.status_code

        return list(pool.map(send, requests))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_five_thousand_malformed_requests(tmp_path: Path) -> None:
    """Memory is compared once each kind of bad requests was seen."""
    corpus, mutated, sent = list(bad_requests().values()), mutations(seed=1), 0
    with command_for_images(tmp_path, *SMALL) as (service, process):
        labels = service.ask(picture(2), picture(9)).json()["labels"]
        bombard(service, corpus * 2 + [mutated() for _ in range(100)])
        before = psutil.Process(process.pid).memory_info().rss
        while sent < 5000:
            wave = corpus + [mutated() for _ in range(450)]
            assert max(bombard(service, wave)) < 500
            sent += len(wave)
        grown = psutil.Process(process.pid).memory_info().rss - before
        assert service.ask(picture(2), picture(9)).json()["labels"] == labels
    assert grown < 100 * 2**20
