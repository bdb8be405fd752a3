"""Several processes on one socket: exact budgets, one rate, and deaths that nobody notices."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from postgres import postgresql
from serving_kit import NPY, Clients, make_run, npy, serving_process, vector, wait_until

from ucds.serving.ledger import Ledger
from ucds.serving.rate import FileBuckets, RateLimiter

KILLS, BUDGET = 5, 300

SPEND = """
import sys
from ucds.serving.rate import FileBuckets, RateLimiter
limiter = RateLimiter(lambda: 1.0, FileBuckets(int(sys.argv[1])))
for _ in range(200):
    limiter.pay(7, 1000.0, 3)
"""


def test_processes_share_the_rate_of_a_key() -> None:
    with tempfile.TemporaryFile() as file:
        number = file.fileno()
        limiter = RateLimiter(lambda: 1.0, FileBuckets(number))
        assert limiter.pay(7, 1000.0, 0) == 10_000
        command = [sys.executable, "-c", SPEND, str(number)]
        spending = [subprocess.Popen(command, pass_fds=[number]) for _ in range(2)]
        for _ in range(200):
            limiter.pay(7, 1000.0, 3)
        assert [process.wait(120) for process in spending] == [0, 0]
        assert limiter.pay(7, 1000.0, 0) == 10_000 - 3 * 200 * 3
        assert limiter.pay(6, 1000.0, 0) == limiter.pay(8, 1000.0, 0) == 10_000  # keys are apart


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "ledger.sqlite")
    else:
        with postgresql() as url:
            yield url


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """Return the ids of the workers of a service that live."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    lines = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    return [pid for pid, line in lines.items() if b"ucds.serving.worker" in line]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="workers are found in /proc")
def test_workers_that_are_killed_under_load_lose_nothing(
    place: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run, dice = make_run(tmp_path / "run"), random.Random(0)
    book = Ledger(place)
    clients = Clients(book.add_key("anna", 10**9), count=8)
    options, killed = ["--workers", "2", "--ledger", place], set[int]()

    def alive() -> list[int]:
        return [pid for pid in workers_of(process) if pid not in killed]

    try:
        with serving_process(run, *options) as (process, clients.url):
            for _ in range(KILLS):
                clients.wait_for(30)
                wait_until(lambda: len(alive()) == 2, 120)
                time.sleep(dice.uniform(0.0, 0.3))
                victim = dice.choice(alive())
                killed.add(victim)
                os.kill(victim, signal.SIGKILL)
            clients.wait_for(30)
            clients.finish()
            wait_until(lambda: len(alive()) == 2, 120)
            left = alive()
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            assert not any(Path(f"/proc/{pid}").exists() for pid in left)
    finally:
        clients.stop.set()
    assert capfd.readouterr().err.count("\n") == KILLS  # one line a worker, and none at the end
    assert clients.statuses == {200}
    assert clients.contradictions == []
    assert book.list_keys()[0].used == len(clients.labels)
    assert book.verify().faults == ()
    book.close()


@pytest.mark.slow
def test_the_budget_is_exact_over_all_workers(place: str, tmp_path: Path) -> None:
    run, book = make_run(tmp_path / "run"), Ledger(place)
    headers = NPY | {"Authorization": f"Bearer {book.add_key('anna', BUDGET)}"}

    def ask(number: int) -> int:
        body = npy([vector(number % 7, number)])
        return httpx.post(f"{url}/v1/labels", content=body, headers=headers, timeout=60).status_code

    with (
        serving_process(run, "--workers", "2", "--ledger", place) as (_, url),
        ThreadPoolExecutor(16) as pool,
    ):
        statuses = list(pool.map(ask, range(2 * BUDGET)))
    assert statuses.count(200) == BUDGET
    assert statuses.count(429) == BUDGET
    assert book.list_keys()[0].used == BUDGET
    assert book.verify().faults == ()
    book.close()


@pytest.mark.slow
def test_what_a_worker_cannot_open_is_one_line(tmp_path: Path) -> None:
    run = make_run(tmp_path / "theirs", role="target")
    Ledger(run).close()
    command = [sys.executable, "-m", "ucds", "serve", str(run), "--port", "0", "--workers", "2", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if "warning" not in line] == [
        done.stderr.splitlines()[-1]
    ]
    assert "role 'target'" in done.stderr
