"""The life of a key: made, rotated, given other terms, ended, revoked; and the form of its secrets."""

from __future__ import annotations

import re
import time
import zlib
from datetime import UTC, datetime, timedelta

import pytest

from ucds.errors import InputError
from ucds.serving.credentials import is_mistyped, make_secret
from ucds.serving.keys import as_text, parse_end
from ucds.serving.ledger import Ledger

HOUR = timedelta(hours=1)
BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def is_valid(ledger: Ledger, secret: str) -> bool:
    record = ledger.find_key(secret)
    return record is not None and record.is_active


def test_a_secret_has_a_prefix_and_a_checksum_that_a_scanner_can_check() -> None:
    secret = make_secret()
    found = re.fullmatch(r"ucds_([0-9A-Za-z]{43})([0-9A-Za-z]{6})", secret)
    assert found is not None
    number = 0
    for digit in found[2]:
        number = 62 * number + BASE62.index(digit)
    assert number == zlib.crc32(found[1].encode())
    assert not is_mistyped(secret)
    other = "a" if secret[20] != "a" else "b"
    assert is_mistyped(secret[:20] + other + secret[21:])
    assert not is_mistyped("ucds_" + "x" * 43)  # a key of an older version has no checksum
    assert len({make_secret() for _ in range(100)}) == 100


def test_two_secrets_share_a_budget_for_a_time(ledger: Ledger) -> None:
    first = ledger.add_key("anna", 5)
    second = ledger.rotate_key("anna", HOUR)
    records = [ledger.find_key(secret) for secret in (first, second)]
    numbers = {record.number for record in records if record is not None}
    assert numbers == {1}
    for content, record in enumerate(records):
        assert record is not None
        ledger.charge(record, "m" * 32, [bytes([content] * 16)], {bytes([content] * 16): 1})
    (key,) = ledger.list_keys()
    assert key.used == 2
    assert key.tails == (first[-4:], second[-4:])
    assert ledger.verify().faults == ()


def test_the_older_secret_ends_and_the_oldest_at_once(ledger: Ledger) -> None:
    first = ledger.add_key("anna", 5)
    second = ledger.rotate_key("anna", HOUR)
    third = ledger.rotate_key("anna", HOUR)
    assert [is_valid(ledger, secret) for secret in (first, second, third)] == [False, True, True]
    fourth = ledger.rotate_key("anna", timedelta(seconds=0.2))
    assert [is_valid(ledger, secret) for secret in (second, third, fourth)] == [False, True, True]
    time.sleep(0.25)
    assert [is_valid(ledger, secret) for secret in (third, fourth)] == [False, True]
    assert ledger.list_keys()[0].tails == (fourth[-4:],)
    assert ledger.verify().faults == ()


def test_terms_change_and_stay_under_the_chain(ledger: Ledger) -> None:
    secret = ledger.add_key("anna", 5, rate=2.0)
    end = datetime.now(UTC) + HOUR
    ledger.change_key("anna", budget=9)
    ledger.change_key("anna", rate=None)
    ledger.change_key("anna", expires=end)
    (key,) = ledger.list_keys()
    assert (key.limit, key.rate, key.expires) == (9, None, as_text(end))
    assert is_valid(ledger, secret)
    ledger.change_key("anna", expires=datetime.now(UTC))
    assert not is_valid(ledger, secret)
    ledger.change_key("anna", expires=None)
    assert is_valid(ledger, secret)
    assert ledger.verify().faults == ()


def test_terms_that_cannot_be_are_refused(ledger: Ledger) -> None:
    ledger.add_key("anna", 5)
    for changes in ({"budget": -1}, {"budget": 2**53}, {"rate": 0.0}, {"rate": float("nan")}):
        with pytest.raises(InputError, match="number of samples"):
            ledger.change_key("anna", **changes)
    for change in (ledger.rotate_key, ledger.revoke_key, ledger.change_key):
        with pytest.raises(InputError, match="no key of the name 'bert'"):
            change("bert")
    assert ledger.read_head().entries == 1


def test_a_revoked_name_may_be_used_again(ledger: Ledger) -> None:
    first = ledger.add_key("anna", 1)
    with pytest.raises(InputError, match="already"):
        ledger.add_key("anna", 1)
    ledger.revoke_key("anna")
    with pytest.raises(InputError, match="revoked already"):
        ledger.revoke_key("anna")
    second = ledger.add_key("anna", 7)
    assert [is_valid(ledger, secret) for secret in (first, second)] == [False, True]
    assert [(key.name, key.limit, key.used) for key in ledger.list_keys()] == [("anna", 1, 0), ("anna", 7, 0)]
    ledger.change_key("anna", budget=8)
    assert [key.limit for key in ledger.list_keys()] == [1, 8]
    assert ledger.verify().faults == ()


def test_ends_are_read_as_people_write_them() -> None:
    now = datetime.now(UTC)
    for text, hours in (("2d", 48), ("12h", 12), ("30m", 0.5)):
        end = parse_end(text)
        assert end is not None
        assert abs(end - now - timedelta(hours=hours)) < timedelta(seconds=5)
    assert parse_end("2031-02-03") == datetime(2031, 2, 3, tzinfo=UTC)
    assert parse_end("2031-02-03T04:05+02:00") == datetime(2031, 2, 3, 2, 5, tzinfo=UTC)
    assert parse_end("never") is None
    for text in ("", "soon", "-1d", "2031-13-01", "9999999d", "0001-01-01T00:00+14:00"):
        with pytest.raises(InputError, match="no end of a key"):
            parse_end(text)
