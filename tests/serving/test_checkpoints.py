"""Snapshots are signed when they should be, checkpoints hold what the log held, and a loss is accepted."""

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cli_kit import run_command, run_successfully
from ledger_kit import MODELS, Provider, behind, charge, content, make_key
from serving_kit import wait_until

from ucds.errors import DamagedFileError, InputError
from ucds.serving import log
from ucds.serving.checkpoints import Snapshots, accept_loss, read_checkpoints
from ucds.serving.ledger import Ledger
from ucds.serving.signing import Signer
from ucds.serving.state import Statement
from ucds.serving.verify import verify


def test_at_the_start_every_so_many_entries_and_at_the_end(
    provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    ledger, path, key = provider.ledger, provider.marks, make_key(provider.ledger, 100)
    snapshots = provider.snapshots(every=5)
    for number in range(5):
        charge(ledger, key, number)
    wait_until(lambda: len(read_checkpoints(path)) == 2)
    charge(ledger, key, 10)
    snapshots.close()
    assert [statement.number for statement in read_checkpoints(path)] == [2, 8, 10]
    lines = [json.loads(record.message) for record in caplog.records if record.name == "ucds.security"]
    assert [line["number"] for line in lines] == [2, 8, 10]
    provider.snapshots().close()  # nothing was added
    assert len(read_checkpoints(path)) == 3
    assert provider.verify().unnamed == 0


def test_replicas_write_the_snapshot_that_one_of_them_took(provider: Provider, tmp_path: Path) -> None:
    books = [provider.ledger, Ledger(tmp_path)]
    files = [tmp_path / "marks-0", tmp_path / "marks-1"]
    running = [
        Snapshots(book, provider.signer, file, every=3) for book, file in zip(books, files, strict=True)
    ]
    key = make_key(books[0], 100)
    for number in range(3):
        charge(books[0], key, number)
    wait_until(
        lambda: all(
            file.exists() and any(told.number > 3 for told in read_checkpoints(file)) for file in files
        )
    )
    for snapshots in running:
        snapshots.close()
    assert read_checkpoints(files[0])[-1] == read_checkpoints(files[1])[-1]
    assert verify(tmp_path, signers=[provider.signer.public], checkpoints=files).faults == ()
    books[1].close()


def test_opening_reads_no_more_than_what_follows_the_last_snapshot(provider: Provider) -> None:
    key = make_key(provider.ledger, 100)
    for number in range(5):
        charge(provider.ledger, key, number)
    provider.ledger.take_snapshot(provider.signer)
    charge(provider.ledger, key, 9)
    with behind(provider.folder) as connection:
        connection.execute(log.log.update().filter_by(number=5).values(operator="mallory"))
    assert Ledger(provider.folder).list_keys()[0].used == 6
    assert verify(provider.folder).faults


def test_a_file_that_is_not_signed_or_holds_something_else_is_refused_and_left_alone(
    provider: Provider,
) -> None:
    told, folder = provider.ledger.take_snapshot(provider.signer), provider.folder
    fields = told.model_dump(exclude={"signer", "signature", "format"})
    other = Signer.open(folder / "other.pem").sign(Statement, **fields)
    changes = [{"signature": "0" * 128}, {"signature": other.signature}, {"number": 1, "hash": "0" * 64}]
    refusals = {
        f"{told.model_copy(update=change).model_dump_json()}\n": "wrong signature" for change in changes
    }
    refusals[f"{other.model_dump_json()}\n"] = "another key signed"
    refusals |= dict.fromkeys(("buy milk", "buy milk\n", '{"signer":1}\n'), "not a file of checkpoints")
    for text, words in refusals.items():
        provider.marks.write_text(text)
        with pytest.raises((DamagedFileError, InputError), match=words):
            provider.snapshots()
        assert provider.marks.read_text() == text
    line = told.model_dump_json()
    provider.marks.write_text(f"{line}\n{line[:40]}")  # cut short by a crash
    assert read_checkpoints(provider.marks) == [told]
    with pytest.raises(InputError, match="no folder"):
        Snapshots(provider.ledger, provider.signer, folder / "no" / "marks")


def test_what_cannot_be_written_is_tried_again_and_no_fault_ends_the_thread(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, ledger = tmp_path / "away", provider.ledger
    folder.mkdir()
    snapshots = Snapshots(ledger, provider.signer, folder / "marks", every=1, retry_seconds=0.01)
    shutil.rmtree(folder)
    with monkeypatch.context() as patched:
        patched.setattr(ledger, "take_snapshot", lambda *given: 1 // 0)
        make_key(ledger)
        wait_until(lambda: snapshots.failures > 1)
    failures = snapshots.failures
    wait_until(lambda: snapshots.failures > failures + 1)
    folder.mkdir()
    wait_until((folder / "marks").exists)
    snapshots.close()
    assert verify(tmp_path, signers=[provider.signer.public], checkpoints=[folder / "marks"]).faults == ()


@pytest.mark.parametrize("change", ["added", "removed"])
def test_answers_added_or_removed_stop_a_start_and_all_charges_for_good(
    provider: Provider, change: str
) -> None:
    ledger, signer, key = provider.ledger, provider.signer, make_key(provider.ledger)
    charge(ledger, key, 1)
    snapshots = provider.snapshots()
    row: dict[str, Any] = {"key": 1, "model": MODELS[0], "label": 1, "entry": 3}
    row["content"] = content(1) if change == "removed" else b"x" * 16
    put, remove = log.answers.insert().values(row), log.answers.delete().filter_by(content=row["content"])
    first, second = (put, remove) if change == "added" else (remove, put)
    with behind(provider.folder) as connection:
        connection.execute(first)
    with closing(Ledger(provider.folder)) as book, pytest.raises(DamagedFileError, match="added or removed"):
        Snapshots(book, signer, provider.marks)
    snapshots.close()
    assert snapshots.failures > 0
    with behind(provider.folder) as connection:
        connection.execute(second)
    for use in (lambda: charge(ledger, key, 2), ledger.list_keys, lambda: ledger.check_ready(signer)):
        with pytest.raises(DamagedFileError, match="added or removed"):
            use()


def test_a_restored_backup_is_refused_until_its_loss_is_accepted(provider: Provider) -> None:
    key = make_key(provider.ledger)
    provider.keep(key, 1)
    provider.snapshots().close()
    with pytest.raises(InputError, match="nothing is lost"):
        accept_loss(provider.ledger, provider.marks)
    provider.keep(key, 2)
    provider.snapshots().close()
    provider.restore(4)
    with pytest.raises(InputError, match="does not hold entry 5 of the checkpoint .* accept-loss"):
        provider.snapshots()
    assert len(provider.verify().faults) == 2
    for budget in (20, 21):  # entries come first: then the loss is not accepted
        provider.ledger.set_key("anna", budget=budget)
        before = provider.ledger.state()
        with pytest.raises(InputError, match="does not hold entry 5 of the checkpoint"):
            provider.snapshots()
        with pytest.raises(InputError, match="restore it again, and accept the loss first"):
            accept_loss(provider.ledger, provider.marks)
        assert provider.ledger.state() == before
    provider.restore(4)
    assert accept_loss(provider.ledger, provider.marks) == 1
    provider.snapshots().close()
    verdict = provider.verify()
    assert (verdict.faults, verdict.agreed, verdict.lost) == ((), 3, 2)
    provider.restore(2)  # what was lost may not be more than was accepted
    assert provider.verify().faults
    assert accept_loss(provider.ledger, provider.marks) == 3
    assert provider.verify().faults == ()


def test_another_signing_key_is_accepted_beside_the_one_before_alone(
    provider: Provider, tmp_path: Path
) -> None:
    ledger, marks, before = provider.ledger, provider.marks, provider.signer.public
    provider.snapshots().close()
    other, stranger = (Signer.open(tmp_path / f"{name}.pem") for name in ("other", "stranger"))
    with pytest.raises(DamagedFileError, match=f"the key {before[:16]}.* as `signer`"):
        Ledger(tmp_path).trust(other.public)
    ledger.trust(other.public, before)
    Snapshots(ledger, other, marks).close()
    assert verify(tmp_path, signers=[other.public, before], checkpoints=[marks]).faults == ()
    with closing(Ledger(tmp_path / "new.sqlite", create=True)) as book:
        book.trust(stranger.public)
        with pytest.raises(InputError, match="not signed for this ledger"):
            accept_loss(book, marks)


def test_a_ledger_is_checked_archived_restored_and_accepted(provider: Provider, tmp_path: Path) -> None:
    place, key, marks = ("--ledger", tmp_path), make_key(provider.ledger), provider.marks
    for number in range(3):
        provider.keep(key, number)
    evidence = ("--receipts", provider.receipts, "--checkpoints", marks)
    provider.snapshots().close()
    charge(provider.ledger, key, 9)
    assert run_command("ledger", "verify", *place, *evidence).status == 2  # no signer is named
    place += ("--signer", provider.signer.public)
    told = run_successfully("ledger", "verify", *place, *evidence).err
    assert "4 receipts and checkpoints agree" in told
    assert "covers the last 2 entries" in told
    old = tmp_path / "old.jsonl"
    run_successfully("ledger", "archive", "--out", old, *place)
    assert "archived and were not read" in run_command("ledger", "verify", *place).err
    run_successfully("ledger", "verify", *place, *evidence, "--archive", old)
    provider.snapshots().close()
    provider.restore(7)
    run_successfully("ledger", "verify", *place)
    done = run_command("ledger", "verify", *place, "--checkpoints", marks)
    assert done.status == 2
    assert "fault: the checkpoint of" in done.err
    run_successfully("ledger", "accept-loss", "--checkpoints", marks, *place)
    assert "accepted" in run_command("ledger", "verify", *place, "--checkpoints", marks).err
