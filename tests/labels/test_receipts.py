"""Tests of receipts: what the client refuses, and what it keeps."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fake_service import Clinic, FakeService

from ucds.errors import DamagedFileError, InputError, RefusedError
from ucds.labels.journal import journal_path, read_receipts
from ucds.labels.wire import Receipt, answers_digest, is_authentic


def _receipt(**changes: Any) -> Receipt:
    fields: dict[str, Any] = {
        "entries": ["e" * 64],
        "time": "2026-01-01T00:00:00.000+00:00",
        "model_digest": "a" * 32,
        "answers_digest": "b" * 64,
        "signer": "0" * 64,
        "signature": "0" * 128,
    }
    return Receipt(**fields | changes)


CHANGES: dict[str, tuple[str, dict[str, Any] | None]] = {
    "none": ("labels have a receipt", None),
    "other labels": ("other answers", {}),
    "another time": ("signature", {"time": "2027-01-01T00:00:00.000+00:00"}),
    "another entry": ("signature", {"entries": ["0" * 64]}),
    "no entry": ("form agreed on", {"entries": []}),
    "another signer": ("another key", {"signer": "0" * 64}),
    "another signature": ("signature", {"signature": "0" * 128}),
    "no format of ours": ("form agreed on", {"format": "ucds-receipt/2"}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_receipt_that_was_changed_is_refused(service: FakeService, clinic: Clinic, what: str) -> None:
    words, changes = CHANGES[what]

    def change(answer: dict[str, Any]) -> None:
        answer["receipt"] = None if changes is None else answer["receipt"] | changes
        if changes == {}:
            answer["labels"] = [(label + 1) % 7 for label in answer["labels"]]

    service.change = change
    with pytest.raises(RefusedError, match=words):
        clinic.query(clinic.images(3))
    assert read_receipts(journal_path(clinic.out)) == []


def test_a_receipt_that_is_refused_keeps_no_other_answer_out(service: FakeService, clinic: Clinic) -> None:
    images = clinic.images(32)

    def spoil(answer: dict[str, Any]) -> None:
        if len(service.answered) in (2, 3):
            answer["receipt"]["signature"] = "0" * 128

    service.change, service.delay = spoil, 0.3  # all four requests are under way at a time
    with pytest.raises(RefusedError, match="signature"):
        clinic.query(images)
    assert sum(len(kept.labels) for kept in read_receipts(journal_path(clinic.out))) == 16


def test_a_receipt_for_another_model_is_refused(service: FakeService, clinic: Clinic) -> None:
    service.change = lambda answer: service.info.update(model_digest="c" * 32)  # from the second answer on
    with pytest.raises(RefusedError, match="labels of two models do not mix"):
        clinic.query(clinic.images(40))


def test_the_signed_bytes_are_plain_json_that_any_program_can_write() -> None:
    expected = (
        '{"answers_digest":"' + "b" * 64 + '","entries":["' + "e" * 64 + '"],'
        '"format":"ucds-receipt/1","model_digest":"' + "a" * 32 + '","privacy":null,'
        '"signer":"' + "0" * 64 + '",'
        '"time":"2026-01-01T00:00:00.000+00:00"}'
    )
    assert _receipt().signed_bytes() == expected.encode()


def test_a_signature_is_that_of_ed25519() -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    named = _receipt(signer=key.public_key().public_bytes_raw().hex())
    signed = named.model_copy(update={"signature": key.sign(named.signed_bytes()).hex()})
    assert is_authentic(signed)
    assert not is_authentic(signed.model_copy(update={"entries": ["d" * 64]}))


def test_the_digest_of_answers_is_known_and_has_no_order() -> None:
    answers = [(bytes(16), 1), (bytes([1] * 16), 30)]
    assert answers_digest(answers) == answers_digest(reversed(answers))
    # sha256sum of the 48 bytes
    assert answers_digest(answers) == "a482864f2da33949f2de6187efe917d3b239b359d83391ab151972d000d9ec97"


def test_what_is_no_file_of_receipts_is_refused(clinic: Clinic) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_receipts(clinic.folder / "nothing")
    (clinic.folder / "other").write_text('{"labels": {}}\n')
    with pytest.raises(DamagedFileError, match="does not begin as a client's file of receipts"):
        read_receipts(clinic.folder / "other")
    clinic.query(clinic.images(8))
    path = journal_path(clinic.out)
    path.write_bytes(path.read_bytes().replace(b'"time":"2026', b'"time":"2027'))
    with pytest.raises(DamagedFileError, match="line 2 of .* is not a receipt as it was written"):
        read_receipts(path)
