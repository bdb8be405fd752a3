"""What a provider does to a ledger: a loss is accepted, old entries are archived, answers are forgotten."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ledger_kit import MODELS, behind, charge, content, keep, make_key, set_back

from ucds.errors import DamagedFileError, InputError
from ucds.labels.wire import Calibration
from ucds.serving import log
from ucds.serving.checkpoints import Snapshots, accept_loss
from ucds.serving.ledger import Ledger
from ucds.serving.signing import Signer
from ucds.serving.verify import archive, verify


def test_a_restored_backup_is_refused_until_its_loss_is_accepted(
    ledger: Ledger, signer: Signer, tmp_path: Path
) -> None:
    key, marks, receipts = make_key(ledger), tmp_path / "marks", tmp_path / "receipts"
    keep(receipts, ledger, signer, key, 1)
    with pytest.raises(InputError, match="nothing is lost"):
        accept_loss(ledger)
    Snapshots(ledger, signer, marks).close()
    keep(receipts, ledger, signer, key, 2)
    Snapshots(ledger, signer, marks).close()
    ledger.close()
    with behind(tmp_path) as connection:
        set_back(connection, 5)
    restored = Ledger(tmp_path)
    with pytest.raises(InputError, match="accept-loss"):
        Snapshots(restored, signer, marks)
    assert len(verify(tmp_path, checkpoints=[marks], receipts=[receipts]).faults) == 2
    assert accept_loss(restored, marks) == 1
    Snapshots(restored, signer, marks).close()
    verdict = verify(tmp_path, checkpoints=[marks], receipts=[receipts])
    assert (verdict.faults, verdict.agreed, verdict.lost) == ((), 3, 2)
    with behind(tmp_path) as connection:  # what was lost may not be more than was accepted
        set_back(connection, 3)
    assert verify(tmp_path, checkpoints=[marks]).faults
    restored.close()


def test_a_lost_signing_key_is_replaced_by_a_decision(ledger: Ledger, signer: Signer, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    Snapshots(ledger, signer, marks).close()
    other = Signer.open(tmp_path / "other.pem")
    with pytest.raises(InputError, match="accept-loss --signing-key"):
        ledger.set_signer(other.public)
    assert accept_loss(ledger, signer=other.public) == 0
    ledger.set_signer(other.public)
    Snapshots(ledger, other, marks).close()
    assert verify(tmp_path, checkpoints=[marks]).faults == ()
    stranger = Signer.open(tmp_path / "stranger.pem")
    book = Ledger(tmp_path / "new.sqlite", create=True)
    book.set_signer(stranger.public)
    with pytest.raises(InputError, match="not signed for this ledger"):
        accept_loss(book, marks)
    book.close()


def test_the_answers_of_a_revoked_key_are_forgotten(ledger: Ledger, signer: Signer, tmp_path: Path) -> None:
    key, other, receipts = make_key(ledger), make_key(ledger, name="bert"), tmp_path / "receipts"
    told = Calibration(samples=40, digest="0" * 32)
    ledger.calibrate(key, MODELS[1], told, np.ones(3, np.float32))
    keep(receipts, ledger, signer, key, 1, 2)
    charge(ledger, other, 1)
    with pytest.raises(InputError, match="revoke it first"):
        ledger.forget_key("anna")
    ledger.revoke_key("anna")
    assert ledger.forget_key("anna") == 2
    with pytest.raises(InputError, match="no answers"):
        ledger.forget_key("anna")
    ledger.take_snapshot(signer)
    assert verify(tmp_path, receipts=[receipts]).faults == ()
    with behind(tmp_path) as connection:
        assert len(list(log.answers_of(connection, range(20)))) == 1
    assert ledger.list_keys()[0].use(MODELS[1]).vector is None
    assert ledger.find_answers(other, MODELS[0], [content(1)]).labels == {content(1): 1}


def test_archived_entries_are_read_from_their_files(ledger: Ledger, signer: Signer, tmp_path: Path) -> None:
    key, receipts, idle = make_key(ledger), tmp_path / "receipts", Ledger(tmp_path)
    marks, files = tmp_path / "marks", [tmp_path / "1.jsonl", tmp_path / "2.jsonl"]
    with pytest.raises(InputError, match="nothing to archive"):
        archive(ledger, files[0])
    for number, file in enumerate(files):
        keep(receipts, ledger, signer, key, number)
        Snapshots(ledger, signer, marks).close()
        charge(ledger, key, 7, number + 8)
        assert archive(ledger, file) > 0
        assert file.stat().st_mode & 0o077 == 0
    with pytest.raises(InputError, match="there already"):
        archive(ledger, files[0])
    keep(receipts, ledger, signer, key, 1, 9)  # free: their entries are archived
    assert idle.list_keys()[0].used == 5  # a replica that saw nothing of it
    later = Ledger(tmp_path)
    assert later.list_keys()[0].used == 5
    without = verify(tmp_path)
    assert (without.faults, without.first > 1) == ((), True)
    whole = verify(tmp_path, receipts=[receipts], checkpoints=[marks], archives=files)
    assert (whole.faults, whole.first, whole.agreed) == ((), 1, 5)
    assert "give the archives" in verify(tmp_path, receipts=[receipts]).faults[0]
    later_alone = verify(tmp_path, archives=files[1:])
    assert (later_alone.faults, 1 < later_alone.first < without.first) == ((), True)
    assert "is missing" in verify(tmp_path, archives=files[:1]).faults[0]
    with behind(tmp_path) as connection:
        connection.execute(log.answers.update().filter_by(entry=4).values(label=9))
    assert "answers of entry 4 were changed" in verify(tmp_path, archives=files).faults[0]
    files[0].write_text("[1, 2]\n")
    with pytest.raises(DamagedFileError, match="not an archive"):
        verify(tmp_path, archives=files)
    for book in (idle, later):
        book.close()


def test_a_ledger_that_was_changed_is_not_archived(ledger: Ledger, signer: Signer, tmp_path: Path) -> None:
    charge(ledger, make_key(ledger), 1)
    ledger.take_snapshot(signer)
    with behind(tmp_path) as connection:
        connection.execute(log.answers.update().values(label=9))
    with pytest.raises(DamagedFileError, match="stays as it is"):
        archive(ledger, tmp_path / "1.jsonl")
    assert not (tmp_path / "1.jsonl").exists()
