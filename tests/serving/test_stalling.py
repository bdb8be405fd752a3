"""Clients that would stall the service with slow files, slow bodies or idle connections are held off."""

from __future__ import annotations

import gc
import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx
import pytest
from hostile import multipart
from hostile_files import slow_bmp
from serving_kit import (
    FakeImageLabeller,
    FakeLabeller,
    Service,
    files,
    in_thread,
    make_run,
    picture,
    running,
    serving_process,
    wait_until,
)
from test_hostile import connect, head

from ucds.backbones import build_backbone
from ucds.serving.app import create_app
from ucds.serving.ledger import Ledger
from ucds.serving.protocol import PatientProtocol
from ucds.serving.server import Address, run_server
from ucds.serving.settings import Limits


@pytest.fixture(scope="module")
def slow() -> bytes:
    """A file that takes many seconds to decode."""
    return slow_bmp()


@contextmanager
def pictures_service(ledger: Ledger, **limits: float) -> Iterator[Service]:
    """Answers for images to the keys `honest` and `hostile`; two processes decode."""
    honest, hostile = ledger.add_key("honest", 1000), ledger.add_key("hostile", 1000)
    settings: dict[str, float] = {"decode_workers": 2, "decode_seconds": 60, "waste_seconds": 1e6}
    with running(FakeImageLabeller(), ledger, Limits(**settings | limits)) as service:  # type: ignore[arg-type]
        service.key = honest
        with service.client() as client:  # all processes have started
            client.post("/v1/labels", files=files(*(picture(1, serial=i) for i in range(8))))
        yield service
        service.key = hostile


def children() -> set[int]:
    """Processes that decode, which this one has started."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(number) for numbers in lists for number in numbers.read_text().split()}


def connections() -> list[PatientProtocol]:
    """Connections of services that are still in memory, closed ones too."""
    return [found for found in gc.get_referrers(PatientProtocol) if isinstance(found, PatientProtocol)]


def send_and_stay(service: Service, key: str, data: bytes) -> ExitStack:
    """Send one image on a connection, which stays open."""
    stack, honest = ExitStack(), service.key
    service.key, body = key, multipart(data)
    connection = stack.enter_context(connect(service))
    connection.sendall(head(service, f"Content-Length: {len(body)}") + body)
    service.key = honest
    return stack


def test_slow_images_of_one_key_leave_a_process_to_the_others(ledger: Ledger, slow: bytes) -> None:
    with pictures_service(ledger) as service, ExitStack() as stack:
        hostile = ledger.add_key("worse", 100)
        held = service.app.state.answering.queue
        for i in range(3):
            stack.enter_context(send_and_stay(service, hostile, slow + bytes(i)))
        wait_until(lambda: held.held == 3)
        with service.client() as client:
            for serial in range(5):
                answer = client.post("/v1/labels", files=files(picture(3, serial=100 + serial)))
                assert answer.json()["labels"] == [3]
            assert client.get("/healthz").status_code == 200
        assert held.held == 3  # the slow ones are still under way


def test_work_is_dropped_when_its_client_leaves(ledger: Ledger, slow: bytes) -> None:
    with pictures_service(ledger, waste_seconds=2.0) as service:
        hostile, queue = ledger.add_key("worse", 100), service.app.state.answering.queue
        with send_and_stay(service, hostile, slow):
            wait_until(lambda: queue.held == 1)
            time.sleep(2.5)
        wait_until(lambda: queue.held == 0, 5)
        with service.client(key=hostile) as client:  # and it is paid for
            answer = client.post("/v1/labels", files=files(picture(1)))
    assert answer.status_code == 429
    assert answer.json()["type"] == "urn:ucds:problem:over-waste"
    assert next(key.used for key in ledger.list_keys() if key.name == "worse") == 0


def test_who_keeps_sending_unusable_images_is_refused_for_a_while(ledger: Ledger) -> None:
    with pictures_service(ledger, waste_seconds=0.5) as service:
        hostile = ledger.add_key("worse", 100)
        with service.client(key=hostile) as client:
            bad = [b"no image %d" % i for i in range(48)]
            answers = [client.post("/v1/labels", files=files(*bad[8 * i : 8 * i + 8])) for i in range(6)]
        with service.client() as client:
            assert client.post("/v1/labels", files=files(picture(2, serial=50))).status_code == 200
        metrics = httpx.get(f"{service.url}/metrics").text
    statuses = [answer.status_code for answer in answers]
    assert statuses[0] == 422
    assert statuses[-1] == 429
    assert int(answers[-1].headers["retry-after"]) > 0
    assert "ucds_samples_unusable_total" in metrics


def test_who_sent_unusable_images_gives_way_to_the_others(ledger: Ledger) -> None:
    with pictures_service(ledger, waste_seconds=0.4) as service:  # 0.02 are made up for in 3 s
        started, hostile = children(), ledger.add_key("worse", 100)
        with service.client(key=hostile) as client:
            assert client.post("/v1/labels", files=files(b"no image")).status_code == 422
            assert children() == started
            assert client.post("/v1/labels", files=files(picture(1))).status_code == 200
        (own,) = children() - started
        assert os.getpriority(os.PRIO_PROCESS, own) > os.getpriority(os.PRIO_PROCESS, 0)
        with service.client() as client:
            assert client.post("/v1/labels", files=files(picture(1, serial=60))).status_code == 200
        assert children() == started | {own}


def test_a_request_full_of_slow_images_is_given_up(ledger: Ledger, slow: bytes) -> None:
    bad = slow[: len(slow) // 40]
    limits = {"waste_seconds": 0.1, "max_image_bytes": 2**20}
    with pictures_service(ledger, **limits) as service, service.client() as client:
        answer = client.post("/v1/labels", files=files(*(bad + bytes(i) for i in range(12))))
    assert answer.status_code == 422
    assert 0 < len(answer.json()["invalid"]) < 12


def test_slow_bodies_of_one_key_do_not_take_all_places(ledger: Ledger) -> None:
    with pictures_service(ledger, max_requests=6, body_seconds=20) as service, ExitStack() as stack:
        hostile, service.key = ledger.add_key("worse", 100), service.key
        honest = service.key
        service.key = hostile
        for _ in range(10):
            connection = stack.enter_context(connect(service))
            connection.sendall(head(service, "Content-Length: 1000") + b"--b")
        service.key = honest
        with service.client(key=hostile) as client:
            answer = client.post("/v1/labels", files=files(picture(1)))
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        with service.client() as client:
            assert client.post("/v1/labels", files=files(picture(1, serial=70))).status_code == 200


def test_idle_connections_make_room_for_new_ones() -> None:
    limits = Limits(max_connections=12, max_requests=4, header_seconds=30)
    with running(FakeLabeller(), limits=limits) as service, ExitStack() as stack:
        idle = [stack.enter_context(connect(service)) for _ in range(30)]
        for _ in range(5):
            assert httpx.get(f"{service.url}/healthz", timeout=10).status_code == 200
        closed = 0
        for connection in idle:
            connection.settimeout(0.01)
            try:
                closed += connection.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                closed += 1
        assert closed >= 30 - 6  # half of all is the most for one address


def test_clients_that_do_not_read_make_room_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PatientProtocol, "unread_seconds", 0.5)
    limits, question = (
        Limits(max_connections=8, max_requests=4),
        b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n",
    )
    with running(FakeLabeller(), limits=limits) as service, ExitStack() as stack:
        for number in range(8):  # of two addresses, each with half of all connections
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.bind((f"127.0.0.{2 + number % 2}", 0))
            connection.connect(("127.0.0.1", int(service.url.rpartition(":")[2])))
            connection.sendall(400 * question)

        def is_answered() -> bool:
            with suppress(httpx.TransportError):
                return httpx.get(f"{service.url}/healthz").status_code == 200
            return False

        wait_until(is_answered, 20)


def test_closed_connections_are_no_work_for_the_collector() -> None:
    with running(FakeLabeller()) as service:
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                with connect(service):
                    pass
                httpx.get(f"{service.url}/healthz")
            wait_until(lambda: not connections(), 5)
        finally:
            gc.enable()


def test_health_has_connections_of_its_own() -> None:
    limits = Limits(max_connections=12, max_requests=4, header_seconds=30)
    address = Address(port=0, health_port=0)
    app = create_app(FakeLabeller(), limits=limits)
    with address.bind() as bound, ExitStack() as stack:
        assert bound.health is not None
        watched = f"http://127.0.0.1:{bound.health.getsockname()[1]}/healthz"
        serve = partial(run_server, app, address, limits, bound=bound)
        url = stack.enter_context(in_thread(serve))
        service = Service(url, app, None, None)
        with httpx.Client() as watching:
            assert watching.get(watched).status_code == 200
            connection = watching.get(watched).extensions["network_stream"].get_extra_info("client_addr")
            for _ in range(30):  # of the same address
                stack.enter_context(connect(service))
            assert httpx.get(f"{url}/healthz", timeout=10).status_code == 200
            again = watching.get(watched).extensions["network_stream"].get_extra_info("client_addr")
    assert again == connection  # which was not closed for others


@pytest.mark.slow
def test_sigterm_ends_the_service_whatever_is_being_decoded(tmp_path: Path, slow: bytes) -> None:
    run = make_run(tmp_path / "run", build_backbone("ucds/oriented_edges", weights="none"))
    options = ("--open", "--decode-seconds", "600", "--stop-seconds", "1", "--waste-seconds", "1000")
    with serving_process(run, *options) as (process, url), ThreadPoolExecutor(1) as pool:
        lost = pool.submit(httpx.post, f"{url}/v1/labels", files=files(slow), timeout=60)
        wait_until(lambda: "ucds_samples_queued 1.0" in httpx.get(f"{url}/metrics").text)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert time.monotonic() - begun < 20
        assert lost.exception() or lost.result().status_code >= 500
