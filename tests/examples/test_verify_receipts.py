"""The example that verifies receipts and checkpoints without this package finds each change of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ucds.labels.receipts import keep_receipt
from ucds.serving.checkpoints import Checkpoint, CheckpointWriter, parse_place
from ucds.serving.ledger import Ledger
from ucds.serving.signing import Signer

SCRIPT = Path(__file__).parents[2] / "examples" / "verify_receipts.py"


def verify(public: str, *files: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(SCRIPT), public, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_receipts_and_checkpoints_are_verified_without_our_code(tmp_path: Path) -> None:
    book = Ledger(tmp_path)
    signer = Signer.open(tmp_path / "key.pem")
    book.set_signer(signer.public)
    record = book.find_key(book.add_key("anna", 50))
    assert record is not None
    receipts, marks = tmp_path / "labels.json.receipts", tmp_path / "checkpoints"
    writer = CheckpointWriter(book, signer, parse_place(marks))
    for number in range(3):
        labels = {bytes([number, i] * 8): i for i in range(4)}
        charge = book.charge(record, "a" * 32, list(labels), labels)
        keep_receipt(receipts, signer.receipt(charge, "a" * 32), labels)
    writer.close()
    book.close()
    good = verify(signer.public, receipts, marks)
    assert (good.returncode, good.stdout[:22]) == (0, "4 entries of the log, "), good.stderr

    def changed(old: str, new: str, path: Path) -> subprocess.CompletedProcess[str]:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        done = verify(signer.public, receipts, marks)
        path.write_text(text)
        return done

    assert "InvalidSignature" in changed('"entry":4', '"entry":6', receipts).stderr
    assert "InvalidSignature" in changed('"entries":5', '"entries":6', marks).stderr
    assert "other labels" in changed('":3}', '":2}', receipts).stderr
    assert "InvalidSignature" in verify(Signer.open(tmp_path / "other.pem").public, receipts).stderr
    forked = signer.sign(Checkpoint, entries=5, hash="0" * 64, time=record.created)
    marks.write_text(forked.model_dump_json() + "\n")
    assert "two different logs" in verify(signer.public, receipts, marks).stderr
