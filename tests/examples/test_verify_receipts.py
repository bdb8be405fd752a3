"""The example that verifies receipts and checkpoints without this package finds each change of them."""

import subprocess
import sys
from pathlib import Path

from ucds.labels.journal import Journal, KeptReceipt
from ucds.labels.wire import ServiceInfo
from ucds.serving.checkpoints import Snapshots
from ucds.serving.ledger import Ledger
from ucds.serving.signing import Signer
from ucds.serving.state import Statement

SCRIPT = Path(__file__).parents[2] / "examples" / "verify_receipts.py"


def verify(public: str, *files: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(SCRIPT), public, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_receipts_and_checkpoints_are_verified_without_our_code(tmp_path: Path) -> None:
    book = Ledger(tmp_path, create=True)
    signer = Signer.open(tmp_path / "key.pem")
    book.trust(signer.public)
    key = book.authenticate(book.add_key("anna", 50))
    receipts, marks = tmp_path / "labels.json.receipts", tmp_path / "checkpoints"
    snapshots = Snapshots(book, signer, marks)
    told = {"provider": "m", "model_digest": "a" * 32, "n_clusters": 9}  # no more than a journal looks at
    info = ServiceInfo.model_construct(**told, signer=signer.public)
    with Journal(receipts, url="https://a.example", info=info) as journal:
        for number in range(3):
            labels = {bytes([number, i] * 8): i for i in range(4)}
            answers = book.charge(key, "a" * 32, list(labels), labels, request="r")
            told = {content.hex(): label for content, label in labels.items()}
            journal.add(KeptReceipt(receipt=answers.receipt(signer, "a" * 32), labels=told))
    snapshots.close()
    book.close()
    good = verify(signer.public, receipts, marks)
    assert (good.returncode, good.stdout[:28]) == (0, "3 receipts and 2 checkpoints"), good.stderr

    def changed(old: str, new: str, path: Path) -> subprocess.CompletedProcess[str]:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        done = verify(signer.public, receipts, marks)
        path.write_text(text)
        return done

    assert "InvalidSignature" in changed('"entries":["', '"entries":["00', receipts).stderr
    assert "InvalidSignature" in changed('"number":', '"number":1', marks).stderr
    assert "other labels" in changed('":3}', '":2}', receipts).stderr
    assert "32 digits" in changed('"labels":{"', '"labels":{"00', receipts).stderr
    assert "small order" in verify("01" + "00" * 31, receipts).stderr
    assert "InvalidSignature" in verify(Signer.open(tmp_path / "other.pem").public, receipts).stderr
    statement = Statement.model_validate_json(marks.read_text().splitlines()[-1])
    fields = statement.model_dump(exclude={"signer", "signature"}) | {"hash": "0" * 64}
    with marks.open("a") as file:
        file.write(signer.sign(Statement, **fields).model_dump_json() + "\n")
    assert "two different logs" in verify(signer.public, receipts, marks).stderr
