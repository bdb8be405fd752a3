"""The server is killed at any moment: nothing is charged twice, nothing given is forgotten."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import httpx
import pytest
from serving_kit import NPY, make_run, npy, serving_process, vector

from ucds.serving.ledger import Ledger

MOMENTS, CLIENTS, EACH = 20, 6, 3


class Clients:
    """Ask for new samples all the time, each until it is answered; and note every label."""

    def __init__(self, key: str) -> None:
        self.labels: dict[int, int] = {}
        self.contradictions: list[int] = []
        self.url = ""
        self._headers = NPY | {"Authorization": f"Bearer {key}"}
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._next = 0
        self._threads = [threading.Thread(target=self._work) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        with httpx.Client(headers=self._headers, timeout=20) as client:
            while not self._stop.is_set():
                with self._lock:
                    numbers = range(self._next, self._next + EACH)
                    self._next += EACH
                self._ask(client, list(numbers))

    def _ask(self, client: httpx.Client, numbers: list[int]) -> None:
        """Until there is an answer: a service that was killed is asked again."""
        body = npy([vector(number % 7, number / 8) for number in numbers])
        while True:
            try:
                answer = client.post(f"{self.url}/v1/labels", content=body)
                answer.raise_for_status()
            except (httpx.HTTPError, httpx.InvalidURL):
                time.sleep(0.1)
                continue
            with self._lock:
                for number, label in zip(numbers, answer.json()["labels"], strict=True):
                    if self.labels.setdefault(number, label) != label:
                        self.contradictions.append(number)
            return

    def finish(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sigkill_at_twenty_moments(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    book = Ledger(run)
    key = book.add_key("anna", 10**9)
    clients, dice = Clients(key), random.Random(0)
    try:
        for _ in range(MOMENTS):
            with serving_process(run) as (process, clients.url):
                time.sleep(dice.uniform(0.2, 1.2))
                process.kill()
            assert book.verify().faults == ()
        with serving_process(run) as (_, clients.url):
            clients.finish()
    finally:
        clients._stop.set()
    assert clients.contradictions == []
    assert len(clients.labels) > MOMENTS
    assert book.list_keys()[0].used == len(clients.labels)
    assert book.verify().faults == ()
    print(f"{len(clients.labels)} samples, {MOMENTS} kills, {book.verify().head.entries} entries")
    book.close()
