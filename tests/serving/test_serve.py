"""The service from a run folder on, by Python and as a command: its start and end, kills, full load."""

import asyncio
import itertools
import random
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import label_service
import numpy as np
import psutil
import pytest
from serving_kit import (
    WIDTH,
    FakeLabeller,
    K,
    Service,
    asking,
    command_for_images,
    free_port,
    in_thread,
    make_run,
    refused,
    running,
    vector,
    wait_until,
)

from ucds.errors import DamagedFileError, InputError, UserError
from ucds.serving.ledger import Ledger
from ucds.serving.limits import Limits
from ucds.serving.serve import serve
from ucds.serving.signing import Signer
from ucds.serving.verify import verify


@contextmanager
def started(run: Path, notices: list[str], **options: Any) -> Iterator[Service]:
    start = partial(serve, run, port=0, notice=notices.append, accelerator="cpu", **options)
    with in_thread(lambda ready, stop: start(ready=ready, stop=stop)) as url:
        yield Service(url)


def test_the_first_start_makes_a_ledger_and_shows_a_key(tmp_path: Path) -> None:
    run, notices = make_run(tmp_path / "mine"), list[str]()
    with started(run, notices, limits=Limits(max_batch=7, max_image_pixels=99)) as service:
        key = notices[-1].rpartition(" ")[2]
        assert service.ask(vector(1), key=key).status_code == 200
        info = service.info(key)
    assert (info["provider"], info["n_clusters"], info["width"]) == ("mine", K, WIDTH)
    assert (info["max_batch"], info["max_image_pixels"], info["balance"]["budget"]) == (7, 99, 10_000)
    with pytest.raises(httpx.ConnectError):
        service.info(key)
    notices.clear()
    with started(run, notices) as service:
        assert service.ask(vector(1), key=key).status_code == 200  # the same ledger
    assert not notices
    files = {path.name: path for path in run.iterdir() if path.suffix != ".safetensors"}
    assert {path.stat().st_mode & 0o077 for path in files.values()} == {0}
    assert {"ledger.sqlite", "signing-key.pem"} <= files.keys()


def test_an_answer_does_not_wait_for_acknowledgements(vectors: Service) -> None:
    times = list[float]()
    with vectors.client() as client:
        for _ in range(40):  # on one connection
            begun = time.monotonic()
            client.get("/v1/info").raise_for_status()
            times.append(time.monotonic() - begun)
    assert min(times[20:]) < 0.03  # the system would wait 40 ms each time once the connection is old


def test_a_ledger_elsewhere_and_one_without_an_active_key(tmp_path: Path) -> None:
    run, elsewhere, notices = make_run(tmp_path / "mine"), tmp_path / "keys.sqlite", list[str]()
    book = Ledger(elsewhere, create=True)
    key = book.add_key("anna", 5)
    with started(run, notices, ledger=elsewhere) as service:
        assert httpx.get(f"{service.url}/v1/info").status_code == 401
        assert service.ask(vector(1), key=key).status_code == 200
    assert not (run / "ledger.sqlite").exists()
    assert not notices
    book.revoke_key("anna")
    book.close()
    with started(run, notices, ledger=elsewhere):
        assert "no active key" in notices[0]


def test_what_cannot_be_served_is_refused_and_leaves_no_thread_behind(tmp_path: Path) -> None:
    run = make_run(tmp_path / "mine")
    theirs = make_run(tmp_path / "theirs", role="target")
    before, taken = set(threading.enumerate()), socket.create_server(("127.0.0.1", 0))
    refusals: list[tuple[type[UserError], str, dict[str, Any]]] = [
        (InputError, "not a run folder", {"run": tmp_path / "nothing"}),
        (InputError, "role 'target'", {"run": theirs}),
        (InputError, "no address", {"run": run, "host": "no such host.invalid"}),
        (InputError, "can be reached from other machines.* `behind_proxy`", {"run": run, "host": "0.0.0.0"}),
        (InputError, "can be reached from other machines", {"run": run, "host": ""}),
        (InputError, "address or network of a proxy", {"run": run, "behind_proxy": "proxy"}),
        (InputError, "no address: leave", {"run": run, "host": "unix:x", "behind_proxy": "::1"}),
        (InputError, "no ledger", {"run": run, "host": "0.0.0.0", "behind_proxy": "10.0.0.0/8"}),
        (InputError, "at least one sample", {"run": run, "model_batch": 0}),
        (InputError, "no folder", {"run": run, "ledger": tmp_path / "no" / "such.sqlite"}),
        (DamagedFileError, "cannot be used", {"run": run, "ledger": run / "model.safetensors"}),
        (InputError, "cannot listen", {"run": run, "port": taken.getsockname()[1]}),
        (InputError, "cannot listen", {"run": run, "host": f"unix:{tmp_path}/no/such/folder"}),
        (InputError, "cannot listen", {"run": run, "host": f"unix:{tmp_path}/{'long' * 50}"}),
    ]
    with taken:
        for kind, words, arguments in refusals:
            with pytest.raises(kind, match=words):
                serve(**({"port": 0} | arguments), accelerator="cpu")
    wait_until(lambda: set(threading.enumerate()) <= before, seconds=10)


def test_inside_a_running_event_loop_it_is_refused_before_any_work() -> None:
    async def call() -> None:
        serve("nowhere")

    with pytest.raises(InputError, match="call `serve` in another thread"):
        asyncio.run(call())


@pytest.mark.timeout(300)
def test_the_command_hides_its_memory_and_ends_with_status_0_at_sigterm(tmp_path: Path) -> None:
    run, marks = make_run(tmp_path / "mine"), tmp_path / "checkpoints"
    with label_service.service(run, "--port", 0, "--checkpoints", marks) as (process, url):
        owner = Path(f"/proc/{process.pid}/mem").stat().st_uid
        assert owner == 0  # what is not dumpable belongs to root, whoever runs it
        assert httpx.get(f"{url}/v1/info").status_code == 401
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert re.fullmatch(r'(\{"signer":.*\}\n)+', marks.read_text())


CLIENTS, REPLICAS, MOMENTS = 64, 2, 30
LATE = timedelta(seconds=20)  # of the clock of each replica against that of the one before


def storm(services: list[Service], samples: int, each: int) -> list[int]:
    """Ask for distinct samples, once of each service and then from all clients at once: what each answered.

    Without the first requests, one service may use up the budget before the other was scheduled at all.
    """

    def ask(start: int) -> int:
        numbers = range(start, min(start + each, samples))
        answer = services[start // each % REPLICAS].ask(*(vector(number % 7, number) for number in numbers))
        if answer.status_code != 200:
            refused(answer, 429, "over-budget")
            assert "retry-after" not in answer.headers  # by which a client knows it from a rate
            return 0
        assert answer.json()["labels"] == [number % 7 for number in numbers]
        return len(numbers)

    starts = range(0, samples, each)
    given = [ask(start) for start in starts[:REPLICAS]]
    with ThreadPoolExecutor(CLIENTS) as pool:
        given += pool.map(ask, starts[REPLICAS:])
    return [sum(given[number::REPLICAS]) for number in range(REPLICAS)]


@pytest.mark.parametrize(
    ("samples", "each", "budget"), [(90, 3, 42), pytest.param(3000, 1, 1000, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_two_replicas_answer_exactly_a_budget(
    tmp_path: Path, kind: str, samples: int, each: int, budget: int, request: pytest.FixtureRequest
) -> None:
    place = tmp_path if kind == "sqlite" else request.getfixturevalue("postgres_url")
    name, signer, limits = f"shared-{samples}", Signer.open(tmp_path / "key.pem"), Limits(waste_seconds=1e6)
    with ExitStack() as stack:
        clocks = [lambda late=late: datetime.now(UTC) - late * LATE for late in range(REPLICAS)]
        books = [stack.enter_context(closing(Ledger(place, create=True, clock=clock))) for clock in clocks]
        key = books[0].add_key(name, budget)
        services = [
            stack.enter_context(running(FakeLabeller(), book, limits, signer=signer)) for book in books
        ]
        for service in services:
            service.key = key
        answered = storm(services, samples, each)
        record = next(record for record in books[0].list_keys() if record.name == name)
    assert sum(answered) == record.used == budget
    assert all(answered)
    assert verify(place).faults == ()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sigkill_at_thirty_moments(tmp_path: Path) -> None:
    run, port, dice = make_run(tmp_path / "run"), free_port(), random.Random(0)
    with closing(Ledger(run, create=True)) as book, ExitStack() as clients:
        key = book.add_key("anna", 10**9)
        labels = clients.enter_context(asking(Service(f"http://127.0.0.1:{port}", key=key)))
        for _ in range(MOMENTS):
            with label_service.service(run, "--port", port) as (process, _):
                time.sleep(dice.uniform(0.2, 1.2))
                process.kill()
            assert verify(run).faults == ()
        with label_service.service(run, "--port", port):
            clients.close()
        assert len(labels) > MOMENTS
        assert book.list_keys()[0].used == len(labels)
    assert verify(run).faults == ()
    print(f"{len(labels)} samples, {MOMENTS} kills, {verify(run).number} entries")


MINUTES, CONNECTIONS = 4, 8


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_full_load_wears_nothing(tmp_path: Path) -> None:
    """Minute by minute, memory stays and an answer costs as much, also with a light model."""
    run, serials, images = tmp_path / "run", itertools.count(), label_service.make_images(32)
    minutes, memory, work = list[int](), list[float](), list[float]()  # the first of each answer
    with command_for_images(run) as (service, started), ThreadPoolExecutor(CONNECTIONS) as pool:
        process, begun = psutil.Process(started.pid), time.monotonic()

        def ask() -> None:
            with service.client() as client:
                while (start := time.monotonic() - begun) < 60 * MINUTES:
                    request = label_service.labels_request(client, label_service.fresh(images, serials))
                    client.send(request).raise_for_status()
                    minutes.append(int(start // 60))

        asking = [pool.submit(ask) for _ in range(CONNECTIONS)]
        for minute in range(1 + MINUTES):
            time.sleep(max(0.0, begun + 60 * minute - time.monotonic()))
            memory.append(process.memory_info().rss / 2**20)
            work.append(sum(process.cpu_times()[:2]))  # without the processes that decode
        for one in asking:
            one.result()
    with closing(Ledger(run)) as book:
        assert book.list_keys()[0].used == len(images) * len(minutes)
    assert max(memory[1:]) - min(memory[1:]) < 50  # MiB; the first minute warms up
    each = np.diff(work) / np.bincount(minutes)
    assert each[2:].mean() < 1.3 * each[:2].mean()
