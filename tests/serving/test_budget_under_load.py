"""Many clients on one budget: never one answer more, never one charged for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from postgres import postgresql
from serving_kit import NPY, FakeLabeller, K, npy, running, vector

from ucds.errors import InputError
from ucds.serving.ledger import Ledger
from ucds.serving.verification import verify

CLIENTS, BUDGET = 64, 1000


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    with postgresql() as url:
        yield url


def storm(urls: list[str], key: str, samples: int, each: int) -> tuple[int, set[int]]:
    """Ask for distinct samples from all clients at once: how many were answered, and all statuses."""

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
    return sum(answered for answered, _ in results), set().union(*(statuses for _, statuses in results))


def check(place: str | Path, replicas: int, samples: int, each: int, budget: int = BUDGET) -> None:
    with ExitStack() as stack:
        books = [Ledger(place) for _ in range(replicas)]
        key = books[0].add_key("shared", budget)
        services = [stack.enter_context(running(FakeLabeller(), book)) for book in books]
        answered, statuses = storm([service.url for service in services], key, samples, each)
        record = next(record for record in books[0].list_keys() if record.name == "shared")
        verdict = books[0].verify()
    for book in books:
        book.close()
    assert statuses == {200, 429}
    assert answered == budget
    assert record.used == budget
    assert verdict.faults == ()


def test_two_replicas_answer_exactly_a_small_budget(tmp_path: Path) -> None:
    check(tmp_path, replicas=2, samples=130, each=1, budget=60)


@pytest.mark.slow
def test_sqlite_with_two_replicas(tmp_path: Path) -> None:
    check(tmp_path, replicas=2, samples=1500, each=5, budget=500)


@pytest.mark.slow
def test_sqlite_answers_exactly_a_thousand_of_three_thousand(tmp_path: Path) -> None:
    check(tmp_path, replicas=1, samples=3000, each=1)


@pytest.mark.slow
def test_postgresql_answers_exactly_a_thousand_of_three_thousand(postgres_url: str) -> None:
    check(postgres_url, replicas=2, samples=3000, each=1)


def test_postgresql_keeps_the_same_ledger(postgres_url: str) -> None:
    book = Ledger(postgres_url)
    record = book.find_key(book.add_key("anna", 3))
    assert record is not None
    content = bytes(16)
    assert book.charge(record, "m", [content], {content: 2}).budget.used == 1
    assert book.known(record, "m", [content]) == {content: 2}
    book.revoke_key("anna")
    secret = book.add_key("anna", 3)
    book.rotate_key("anna")
    book.change_key("anna", budget=4)
    assert book.find_key(secret) is not None
    assert book.verify().faults == ()
    book.check_writable()
    for statement in ("UPDATE keys SET rate = 9", "UPDATE answers SET label = 1", "DELETE FROM secrets"):
        with book.transaction(writes=True) as connection:
            connection.exec_driver_sql(statement)
            assert verify(connection, []).faults
            connection.rollback()
    book.close()


def test_postgresql_shares_rates_between_replicas(postgres_url: str) -> None:
    books = [Ledger(postgres_url) for _ in range(2)]
    one, other = (book.make_rates() for book in books)
    assert one.admit(77, 2.0) is None  # 20 saved, 1 spent
    assert 0 <= other.pay(77, 2.0, 15) <= 19
    assert other.admit(77, 2.0) is None
    assert one.pay(77, 2.0, 20) < 0
    for limiter in (one, other):
        wait = limiter.admit(77, 2.0)
        assert wait is not None
        assert 1 <= wait <= 9
    assert one.admit(78, 2.0) is None
    for book in books:
        book.close()


def test_postgresql_without_a_ledger_is_refused_where_none_is_to_be_made() -> None:
    with postgresql() as url, pytest.raises(InputError, match="holds no ledger"):
        Ledger(url, create=False)
