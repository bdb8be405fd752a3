"""Budgets are exact, charges and answers are one, and a ledger that cannot be used says so."""

import base64
import errno
import json
import os
import random
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count, takewhile
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import numpy as np
import pytest
from cli_kit import run_successfully
from ledger_kit import MODELS, Provider, behind, charge, content, make_key, used
from serving_kit import FakeLabeller, K, running, vector, wait_until
from sqlalchemy import event
from sqlalchemy.pool import Pool

from ucds.errors import DamagedFileError, InputError, NoSpaceError, ServiceUnavailableError
from ucds.labels.wire import Calibration, find_fault
from ucds.serving import log
from ucds.serving.checkpoints import accept_loss
from ucds.serving.keys import as_text
from ucds.serving.ledger import Ledger
from ucds.serving.problems import Refusal
from ucds.serving.signing import Signer
from ucds.serving.verify import verify


def test_only_new_contents_are_charged_and_kept_answers_win(ledger: Ledger, tmp_path: Path) -> None:
    key = make_key(ledger)
    assert charge(ledger, key, 1, 2, 2, label=4).labels == {content(1): 4, content(2): 4}
    assert charge(ledger, key, 2, 3, label=7).labels == {content(2): 4, content(3): 7}
    other = make_key(ledger, name="bert")
    assert charge(ledger, other, 1, label=9).labels == {content(1): 9}
    assert charge(ledger, key, 1, model=MODELS[1]).balance.used == 4
    assert (used(ledger), used(ledger, "bert")) == (4, 1)
    assert verify(tmp_path).faults == ()


def test_a_receipt_names_the_entries_of_its_answers_and_nothing_of_others(provider: Provider) -> None:
    ledger, signer = provider.ledger, provider.signer
    key, other = make_key(ledger), make_key(ledger, name="bert")
    first, second = charge(ledger, key, 1), charge(ledger, key, 2)
    charge(ledger, other, 1, 2, 3)
    both = ledger.find_answers(key, MODELS[0], [content(1), content(2)])
    assert both.entries == tuple(sorted(first.entries + second.entries))
    assert both.time == second.time
    more = charge(ledger, key, 2, 3)
    assert second.entries[0] in more.entries
    assert len(more.entries) == 2
    receipt = more.receipt(signer, MODELS[0])
    assert find_fault(receipt, more.labels, signer=signer.public, model_digest=MODELS[0]) is None
    numbers = [name for name, value in receipt.model_dump().items() if isinstance(value, int)]
    assert numbers == ["era"]  # of the whole log: how often the provider accepted a loss, or a clock


def test_no_entry_can_be_guessed_from_its_hash(tmp_path: Path) -> None:
    """The same happens twice: what a client does not know of an entry is never all that its hash hides."""
    found = set[str]()
    for name in ("a", "b"):
        with closing(Ledger(tmp_path / name, create=True)) as book:
            charge(book, make_key(book), 1)
            with book.reading() as (connection, _):
                found |= {json.loads(entry.body)["salt"] for entry in log.read_entries(connection)}
    assert all(re.fullmatch("[0-9a-f]{32}", salt) for salt in found)
    assert len(found) == 6


def test_a_request_over_the_budget_or_asked_again_charges_nothing(ledger: Ledger, tmp_path: Path) -> None:
    key = make_key(ledger, 3)
    charge(ledger, key, 1, 2)
    with pytest.raises(Refusal, match="holds 2 samples not asked before, but the key's budget has 1 left"):
        charge(ledger, key, 3, 4)
    with pytest.raises(Refusal, match="budget"):
        ledger.find_answers(key, MODELS[0], [content(3), content(4)])
    assert used(ledger) == 2
    charge(ledger, key, 3, 1)
    last, before = charge(ledger, key, 1, 2, 3), ledger.state()
    assert charge(ledger, key, 1, 2, 3) == last
    assert ledger.state() == before  # a repeat writes nothing
    assert verify(tmp_path).faults == ()


def test_a_key_that_ends_meanwhile_gets_no_answer(ledger: Ledger) -> None:
    revoked, over = make_key(ledger), make_key(ledger, name="bert")
    ledger.revoke_key("anna")
    ledger.set_key("bert", expires="2001-01-01")
    for key, kind in ((revoked, "revoked-key"), (over, "expired-key")):
        for use in (partial(charge, ledger, key, 1), partial(ledger.find_answers, key, "m", [])):
            with pytest.raises(Refusal) as caught:
                use()
            assert caught.value.kind == kind
    assert (used(ledger), used(ledger, "bert")) == (0, 0)


def test_a_calibration_is_for_good_and_before_all_answers(ledger: Ledger, tmp_path: Path) -> None:
    key, other = make_key(ledger), make_key(ledger, name="bert")
    told, mean = Calibration(samples=40, digest="1" * 32), np.arange(3, dtype=np.float32)
    for _ in range(2):
        assert ledger.calibrate(key, MODELS[0], told, mean) == told
    use = ledger.list_keys()[0].use(MODELS[0])
    assert use.find_calibration("1" * 32) == told
    assert ledger.mean(key, MODELS[0]).tolist() == [0, 1, 2]
    assert ledger.mean(other, MODELS[0]) is None
    with pytest.raises(Refusal, match="was calibrated meanwhile"):
        charge(ledger, key, 1)
    contents = [content(1)]
    ledger.charge(key, MODELS[0], contents, {content(1): 1}, request="r", calibration="1" * 32)
    charge(ledger, other, 1)
    with pytest.raises(Refusal, match="has labels of this model"):
        ledger.calibrate(other, MODELS[0], told, mean)
    assert verify(tmp_path).faults == ()


def test_the_rate_bounds_admission_by_the_log_and_by_what_is_in_work(ledger: Ledger, tmp_path: Path) -> None:
    free, key = make_key(ledger, name="bert"), make_key(ledger, 10**6, rate=2.0)
    assert ledger.seconds_to_wait(free, 10**9) is None
    assert ledger.seconds_to_wait(key, 0) is None
    assert ledger.seconds_to_wait(key, 19) is None  # ten seconds of its rate are saved
    assert ledger.seconds_to_wait(key, 20) == 1
    charge(ledger, key, *range(30))
    replica = Ledger(tmp_path)
    for book in (ledger, replica):
        again = next(one for one in book.list_keys() if one.name == "anna")
        wait = book.seconds_to_wait(again, 0)
        assert 5 <= wait <= 6
        assert (book.seconds_to_wait(again, 10) or 0) >= 10
    replica.close()


def test_postgresql_keeps_the_same_ledger(postgres_url: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no ledger"):
        Ledger(postgres_url)
    book = Ledger(postgres_url, create=True)
    signer = Signer.open(tmp_path / "key.pem")
    book.trust(signer.public)
    key = make_key(book, 3)
    assert charge(book, key, 1).balance.used == 1
    book.revoke_key("anna")
    make_key(book, 3)
    book.renew_key("anna")
    book.set_key("anna", budget=4)
    book.take_snapshot(signer)
    book.check_ready(signer)
    assert verify(postgres_url).faults == ()
    assert Ledger(postgres_url).find_answers(make_key(book, name="x"), MODELS[0], []).labels == {}
    with behind(postgres_url) as connection:
        connection.exec_driver_sql("UPDATE answers SET label = 2 WHERE entry > 1")
    assert verify(postgres_url).faults
    with behind(postgres_url) as connection:
        connection.exec_driver_sql("DELETE FROM log WHERE number = (SELECT max(number) FROM log)")
    with pytest.raises(DamagedFileError, match="set back"):
        book.list_keys()
    book.close()


NOW = datetime.now(UTC)
YEARS = timedelta(days=3650)


def test_a_clock_that_is_behind_writes_the_last_time(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path, create=True, clock=lambda: NOW)) as ahead:
        key = make_key(ahead)
    with closing(Ledger(tmp_path, clock=lambda: NOW - YEARS)) as late:
        assert charge(late, key, 3).time == late.state().time == as_text(NOW)
    assert verify(tmp_path).faults == ()


def test_a_clock_that_is_far_ahead_writes_nothing_until_it_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Ledger(tmp_path, create=True, clock=lambda: NOW)) as book:
        secret = book.add_key("anna", 10)
    monkeypatch.setenv("UCDS_OPERATOR", "olga")
    with closing(Ledger(tmp_path, clock=lambda: NOW + timedelta(hours=23))) as book:
        charge(book, book.authenticate(secret), 1)
    with closing(Ledger(tmp_path, clock=lambda: NOW + timedelta(days=2))) as book:
        key, signer = book.authenticate(secret), Signer.open(tmp_path / "key.pem")
        changes: list[Callable[[], object]] = [lambda: charge(book, key, 2), lambda: book.revoke_key("anna")]
        for change in [*changes, lambda: book.take_snapshot(signer)]:
            with pytest.raises(ServiceUnavailableError, match="ucds ledger accept-clock"):
                change()
        assert used(book) == 1
        book.accept_clock()
        for change in changes:
            change()
        with book.reading() as (connection, _):
            entries = [(entry.kind, entry.operator) for entry in log.read_entries(connection)]
    assert entries[3] == ("ClockAccepted", "olga")


def test_a_ledger_that_one_wrong_clock_dated_is_mended(provider: Provider) -> None:
    """Keys, revocations, rates, checkpoints and accepted losses are as if the clock had been right."""
    ledger, place = provider.ledger, provider.folder
    secret = ledger.add_key("anna", 100, rate=2.0)
    first = ledger.renew_key("anna")
    provider.keep(ledger.authenticate(secret), 1)
    with closing(Ledger(place, clock=lambda: NOW + YEARS)) as wrong:
        wrong.accept_clock()
        charge(wrong, wrong.authenticate(first), *range(10, 60))
        second = wrong.renew_key("anna")
    provider.keep(ledger.authenticate(second), 2)
    provider.snapshots().close()
    number, key = ledger.state().number, ledger.list_keys()[0]
    assert (ledger.seconds_to_wait(key, 0) or 0) > 5
    assert "in the future" in provider.verify().faults[0]
    run_successfully("ledger", "accept-clock", "--ledger", place)
    key = ledger.list_keys()[0]
    assert ledger.seconds_to_wait(key, 0) is None
    assert key.secrets[0].until is not None
    assert key.secrets[0].until < as_text(datetime.now(UTC) + timedelta(hours=25))
    provider.keep(key, 3)
    make_key(ledger, name="bert")
    ledger.revoke_key("bert")
    provider.snapshots().close()
    assert provider.verify().faults == ()
    for back in (number + 1, number - 1):  # to a backup from after the mending, and to one from before
        provider.restore(back)
        accept_loss(provider.ledger, provider.marks)
        if back < number:
            provider.ledger.accept_clock()
        assert provider.verify().faults == ()


def test_files_that_are_no_ledger_are_refused_and_none_is_made_unasked(
    ledger: Ledger, tmp_path: Path
) -> None:
    ledger.close()
    path = tmp_path / "ledger.sqlite"
    damaged = path.read_bytes().replace(b"CREATE TABLE log", b"CREATE TABLE\x80log")
    noise = b"no database, but long enough to be read as one" * 50
    for data, kind, words in (
        (damaged, DamagedFileError, "not UTF-8"),
        (noise, DamagedFileError, "cannot be used"),
        (b"", InputError, "no ledger"),  # an empty file is an empty database
        (None, InputError, "no ledger"),
    ):
        path.unlink()
        if data is not None:
            path.write_bytes(data)
        for use in (Ledger, verify):
            with pytest.raises(kind, match=words):
                use(tmp_path)  # type: ignore[operator]


def test_a_file_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with mock.patch("os.open", side_effect=full), pytest.raises(NoSpaceError, match="No space left"):
        Ledger(tmp_path, create=True)


@contextmanager
def every_connection(prepare: Callable[[sqlite3.Connection], object]) -> Iterator[None]:
    """A function that is called with each connection to a database before it is used."""

    def call(connection: sqlite3.Connection, record: Any, proxy: Any) -> None:
        prepare(connection)

    event.listen(Pool, "checkout", call)
    try:
        yield
    finally:
        event.remove(Pool, "checkout", call)


def test_the_operator_is_told_of_a_full_disk_from_the_first_failed_charge_on(ledger: Ledger) -> None:
    key = ledger.add_key("anna", 10**6)

    def ask(start: int) -> int:
        rows = (vector(number % K, number) for number in range(start, start + 50))
        return service.ask(*rows, key=key).status_code

    with running(FakeLabeller(), ledger) as service:
        with every_connection(lambda connection: connection.execute("PRAGMA max_page_count = 1")):
            statuses = list(takewhile(lambda status: status == 200, map(ask, count(0, 50))))
            assert [httpx.get(f"{service.ops}/readyz").status_code for _ in range(3)] == [503] * 3
        begun = time.monotonic()
        with every_connection(lambda connection: connection.execute("PRAGMA max_page_count = 100000")):
            wait_until(lambda: httpx.get(f"{service.ops}/readyz").status_code == 200)
            assert time.monotonic() - begun < 5
            assert ask(10**6) == 200
    assert used(ledger) == 50 * (len(statuses) + 1)


def test_a_request_of_more_samples_than_a_statement_has_values(ledger: Ledger) -> None:
    key = make_key(ledger, 10**6)
    most = sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER
    with every_connection(lambda connection: connection.setlimit(most, 32_766)):  # SQLite's own default
        assert len(charge(ledger, key, *range(33_000)).labels) == 33_000
    assert used(ledger) == 33_000


@pytest.mark.parametrize("end", ["", "-wal", "-shm"])
def test_a_file_that_was_deleted_or_replaced_is_noticed(ledger: Ledger, end: str) -> None:
    key = make_key(ledger)
    path = Path(f"{ledger.place}/ledger.sqlite{end}")
    whole = path.read_bytes()
    path.unlink()
    with pytest.raises(ServiceUnavailableError, match="was deleted or replaced"):
        charge(ledger, key, 1)
    path.write_bytes(whole)
    for use in (ledger.list_keys, lambda: charge(ledger, key, 1)):
        with pytest.raises(ServiceUnavailableError, match="was deleted or replaced"):
            use()


def test_the_ledger_grows_as_the_documentation_says(tmp_path: Path) -> None:
    dice = random.Random(0)

    def size(samples: int) -> int:
        path, labels = tmp_path / f"{samples}.sqlite", {dice.randbytes(16): 7 for _ in range(samples)}
        with closing(Ledger(path, create=True)) as book:
            book.charge(make_key(book, 10**6), MODELS[0], list(labels), labels, request="f" * 32)
        return path.stat().st_size

    assert 110 < (size(4001) - size(1)) / 4000 < 160


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_what_is_forgotten_leaves_no_trace_beside_a_running_service(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    place = tmp_path if kind == "sqlite" else request.getfixturevalue("postgres_url")
    mean, name = np.arange(100, 400, dtype=np.float32), f"forgotten-{kind}"
    with closing(Ledger(place, create=True)) as book, closing(Ledger(place)) as other:
        key = make_key(book, 1000, name)
        book.calibrate(key, MODELS[1], Calibration(samples=40, digest="0" * 32), mean)
        charge(book, key, *range(2**90, 2**90 + 200))
        signer = Signer.open(tmp_path / "key.pem")
        book.take_snapshot(signer)  # which holds no mean, either
        other.list_keys()
        with pytest.raises(InputError, match="revoke it first"):
            book.forget_key(name)
        book.revoke_key(name)
        assert book.forget_key(name) == 200
        with pytest.raises(InputError, match="no answers"):
            book.forget_key(name)
        assert book.mean(key, MODELS[1]) is None
        with book.reading() as (connection, _):
            bodies = "".join(entry.body for entry in log.read_entries(connection))
            assert list(log.digests_of_means(connection)) == []
        assert base64.b64encode(mean.tobytes()).decode()[:64] not in bodies
        if kind == "sqlite":
            data = b"".join(file.read_bytes() for file in tmp_path.glob("ledger.sqlite*"))
            assert not [number for number in range(200) if content(2**90 + number) in data]
            assert mean.tobytes()[:64] not in data
            assert verify(place).faults == ()
        charge(other, make_key(other, name=f"next-{kind}"), 1)


def test_what_is_forgotten_is_missed_by_nothing_that_is_kept_elsewhere(provider: Provider) -> None:
    ledger = provider.ledger
    key, other = make_key(ledger), make_key(ledger, name="bert")
    provider.keep(key, 1, 2)
    charge(ledger, other, 1)
    ledger.revoke_key("anna")
    assert ledger.forget_key("anna") == 2
    provider.snapshots().close()
    assert provider.verify().faults == ()
    assert ledger.find_answers(other, MODELS[0], [content(1)]).labels == {content(1): 1}
