"""Snapshots are signed when they should be, checkpoints hold what the log held, and a loss is accepted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ledger_kit import MODELS, behind, charge, keep, make_key, set_back
from serving_kit import wait_until

from ucds.errors import DamagedFileError, InputError
from ucds.serving import log
from ucds.serving.checkpoints import Snapshots, accept_loss, read_checkpoints
from ucds.serving.ledger import Ledger
from ucds.serving.signing import Signer
from ucds.serving.state import Statement
from ucds.serving.verify import verify


def test_every_so_many_entries_and_at_the_end(
    ledger: Ledger, signer: Signer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "marks"
    key = make_key(ledger, 100)
    snapshots = Snapshots(ledger, signer, path, every=5)
    assert not path.exists()
    for number in range(4):
        charge(ledger, key, number)
    wait_until(lambda: path.exists() and len(read_checkpoints(path)) == 1)
    charge(ledger, key, 10)
    snapshots.close()
    snapshots.close()
    assert [statement.number for statement in read_checkpoints(path)] == [7, 9]
    lines = [json.loads(record.message) for record in caplog.records if record.name == "ucds.security"]
    assert [line["number"] for line in lines] == [7, 9]
    Snapshots(ledger, signer, path).close()  # nothing was added
    assert len(read_checkpoints(path)) == 2
    assert verify(tmp_path, checkpoints=[path]).unnamed == 0


def test_replicas_write_the_snapshot_that_one_of_them_took(
    ledger: Ledger, signer: Signer, tmp_path: Path
) -> None:
    books = [ledger, Ledger(tmp_path)]
    files = [tmp_path / "marks-0", tmp_path / "marks-1"]
    running = [Snapshots(book, signer, file, every=3) for book, file in zip(books, files, strict=True)]
    key = make_key(ledger, 100)
    charge(ledger, key, 1)
    for file, book in zip(files, books, strict=True):
        wait_until(lambda file=file, book=book: bool(book.list_keys()) and file.exists())  # type: ignore[misc]
    for snapshots in running:
        snapshots.close()
    assert read_checkpoints(files[0])[0] == read_checkpoints(files[1])[0]
    assert verify(tmp_path, checkpoints=files).faults == ()
    books[1].close()


def test_opening_reads_no_more_than_what_follows_the_last_snapshot(
    ledger: Ledger, signer: Signer, tmp_path: Path
) -> None:
    key = make_key(ledger, 100)
    for number in range(5):
        charge(ledger, key, number)
    ledger.take_snapshot(signer)
    charge(ledger, key, 9)
    with behind(tmp_path) as connection:
        connection.execute(log.log.update().filter_by(number=5).values(operator="mallory"))
    assert Ledger(tmp_path).list_keys()[0].used == 6
    assert verify(tmp_path).faults


def test_a_ledger_that_was_set_back_does_not_start(ledger: Ledger, signer: Signer, tmp_path: Path) -> None:
    path, key = tmp_path / "marks", make_key(ledger, 100)
    charge(ledger, key, 1)
    Snapshots(ledger, signer, path).close()
    ledger.close()
    with behind(tmp_path) as connection:
        set_back(connection, 3)
    for added in range(3):
        book = Ledger(tmp_path)
        with pytest.raises(InputError, match="does not hold entry 4 of the checkpoint"):
            Snapshots(book, signer, path)
        charge(book, key, 10 + added)
        book.close()


@pytest.mark.parametrize("change", ["unsigned", "signature", "field", "signer"])
def test_a_checkpoint_that_is_not_signed_is_refused(
    ledger: Ledger, signer: Signer, tmp_path: Path, change: str
) -> None:
    path = tmp_path / "marks"
    told = ledger.take_snapshot(signer)
    assert told is not None
    fields = told.model_dump(exclude={"signer", "signature", "format"})
    other = Signer.open(tmp_path / "other.pem").sign(Statement, **fields)
    forged = {
        "unsigned": told.model_copy(update={"signature": "0" * 128}),
        "signature": told.model_copy(update={"signature": other.signature}),
        "field": told.model_copy(update={"number": 1, "hash": "0" * 64}),
        "signer": other,
    }
    path.write_text(forged[change].model_dump_json() + "\n")
    with pytest.raises((DamagedFileError, InputError), match="wrong signature|another key signed"):
        Snapshots(ledger, signer, path)


def test_a_file_that_holds_something_else_is_left_alone(
    ledger: Ledger, signer: Signer, tmp_path: Path
) -> None:
    path = tmp_path / "notes.txt"
    for text in ("buy milk", "buy milk\n", '{"signer":1}\n'):
        path.write_text(text)
        with pytest.raises(DamagedFileError, match="not a file of checkpoints"):
            Snapshots(ledger, signer, path)
        assert path.read_text() == text
    told = ledger.take_snapshot(signer)
    assert told is not None
    line = told.model_dump_json()
    path.write_text(f"{line}\n{line[:40]}")  # cut short by a crash
    assert read_checkpoints(path) == [told]
    with pytest.raises(InputError, match="no folder"):
        Snapshots(ledger, signer, tmp_path / "no" / "marks")


def test_a_file_that_cannot_be_written_is_tried_again(ledger: Ledger, signer: Signer, tmp_path: Path) -> None:
    folder = tmp_path / "away"
    folder.mkdir()
    snapshots = Snapshots(ledger, signer, folder / "marks", every=1, retry_seconds=0.05)
    folder.rmdir()
    make_key(ledger)
    wait_until(lambda: snapshots.failures > 0)
    folder.mkdir()
    wait_until((folder / "marks").exists)
    snapshots.close()
    assert verify(tmp_path, checkpoints=[folder / "marks"]).faults == ()


@pytest.mark.parametrize("change", ["added", "removed"])
def test_answers_that_were_added_or_removed_stop_a_start(
    ledger: Ledger, signer: Signer, tmp_path: Path, change: str
) -> None:
    charge(ledger, make_key(ledger), 1)
    charge(ledger, make_key(ledger, name="bert"), 1, 2)
    Snapshots(ledger, signer).close()
    with behind(tmp_path) as connection:
        if change == "added":
            row = {"key": 1, "model": MODELS[0], "content": b"x" * 16, "label": 1, "entry": 4}
            connection.execute(log.answers.insert().values(row))
        else:
            connection.execute(log.answers.delete().filter_by(key=1))
    with pytest.raises(DamagedFileError, match="answers were added or removed"):
        Snapshots(ledger, signer)


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


def test_a_loss_is_accepted_before_entries_are_added_or_not_at_all(
    ledger: Ledger, signer: Signer, tmp_path: Path
) -> None:
    charge(ledger, make_key(ledger), 1)
    Snapshots(ledger, signer, tmp_path / "marks").close()
    ledger.close()
    with behind(tmp_path) as connection:
        set_back(connection, 3)
    restored = Ledger(tmp_path)
    restored.set_key("anna", budget=20)
    before = restored.state()
    with pytest.raises(InputError, match="restore it again, and accept the loss first"):
        accept_loss(restored, tmp_path / "marks")
    assert restored.state() == before
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
