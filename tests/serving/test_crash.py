"""The server is killed at any moment: nothing is charged twice, nothing given is forgotten."""

from __future__ import annotations

import random
import time
from pathlib import Path

import label_service
import pytest
from serving_kit import Clients, make_run

from ucds.serving.ledger import Ledger
from ucds.serving.verify import verify

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
