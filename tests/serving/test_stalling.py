"""Clients that would stall the service with slow files or bodies, or leave their requests, are held off."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import label_service
import pytest
from label_service import slow_bmp
from serving_kit import (
    NPY,
    FakeImageLabeller,
    FakeLabeller,
    Service,
    children,
    files,
    make_run,
    npy,
    picture,
    refused,
    running,
    vector,
    wait_until,
)
from test_hostile import answer_to, connect, head

from ucds.backbones import build_backbone
from ucds.serving.ledger import Ledger
from ucds.serving.limits import Limits


@pytest.fixture(scope="module")
def slow() -> bytes:
    """A file that takes many seconds to decode."""
    return slow_bmp()


@contextmanager
def pictures_service(
    ledger: Ledger, clock: Callable[[], float] = time.monotonic, **limits: float
) -> Iterator[Service]:
    """Answers for images to the key `honest`; two processes decode."""
    honest = ledger.add_key("honest", 1000)
    settings: dict[str, float] = {"decode_workers": 2, "decode_seconds": 60, "waste_seconds": 1e6}
    found = Limits(**settings | limits)  # type: ignore[arg-type]
    with running(FakeImageLabeller(), ledger, found, clock=clock) as service:
        service.key = honest
        service.ask(*(picture(1, serial=i) for i in range(8)))  # all processes have started
        yield service


def test_an_abandoned_request_is_finished_and_charged_and_its_repeat_is_free(ledger: Ledger) -> None:
    key, labeller = ledger.add_key("anna", 100), FakeLabeller()
    labeller.gate.clear()
    rows = [vector(1, i) for i in range(5)]
    body = npy(rows)
    with running(labeller, ledger) as service:
        with connect(service) as connection:
            words = head(key, f"Content-Length: {len(body)}", type_=NPY["Content-Type"])
            connection.sendall(words + body)
            wait_until(lambda: service.queued == 5)
        labeller.gate.set()
        wait_until(lambda: ledger.list_keys()[0].used == 5)
        batches = labeller.batches
        answer = service.ask(*rows, key=key).json()
    assert (answer["labels"], answer["budget"]["used"], labeller.batches) == ([1] * 5, 5, batches)


def test_abandoned_bodies_are_waste(ledger: Ledger) -> None:
    with running(FakeImageLabeller(), ledger, Limits(waste_seconds=0.1)) as service:
        hostile = ledger.add_key("worse", 100)
        for _ in range(8):
            with connect(service) as connection:
                connection.sendall(head(hostile, "Content-Length: 1000") + b"--b")
                time.sleep(0.05)

        wait_until(lambda: "over-waste" in service.ask(picture(1), key=hostile).text)


def test_requests_beyond_the_share_of_a_key_are_refused_by_their_headers_or_are_waste(ledger: Ledger) -> None:
    key, labeller = ledger.add_key("anna", 100), FakeLabeller()
    limits = Limits(max_batch=8, max_queue=24, waste_seconds=0.03, body_seconds=30)

    def ask(start: int, count: int) -> httpx.Response:
        return service.ask(*(vector(1, start + i) for i in range(count)), key=key)

    with running(labeller, ledger, limits) as service, ThreadPoolExecutor() as pool:
        labeller.gate.clear()
        begun = [pool.submit(ask, 0, 8)]
        wait_until(lambda: service.queued == 8)
        begun.append(pool.submit(ask, 8, 4))
        wait_until(lambda: service.queued == 12)
        words = head(key, "Content-Length: 999", type_=NPY["Content-Type"])
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


def test_who_keeps_sending_unusable_images_is_slowed_then_refused_for_a_while(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    with pictures_service(ledger, waste_seconds=0.5) as service:
        hostile = ledger.add_key("worse", 100)
        bad = [b"no image %d" % i for i in range(48)]
        answers = [service.ask(*bad[8 * i : 8 * i + 8], key=hostile) for i in range(6)]
        assert service.ask(picture(2, serial=50)).status_code == 200
        assert service.figure("ucds_samples_unusable_total") >= 8
    statuses = [answer.status_code for answer in answers]
    assert (statuses[0], statuses[-1]) == (200, 429)
    assert answers[0].json()["labels"] == [None] * 8
    assert int(answers[-1].headers["retry-after"]) > 0
    assert [r.message for r in caplog.records if '"event": "waste", "key": "worse"' in r.message]


def test_what_was_found_unusable_before_a_refusal_is_not_paid_for_again(ledger: Ledger) -> None:
    """So an honest client with many broken files comes to an end."""
    now, key, refusals = 0.0, ledger.add_key("anna", 1000), 0
    contents = [*(b"broken %d" % i for i in range(100)), picture(4)]
    with pictures_service(ledger, lambda: now, waste_seconds=1.0) as service:
        while (answer := service.ask(*contents, key=key)).status_code == 429:
            refusals, now = refusals + 1, now + int(answer.headers["retry-after"])
            assert refusals < 4  # 100 images cost two seconds in all
    assert refusals > 0
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
        hostile = ledger.add_key("worse", 100)
        for _ in range(10):
            connection = stack.enter_context(connect(service))
            connection.sendall(head(hostile, "Content-Length: 1000") + b"--b")
        time.sleep(0.5)
        answer = service.ask(picture(1), key=hostile)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert service.ask(picture(1, serial=70)).status_code == 200


def test_a_refused_upload_of_64_mib_arrives_as_its_refusal(ledger: Ledger) -> None:
    with running(FakeImageLabeller(), ledger) as service:
        for key, status in (("ucds_wrong", 401), (ledger.add_key("anna", 1), 413)):
            headers = {"Authorization": f"Bearer {key}", "Content-Type": "multipart/form-data; boundary=b"}
            length = {"Content-Length": str(64 * 2**20 + 1)}
            body = (bytes(2**20) if i < 64 else b"x" for i in range(65))
            answer = httpx.post(
                f"{service.url}/v1/labels", content=body, headers=headers | length, timeout=60
            )
            assert answer.status_code == status


def test_the_operator_is_answered_while_clients_hold_the_service(ledger: Ledger) -> None:
    with running(FakeLabeller(), ledger, Limits(body_seconds=30)) as service, ExitStack() as stack:
        key = ledger.add_key("worse", 100)
        for i in range(100):
            connection = stack.enter_context(connect(service))
            if i % 2:
                words = head(key, "Content-Length: 1000", type_=NPY["Content-Type"])
                connection.sendall(words + b"x")
        begun = time.monotonic()
        assert httpx.get(f"{service.ops}/healthz").text == "ok\n"
        assert httpx.get(f"{service.ops}/readyz").text == "ready\n"
        assert time.monotonic() - begun < 5


@pytest.mark.slow
def test_sigterm_ends_the_service_whatever_is_being_decoded(tmp_path: Path, slow: bytes) -> None:
    run = make_run(tmp_path / "run", build_backbone("ucds/oriented_edges", weights="none"))
    book = Ledger(run, create=True)
    headers = {"Authorization": f"Bearer {book.add_key('anna', 100)}"}
    book.close()
    limits = ("decode-seconds=600", "shutdown-seconds=1", "waste-seconds=1000")
    options = [word for limit in limits for word in ("--limit", limit)]
    with label_service.service(run, "--port", 0, *options) as (process, url), ThreadPoolExecutor(1) as pool:
        lost = pool.submit(httpx.post, f"{url}/v1/labels", files=files(slow), headers=headers, timeout=60)
        time.sleep(3)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert time.monotonic() - begun < 14
        assert lost.exception() or lost.result().status_code >= 500
