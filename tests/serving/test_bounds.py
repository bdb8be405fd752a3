"""Bounds and prices by which one client leaves something for the others, in numbers and over HTTP."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace

import httpx
import pytest
from serving_kit import (
    FakeImageLabeller,
    FakeLabeller,
    Service,
    picture,
    running,
    vector,
    wait_until,
)

from ucds.errors import InputError
from ucds.serving.bounds import Share, Waste, cost_of_refusal
from ucds.serving.ledger import Ledger
from ucds.serving.limits import Limits
from ucds.serving.problems import Refusal

ANNA, BERT = 1, 2


def test_several_keys_together_leave_room_for_the_next_one() -> None:
    share = Share(1024, 512, "samples")
    with ExitStack() as stack:
        for key in range(8):  # each takes all that it can
            with suppress(Refusal):
                while True:
                    stack.enter_context(share.taking(key, 1))
        assert share.held_by(0) == 512
        assert share.held_by(1) == 256
        with share.taking(99, 1):
            pass


def test_waste_slows_then_refuses_then_is_forgiven() -> None:
    now, told = 0.0, list[int]()
    waste = Waste(10.0, told.append, clock=lambda: now)
    waste.charge(ANNA, 4.0)
    assert waste.delay(ANNA) == 0
    waste.charge(ANNA, 3.0)
    assert 0 < waste.delay(ANNA) < 2
    assert waste.delay(BERT) == 0
    for _ in range(2):
        waste.charge(ANNA, 50.0)
    assert told == [ANNA]  # once
    with pytest.raises(Refusal, match="wait") as refused:
        waste.delay(ANNA)
    assert refused.value.kind == "over-waste"
    seconds = int(refused.value.headers["Retry-After"])
    assert seconds == 210  # from 40, the most, to 5 at 10 a minute
    now += seconds - 2
    with pytest.raises(Refusal):
        waste.delay(ANNA)
    now += 3
    assert waste.delay(ANNA) == 0
    now += 3600
    assert waste.debt(ANNA) == 0
    for _ in range(200):  # bad files of an honest client
        waste.charge(ANNA, 0.003 + cost_of_refusal(30_000))
    assert waste.delay(ANNA) == 0


def test_limits_are_set_by_name_and_have_the_type_of_the_default() -> None:
    found = Limits.parse(["max-batch=64", "decode-seconds=2.5", "formats=jpeg,PPM", "client_share=1"])
    assert (found.max_batch, found.decode_seconds, found.formats) == (64, 2.5, ("JPEG", "PPM"))
    assert found.client_share == 1.0
    assert Limits.parse([]) == Limits()
    quarter = Limits(client_share=0.25)
    assert (quarter.for_one(128), quarter.for_one(1024, least=512), quarter.for_one(2)) == (32, 512, 1)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("max-bach=3", "no limit 'max-bach': the limits are max-batch, max-image-bytes"),
        ("max-batch=many", "write max-batch=256"),
        ("max-batch=0", "max_batch must be positive"),
        ("decode-workers=-1", "decode_workers must be positive"),
        ("body-seconds=nan", "body_seconds must be positive"),
        ("shutdown-seconds=inf", "shutdown_seconds must be positive and below"),
        ("formats=SVG", "images can be of the formats .* not 'SVG'"),
        ("max-queue=100", "max_queue 100 must be at least max_batch, 256"),
        ("max-body-bytes=1000", "max_body_bytes must be at least max_request_bytes"),
        ("client-share=1.5", "client_share must be at most 1"),
    ],
)
def test_what_sets_no_limit_or_answers_no_request_is_refused(setting: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Limits.parse([setting])


def test_a_body_that_comes_too_slowly_is_refused(pictures: Service) -> None:
    words = pictures.head("Content-Length: 1000", "Connection: close")
    begun = time.monotonic()
    assert b"HTTP/1.1 408" in pictures.exchange(words, b"--b")
    assert 0.8 < time.monotonic() - begun < 9
    assert pictures.ask(picture(7)).json()["labels"] == [7]


def test_a_repeat_is_free_and_no_less_waste_than_it_costs(ledger: Ledger) -> None:
    with running(FakeLabeller(), ledger, Limits(waste_seconds=5e-7), budget=9) as service:
        assert [service.ask(vector(1)).status_code for _ in range(3)] == [200, 200, 429]
    assert ledger.list_keys()[0].used == 1


def test_requests_beyond_the_memory_are_told_to_come_again(ledger: Ledger) -> None:
    limits = Limits(max_request_bytes=100_000, max_body_bytes=100_000, body_seconds=3)
    with running(FakeImageLabeller(), ledger, limits, budget=10) as service, service.connect() as slow:
        slow.sendall(service.head("Content-Length: 99000") + bytes(50_000))
        time.sleep(0.3)
        answer = service.with_a_new_key().ask(bytes(20_000))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_every_failure_after_a_body_is_waste_and_its_trace_is_logged_once(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    labeller = FakeLabeller()
    labeller.look_at = lambda rows: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    with running(labeller, ledger, Limits(waste_seconds=0.05), budget=100) as service:
        statuses = [service.ask(vector(1, serial)).status_code for serial in range(9)]
    assert statuses == [500] * statuses.count(500) + [429] * statuses.count(429)
    assert 1 < statuses.count(500) < 7
    traces = ["Traceback" in record.message for record in caplog.records if record.name == "ucds.serving"]
    assert (traces.count(True), len(traces)) == (1, statuses.count(500))


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
        assert "problem:busy" in service.with_a_new_key().ask(*(vector(1, i) for i in range(8))).text
        words = service.head("Content-Length: 999", "Connection: close")
        assert b"over-share" in service.exchange(words)
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
    limits = Limits(decode_workers=2, decode_seconds=60, waste_seconds=1.0)
    with running(FakeImageLabeller(), ledger, limits, budget=1000, clock=lambda: now) as service:
        service.ask(*(picture(1, serial=i) for i in range(8)))  # all processes have started
        other = service.with_a_new_key()
        while (answer := service.ask(*contents)).status_code == 429:
            assert other.ask(picture(2, serial=50 + refusals)).status_code == 200
            refusals, now = refusals + 1, now + int(answer.headers["retry-after"])
            assert refusals < 4  # 100 images cost two seconds in all
        assert service.figure("ucds_samples_unusable_total") >= 100
    assert refusals > 0
    assert [r.message for r in caplog.records if '"event": "waste", "key": "anna"' in r.message]
    assert answer.json()["labels"] == [None] * 100 + [4]


def test_slow_bodies_of_one_key_leave_places_to_others_and_to_the_operator(ledger: Ledger) -> None:
    limits = Limits(max_requests=6, body_seconds=20, decode_seconds=60)
    with running(FakeImageLabeller(), ledger, limits, budget=10) as service, ExitStack() as stack:
        for i in range(100):
            connection = stack.enter_context(service.connect())
            connection.sendall(service.head("Content-Length: 1000") + b"--b" if i % 2 else b"")
        time.sleep(0.5)
        answer = service.ask(picture(1))
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert service.with_a_new_key().ask(picture(1)).status_code == 200
        begun = time.monotonic()
        assert httpx.get(f"{service.ops}/healthz").text == "ok\n"
        assert httpx.get(f"{service.ops}/readyz").text == "ready\n"
        assert time.monotonic() - begun < 5


def test_the_refusal_of_a_long_upload_arrives(ledger: Ledger) -> None:
    body, limits = bytes(16 * 2**20), Limits(max_request_bytes=2**20)  # more than a system keeps on the way
    with running(FakeImageLabeller(), ledger, limits) as service:
        for key, status in (("ucds_wrong", 401), (ledger.add_key("anna", 1), 413)):
            assert replace(service, key=key).send(body).status_code == status
