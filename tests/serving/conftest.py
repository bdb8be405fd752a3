"""The fixtures of the service's tests."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from ledger_kit import Provider, postgresql
from serving_kit import SMALL, FakeImageLabeller, FakeLabeller, Service, running
from sqlalchemy import create_engine

from ucds.serving.database import ledger_url
from ucds.serving.ledger import Ledger
from ucds.serving.limits import Limits
from ucds.serving.signing import Signer


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(Ledger(tmp_path, create=True)) as book:
        yield book


@pytest.fixture
def provider(ledger: Ledger, tmp_path: Path) -> Iterator[Provider]:
    signer = Signer.open(tmp_path / "key.pem")
    ledger.trust(signer.public)
    made = Provider(ledger, signer, tmp_path)
    yield made
    made.ledger.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    with postgresql() as url:
        yield url


@pytest.fixture(scope="module")
def postgres_url(postgres: str, request: pytest.FixtureRequest) -> str:
    """An empty database for the tests of a module."""
    name = request.module.__name__.rpartition(".")[2]
    with create_engine(ledger_url(postgres), isolation_level="AUTOCOMMIT").connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    return postgres.rpartition("/")[0] + f"/{name}"


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Service]]:
    """One that answers about embeddings and one about images, for all tests that leave them as they are."""
    limits = Limits.parse([*SMALL, "max-queue=64", "body-seconds=1"])
    with ExitStack() as stack:

        def start(labeller: FakeLabeller) -> Service:
            book = stack.enter_context(closing(Ledger(tmp_path_factory.mktemp("service"), create=True)))
            return stack.enter_context(running(labeller, book, limits))

        yield start(FakeLabeller()), start(FakeImageLabeller())


@pytest.fixture
def vectors(services: tuple[Service, Service]) -> Service:
    """Answers for embeddings, to a key of its own with a budget of 100."""
    return services[0].with_a_new_key()


@pytest.fixture
def pictures(services: tuple[Service, Service]) -> Service:
    """Answers for images, to a key of its own with a budget of 100."""
    return services[1].with_a_new_key()
