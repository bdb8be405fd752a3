"""Clients under load and kills: never one answer more than a budget has, never one charged for nothing."""

from __future__ import annotations

import itertools
import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import label_service
import numpy as np
import psutil
import pytest
from serving_kit import (
    FakeLabeller,
    Service,
    asking,
    command_for_images,
    free_port,
    make_run,
    running,
    vector,
)

from ucds.serving.ledger import Ledger
from ucds.serving.signing import Signer
from ucds.serving.verify import verify

CLIENTS, REPLICAS = 64, 2
LATE = timedelta(seconds=20)  # of the clock of each replica against that of the one before


def storm(services: list[Service], samples: int, each: int) -> tuple[list[int], set[int]]:
    """Ask for distinct samples from all clients at once: how many each service answered, and all statuses."""

    def ask(start: int) -> tuple[int, int]:
        numbers = range(start, min(start + each, samples))
        answer = services[start // each % REPLICAS].ask(*(vector(number % 7, number) for number in numbers))
        if answer.status_code != 200:
            return 0, answer.status_code
        assert answer.json()["labels"] == [number % 7 for number in numbers]
        return len(numbers), 200

    with ThreadPoolExecutor(CLIENTS) as pool:
        results = list(pool.map(ask, range(0, samples, each)))
    answered = [sum(count for count, _ in results[number::REPLICAS]) for number in range(REPLICAS)]
    return answered, {status for _, status in results}


@pytest.mark.parametrize(
    ("samples", "each", "budget"), [(390, 3, 180), pytest.param(3000, 1, 1000, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_two_replicas_answer_exactly_a_budget(
    tmp_path: Path, kind: str, samples: int, each: int, budget: int, request: pytest.FixtureRequest
) -> None:
    place = tmp_path if kind == "sqlite" else request.getfixturevalue("postgres_url")
    name, signer = f"shared-{samples}", Signer.open(tmp_path / "key.pem")
    with ExitStack() as stack:
        clocks = [lambda late=late: datetime.now(UTC) - late * LATE for late in range(REPLICAS)]
        books = [stack.enter_context(closing(Ledger(place, create=True, clock=clock))) for clock in clocks]
        key = books[0].add_key(name, budget)
        services = [stack.enter_context(running(FakeLabeller(), book, signer=signer)) for book in books]
        for service in services:
            service.key = key
        answered, statuses = storm(services, samples, each)
        record = next(record for record in books[0].list_keys() if record.name == name)
    assert statuses == {200, 429}
    assert sum(answered) == record.used == budget
    assert all(answered)
    assert verify(place).faults == ()


MOMENTS = 30


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sigkill_at_thirty_moments(tmp_path: Path) -> None:
    run, port, dice = make_run(tmp_path / "run"), free_port(), random.Random(0)
    with closing(Ledger(run, create=True)) as book, ExitStack() as clients:
        key = book.add_key("anna", 10**9)
        labels = clients.enter_context(asking(f"http://127.0.0.1:{port}", key))
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


MINUTES, CONNECTIONS = 10, 8


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_ten_minutes_at_full_load(tmp_path: Path) -> None:
    run, serials, images = tmp_path / "run", itertools.count(), label_service.make_images(32)
    times, memory, work = [list[float]() for _ in range(MINUTES)], list[float](), list[float]()
    # A light model: the service itself is worn.
    with command_for_images(run) as (service, started), ThreadPoolExecutor(CONNECTIONS) as pool:
        process, begun = psutil.Process(started.pid), time.monotonic()

        def ask() -> None:
            with service.client() as client:
                while (start := time.monotonic() - begun) < 60 * MINUTES:
                    request = label_service.labels_request(client, label_service.fresh(images, serials))
                    client.send(request).raise_for_status()
                    times[int(start // 60)].append(time.monotonic() - begun - start)

        asking = [pool.submit(ask) for _ in range(CONNECTIONS)]
        for minute in range(1 + MINUTES):
            time.sleep(max(0.0, begun + 60 * minute - time.monotonic()))
            memory.append(process.memory_info().rss / 2**20)
            work.append(sum(process.cpu_times()[:2]))  # without the processes that decode
        for one in asking:
            one.result()
    with closing(Ledger(run)) as book:
        assert book.list_keys()[0].used == len(images) * sum(map(len, times))
    assert max(memory[1:]) - min(memory[1:]) < 50  # MiB; the first minute warms up
    each = np.diff(work) / [len(minute) for minute in times]
    assert np.median(each[5:]) < 1.3 * np.median(each[:5])
    p99 = [float(np.quantile(minute, 0.99)) for minute in times]
    # The quickest of the later minutes: in the others the machine may have had more other work.
    assert min(p99[5:]) < 1.5 * statistics.median(p99[:5])
