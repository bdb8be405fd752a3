"""Clients under load and kills: never one answer more than a budget has, never one charged for nothing."""

from __future__ import annotations

import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import label_service
import pytest
from serving_kit import NPY, Clients, FakeLabeller, K, make_run, npy, running, vector

from ucds.serving.ledger import Ledger
from ucds.serving.signing import Signer
from ucds.serving.verify import verify

CLIENTS, BUDGET = 64, 1000
LATE = timedelta(seconds=20)  # of the clock of each replica against that of the one before


def storm(urls: list[str], key: str, samples: int, each: int) -> tuple[list[int], set[int]]:
    """Ask for distinct samples from all clients at once: how many each service answered, and all statuses."""

    def work(client: int) -> tuple[int, set[int]]:
        answered, statuses = 0, set()
        headers = NPY | {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=urls[client % len(urls)], headers=headers, timeout=120) as http:
            for start in range(client * each, samples, CLIENTS * each):
                numbers = range(start, min(start + each, samples))
                body = npy([vector(number % K, number) for number in numbers])
                answer = http.post("/v1/labels", content=body)
                statuses.add(answer.status_code)
                if answer.status_code == 200:
                    assert answer.json()["labels"] == [number % K for number in numbers]
                    answered += len(numbers)
        return answered, statuses

    with ThreadPoolExecutor(CLIENTS) as pool:
        results = list(pool.map(work, range(CLIENTS)))
    answered = [sum(count for count, _ in results[number :: len(urls)]) for number in range(len(urls))]
    return answered, set().union(*(statuses for _, statuses in results))


def check(place: str | Path, replicas: int, samples: int, each: int, budget: int = BUDGET) -> None:
    with ExitStack() as stack:
        clocks = [lambda late=late: datetime.now(UTC) - late * LATE for late in range(replicas)]
        books = [Ledger(place, create=True, clock=clock) for clock in clocks]
        key = books[0].add_key("shared", budget)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        signer = Signer.open(Path(folder, "key.pem"))
        services = [stack.enter_context(running(FakeLabeller(), book, signer=signer)) for book in books]
        answered, statuses = storm([service.url for service in services], key, samples, each)
        record = next(record for record in books[0].list_keys() if record.name == "shared")
        verdict = verify(place)
    for book in books:
        book.close()
    assert statuses == {200, 429}
    assert sum(answered) == budget
    assert all(answered)
    assert record.used == budget
    assert verdict.faults == ()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_two_replicas_answer_exactly_a_small_budget(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    place = tmp_path if kind == "sqlite" else request.getfixturevalue("postgres_url")
    check(place, replicas=2, samples=390, each=3, budget=180)


@pytest.mark.slow
def test_sqlite_answers_exactly_a_thousand_of_three_thousand(tmp_path: Path) -> None:
    check(tmp_path, replicas=1, samples=3000, each=1)


@pytest.mark.slow
def test_postgresql_answers_exactly_a_thousand_of_three_thousand(postgres_url: str) -> None:
    check(postgres_url, replicas=2, samples=3000, each=1)


MOMENTS = 30


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sigkill_at_thirty_moments(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    book = Ledger(run, create=True)
    key = book.add_key("anna", 10**9)
    clients, dice = Clients(key), random.Random(0)
    try:
        for _ in range(MOMENTS):
            with label_service.service(run, "--port", 0) as (process, clients.url):
                time.sleep(dice.uniform(0.2, 1.2))
                process.kill()
            assert verify(run).faults == ()
        with label_service.service(run, "--port", 0) as (_, clients.url):
            clients.finish()
    finally:
        clients.stop.set()
    assert clients.contradictions == []
    assert len(clients.labels) > MOMENTS
    assert book.list_keys()[0].used == len(clients.labels)
    assert verify(run).faults == ()
    print(f"{len(clients.labels)} samples, {MOMENTS} kills, {verify(run).number} entries")
    book.close()


BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "serving.py"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_ten_minutes_at_full_load(tmp_path: Path) -> None:
    record = tmp_path / "soak.md"
    command = [sys.executable, str(BENCHMARK), "--soak", "10", "--out", str(record)]
    subprocess.run(command, check=True, capture_output=True, timeout=1100)
    written = record.read_text()
    told = re.search(r"([\d,]+) images answered, .* the ledger holds ([\d,]+);", written)
    assert told is not None
    assert told[1] == told[2]
    assert "its audit chain verifies" in written
    rows = [line.strip("| ").split(" | ") for line in written.splitlines() if re.match(r"\| [\d.]+ \|", line)]
    memory, work, p99 = ([float(row[column]) for row in rows] for column in (1, 2, 4))
    assert len(rows) == 10
    assert max(memory) - min(memory) < 50  # MiB; the first row is already warm
    assert statistics.median(work[5:]) < 1.3 * statistics.median(work[:5])
    # The quickest of the later minutes: in the others the machine may have had more other work.
    assert min(p99[5:]) < 1.5 * statistics.median(p99[:5])
