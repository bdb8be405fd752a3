"""The fixtures of the service's tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `serving_kit`, whichever way pytest imports

from ledger_kit import Provider
from postgres import postgresql
from serving_kit import SMALL, FakeImageLabeller, FakeLabeller, Service, running

from ucds.serving.ledger import Ledger
from ucds.serving.limits import Limits
from ucds.serving.signing import Signer


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    book = Ledger(tmp_path, create=True)
    yield book
    book.close()


@pytest.fixture
def provider(ledger: Ledger, tmp_path: Path) -> Iterator[Provider]:
    signer = Signer.open(tmp_path / "key.pem")
    ledger.set_signer(signer.public)
    made = Provider(ledger, signer, tmp_path)
    yield made
    made.ledger.close()


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    with postgresql() as url:
        yield url


@pytest.fixture
def vectors(ledger: Ledger) -> Iterator[Service]:
    """Answers for embeddings, to one key with a budget of 100."""
    key = ledger.add_key("anna", 100)
    with running(FakeLabeller(), ledger, Limits(max_batch=20, max_queue=64, body_seconds=1)) as service:
        service.key = key
        yield service


@pytest.fixture
def pictures(ledger: Ledger) -> Iterator[Service]:
    """Answers for images, to one key with a budget of 100."""
    limits = Limits.parse([*SMALL, "max-queue=64", "body-seconds=1"])
    key = ledger.add_key("bert", 100)
    with running(FakeImageLabeller(), ledger, limits) as service:
        service.key = key
        yield service
