"""Every reader of a file either reads it or refuses it in one line, whatever is in it."""

import json
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from fake_service import INFO, RECEIPT
from PIL import Image
from reader_kit import Reader, check, file, saved

from ucds.data.decode import COMMON_FORMATS, decode_image
from ucds.data.folders import scan_folder
from ucds.data.images import ImageSamples
from ucds.data.parts import PartStore
from ucds.data.vectors import load_vectors, read_arrays
from ucds.encoders.encoder import IdentityEncoder
from ucds.heads import Head
from ucds.labels.cluster_labels import ClusterLabels, marks_of
from ucds.labels.journal import Journal, KeptReceipt, read_receipts
from ucds.page.findings import read_record
from ucds.serving.checkpoints import Snapshots, read_checkpoints
from ucds.serving.ledger import Ledger
from ucds.serving.signing import Signer
from ucds.serving.verify import verify
from ucds.target.answers import read_answers
from ucds.target.predictions import read_names
from ucds.training.model_file import Making, ModelCard, StoredModel, load_model, save_model
from ucds.training.run_folder import MODEL_FILE, RunFolder

KEYS = [bytes([i]) * 16 for i in range(5)]
VALUES = np.arange(20, dtype=np.float32).reshape(5, 4)


def _write_model(folder: Path) -> None:
    encoder, zeros = IdentityEncoder(4), np.zeros((5, 4), np.float32)
    making = Making("consensus", {}, 3, 0, "32-true", {})
    card = ModelCard("target", "x", 3, 5, encoder.spec, "none", ("a",), ("s",), making)
    head = Head(zeros, zeros[:, 0], zeros[:, :3])
    save_model(folder, StoredModel(card, head, encoder, np.ones((1, 3), np.float32)))


def _open_journal(folder: Path) -> Journal:
    return Journal(folder / "journal", url="https://a.example", info=INFO)


def _write_journal(folder: Path) -> None:
    with _open_journal(folder) as journal:
        journal.add(KeptReceipt(receipt=RECEIPT, labels={"1" * 32: 1, "2" * 32: 2}))


LABELS = ClusterLabels(("a", "b"), np.array([0, 2]), 3, "p", marks_of(KEYS[:2]))


def _open_rows(folder: Path) -> PartStore:
    return PartStore(folder, "x", (4,), np.float32)


def _write_rows(folder: Path) -> None:
    _open_rows(folder).add(KEYS, VALUES)


def _read_rows(folder: Path) -> None:
    store = _open_rows(folder)
    rows = store.rows_of(KEYS)
    assert all(row in VALUES.tolist() for row in store.read(rows[rows >= 0]).tolist())


def _open_images(folder: Path) -> None:
    assert len(ImageSamples(scan_folder(folder / "pictures"), folder, size=8)) == 1


def _write_known_files(folder: Path) -> None:
    (folder / "pictures").mkdir()
    Image.new("RGB", (8, 8)).save(folder / "pictures" / "a.png")
    _open_images(folder)


def _write_ledger(folder: Path) -> None:
    with closing(Ledger(folder, create=True)) as book:
        signer = Signer.open(folder / "key.pem")
        book.trust(signer.public)
        key = book.authenticate(book.add_key("anna", 50))
        labels = dict.fromkeys(KEYS, 2)
        receipt = book.charge(key, "a" * 32, KEYS, labels, request="r").receipt(signer, "a" * 32)
        with Journal(folder / "receipts", url="https://a", info=INFO) as journal:
            journal.add(KeptReceipt(receipt=receipt, labels={key.hex(): 2 for key in KEYS}))
        Snapshots(book, signer, folder / "checkpoints").close()


def _read_ledger(folder: Path) -> None:
    with closing(Ledger(folder)) as book:
        book.list_keys()
        book.trust(Signer.open(folder / "key.pem").public)
    verify(folder)


PICTURE = Image.fromarray(np.arange(768, dtype=np.uint8).reshape(16, 16, 3))


NAMES = {"format": "ucds-names/1", "model": "m", "names": {"0": "dogs", "2": "cats"}}
ANSWERS = '{"format": "ucds-answers/1", "clusters": "c"}\n{"did": "joined", "group": ["a"], "to": ["b"]}\n'
READERS = {
    "labels": Reader(
        "labels.json",
        lambda folder: LABELS.save(folder / "labels.json"),
        lambda folder: ClusterLabels.load(folder / "labels.json"),
    ),
    "journal": Reader("journal", _write_journal, lambda folder: _open_journal(folder).__exit__()),
    "receipts": Reader("receipts", _write_ledger, lambda folder: read_receipts(folder / "receipts")),
    "ledger": Reader("ledger.sqlite", _write_ledger, _read_ledger),
    "signed heads": Reader(
        "checkpoints", _write_ledger, lambda folder: read_checkpoints(folder / "checkpoints")
    ),
    "signing key": Reader("key.pem", _write_ledger, lambda folder: Signer.open(folder / "key.pem")),
    "model": Reader(MODEL_FILE, _write_model, load_model),
    "run": file("run.json", '{"seed": 1}', lambda path: RunFolder(path.parent).refuse_other_run({"seed": 1})),
    "record": file("run.json", '{"seed": 1, "images": "x"}', lambda path: read_record(path.parent)),
    "names": file("names.json", json.dumps(NAMES), lambda path: read_names(path.parent)),
    "answers": file("answers.jsonl", ANSWERS, lambda path: read_answers(path, "c")),
    "vectors": file("x.npy", saved(np.save, arr=np.eye(4)), load_vectors),
    "archive": file("x.npz", saved(np.savez, a=np.eye(4)), load_vectors),
    "packed arrays": file("x.npz", saved(np.savez_compressed, a=np.eye(9)), read_arrays),
    "rows": Reader("*/*.npy", _write_rows, _read_rows),
    "description of a part": Reader("*/*.part", _write_rows, _read_rows),
    "known files": Reader("images/*.known", _write_known_files, _open_images),
} | {
    kind: file(
        "picture", saved(partial(PICTURE.save, format=kind)), lambda path: decode_image(path.read_bytes(), 8)
    )
    for kind in (*COMMON_FORMATS, "PPM", "JPEG2000")
}


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    check(READERS[name], tmp_path, 12, same=True)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", READERS)
def test_ten_thousand_damaged_files(name: str, tmp_path: Path) -> None:
    check(READERS[name], tmp_path, -(-10_000 // len(READERS)), same=False)
