"""Queries about many samples: each asked once, continued after failures, and each receipt checked."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
from fake_service import KEY, Clinic, FakeService, label_of

from ucds.data.folders import scan_folder
from ucds.errors import DamagedFileError, InputError, RefusedError, UcdsWarning
from ucds.labels.client import LabelClient
from ucds.labels.cluster_labels import ClusterLabels
from ucds.labels.journal import Journal, KeptReceipt, journal_path, read_receipts
from ucds.labels.questions import VectorQuestions, open_questions
from ucds.labels.wire import answers_digest, is_authentic


def test_every_image_gets_its_label_and_equal_ones_are_asked_about_once(clinic: Clinic) -> None:
    images, out, seen = clinic.images(21), clinic.out, list[tuple[int, int]]()
    shutil.copytree(images / "a", images / "c")
    labels = clinic.query(images, progress=lambda *now: seen.append(now))
    expected = {name: label_of((images / name).read_bytes()) for name in scan_folder(images).ids}
    assert dict(zip(labels.ids, labels.labels.tolist(), strict=True)) == expected
    assert labels.ids == scan_folder(images).ids
    assert seen == sorted(set(seen))
    assert seen[-1] == (32, 32)
    assert (labels.provider, labels.n_clusters) == ("alpha", 7)
    stored = ClusterLabels.load(out)
    assert stored.fingerprint == labels.fingerprint
    assert sorted(clinic.service.answered) == [5, 8, 8]
    kept = read_receipts(journal_path(out))
    assert sorted(len(one.labels) for one in kept) == [5, 8, 8]
    assert all(is_authentic(one.receipt) for one in kept)
    with pytest.raises(InputError, match="exists already"):
        clinic.query(images)


def test_an_answer_that_ctrl_c_interrupts_is_kept(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    keep, images, service = Journal.add, clinic.images(6), clinic.service

    def interrupt_once(journal: Journal, kept: KeptReceipt) -> None:
        monkeypatch.setattr(Journal, "add", keep)
        raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "add", interrupt_once)
    with pytest.raises(KeyboardInterrupt):
        clinic.query(images)
    assert len(service.charged) == 6
    clinic.query(images)
    assert set(service.asked.values()) == {1}  # nothing is asked for twice


def test_requests_keep_to_the_limits_and_name_no_file(service: FakeService, clinic: Clinic) -> None:
    images = clinic.images(10)
    (images / "a" / "000.png").rename(images / "a" / "Mrs Miller.png")
    size = max(path.stat().st_size for path in images.rglob("*.png"))
    service.info["max_request_bytes"] = 3 * (size + 256) + 256
    clinic.query(images)
    assert max(service.answered) <= 4
    assert max(map(len, service.bodies)) <= service.info["max_request_bytes"]
    assert not any(b"Miller" in body or b".png" in body for body in service.bodies)


def test_the_wrong_kind_of_samples_is_refused(service: FakeService, clinic: Clinic) -> None:
    with pytest.raises(InputError, match="not about embeddings"):
        VectorQuestions(np.zeros((2, 5), np.float32), ("0", "1")).check_accepted(
            LabelClient(service.url, KEY).info()
        )
    service.info |= {"accepts": "embeddings", "width": 4}
    with pytest.raises(InputError, match="embeddings of width 4"):
        clinic.query(clinic.images(2))
    np.savez(clinic.folder / "x.npz", a=np.zeros((2, 5), np.float32))
    with pytest.raises(InputError, match="width 4, not 5"):
        clinic.query(clinic.folder / "x.npz")
    np.savez(clinic.folder / "x.npz", a=np.zeros((2, 4)), b=np.zeros((2, 4)))
    with pytest.raises(InputError, match="2 domains"):
        open_questions(clinic.folder / "x.npz")
    assert not service.requests


def test_unusable_images_are_left_out_and_told_and_one_must_be_usable(clinic: Clinic) -> None:
    images = clinic.images(20)
    (images / "empty.png").touch()
    (images / "huge.png").write_bytes(b"x" * 200_000)
    for name in ("broken.png", "copy of broken.png"):
        (images / name).write_bytes(b"no image")
    clinic.service.unusable = {b"no image"}
    with pytest.warns(UcdsWarning) as caught:
        labels = clinic.query(images)
    messages = sorted(str(warning.message) for warning in caught if warning.category is UcdsWarning)
    assert messages == [
        "4 of 24 samples have no label because they are unusable or refused",
        "broken.png: not an image; skipped",
        "copy of broken.png: not an image; skipped",
        "empty.png: empty file; skipped",
        "huge.png: too large for the service (200,000 bytes; it takes 100,000); skipped",
    ]
    assert len(labels.ids) == 20
    for path in (*images.glob("?/*.png"), clinic.out):
        path.unlink()
    with pytest.warns(UcdsWarning), pytest.raises(InputError, match="none of the samples"):
        clinic.query(images)


@pytest.mark.parametrize("change", [{"model": "beta"}, {"model_digest": "c" * 32}, {"n_clusters": 8}])
def test_a_model_that_changes_on_the_way_is_refused(clinic: Clinic, change: dict[str, Any]) -> None:
    service = clinic.service
    service.change = lambda answer: answer.update(change) if len(service.charged) > 8 else None
    with pytest.raises(RefusedError, match="changed from model 'alpha' .*: labels of two models do not mix"):
        clinic.query(clinic.images(24))
    assert len(read_receipts(journal_path(clinic.out))) == 1


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
