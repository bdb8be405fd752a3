"""Every reader of a file either reads it or refuses it in one line, whatever is in it."""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save_file

from ucds.data.decode import COMMON_FORMATS, decode_image
from ucds.data.folders import scan_folder
from ucds.data.images import ImageSamples
from ucds.data.parts import PartStore
from ucds.data.vectors import load_vectors, read_arrays
from ucds.errors import UserError
from ucds.experiments.grid import read_benchmark
from ucds.experiments.records import IDENTITY, ORIGIN, read_records
from ucds.gradients.checkpoint import Checkpoint, StageProgress, read_checkpoint, write_checkpoint
from ucds.labels.cluster_labels import ClusterLabels, marks_of
from ucds.labels.journal import Journal, KeptReceipt, read_receipts
from ucds.labels.wire import Budget, Receipt, ServiceInfo
from ucds.networks.model import ClusteringModel
from ucds.networks.spec import identity_backbone
from ucds.networks.weight_files import read_state_dict
from ucds.reports.page.findings import read_record
from ucds.serving.checkpoints import Snapshots, read_checkpoints
from ucds.serving.ledger import Ledger
from ucds.serving.signing import Signer
from ucds.serving.verify import verify
from ucds.target.predictions import ClusterNames
from ucds.target.questions import read_answers
from ucds.training.model_file import ModelCard, StoredModel, load_model, save_model
from ucds.training.run_folder import CHECKPOINT_FILE, MODEL_FILE, RunFolder

KEYS = [bytes([i]) * 16 for i in range(5)]
VALUES = np.arange(20, dtype=np.float32).reshape(5, 4)
TOML = """
title = "Small"
[grid]
backbone = "resnet18"
targets = ["a"]
methods = ["po"]
seeds = [0]
"""
INFO = ServiceInfo(
    model="alpha",
    model_digest="a" * 32,
    n_clusters=3,
    accepts="images",
    width=None,
    max_batch=8,
    max_image_bytes=1000,
    max_image_pixels=1000,
    max_request_bytes=1000,
    signer="5" * 64,
    budget=Budget(limit=1, used=0, remaining=1),
)


class Reader(NamedTuple):
    """A pattern of a file's name, the way to write a good file into a folder, and the way to read it."""

    name: str
    write: Callable[[Path], object]
    read: Callable[[Path], object]


def file(name: str, content: str | bytes, read: Callable[[Path], object]) -> Reader:
    """The reader of one file with this content."""
    data = content.encode() if isinstance(content, str) else content
    return Reader(name, lambda folder: (folder / name).write_bytes(data), lambda folder: read(folder / name))


def saved(save: Callable[..., object], **arrays: Any) -> bytes:
    buffer = io.BytesIO()
    save(buffer, **arrays)
    return buffer.getvalue()


def _write_model(folder: Path) -> None:
    model = ClusteringModel(identity_backbone(4), 3, bottleneck_width=5)
    card = ModelCard("target", "x", 3, 5, model.spec, "none", ("a",), ("s",))
    save_model(folder, StoredModel.of(card, model, torch.ones(1, 3)))


def _write_checkpoint(folder: Path) -> None:
    write_checkpoint(folder, Checkpoint("s", {"w": torch.ones(9)}, StageProgress(step=3), [], 7))


RECEIPT = Receipt(
    entries=["e" * 64],
    time="2026-01-01T00:00:00.000+00:00",
    model_digest="a" * 32,
    answers_digest="b" * 64,
    signer="5" * 64,
    signature="0" * 128,
)


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
RUN = dict.fromkeys((*IDENTITY, *ORIGIN), "a") | {"accuracy": 0.5}
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
    "checkpoint": Reader(CHECKPOINT_FILE, _write_checkpoint, read_checkpoint),
    "model": Reader(MODEL_FILE, _write_model, load_model),
    "run": file("run.json", '{"seed": 1}', lambda path: RunFolder(path.parent).refuse_other_run({"seed": 1})),
    "record": file("run.json", '{"seed": 1, "images": "x"}', lambda path: read_record(path.parent)),
    "records": file("runs.jsonl", f"{json.dumps(RUN)}\n" * 2, read_records),
    "names": file("names.json", json.dumps(NAMES), ClusterNames.load),
    "answers": file("answers.jsonl", ANSWERS, lambda path: read_answers(path, "c")),
    "vectors": file("x.npy", saved(np.save, arr=np.eye(4)), load_vectors),
    "archive": file("x.npz", saved(np.savez, a=np.eye(4)), load_vectors),
    "packed arrays": file("x.npz", saved(np.savez_compressed, a=np.eye(9)), read_arrays),
    "weights": file("w.pth", saved(partial(torch.save, {"w": torch.ones(3)})), read_state_dict),
    "safe weights": Reader(
        "w.safetensors",
        lambda folder: save_file({"w": torch.ones(3)}, folder / "w.safetensors"),
        lambda folder: read_state_dict(folder / "w.safetensors"),
    ),
    "benchmark": file("b.toml", TOML, read_benchmark),
    "rows": Reader("*/*.npy", _write_rows, _read_rows),
    "description of a part": Reader("*/*.part", _write_rows, _read_rows),
    "known files": Reader("images/*.known", _write_known_files, _open_images),
} | {
    kind: file(
        "picture", saved(partial(PICTURE.save, format=kind)), lambda path: decode_image(path.read_bytes(), 8)
    )
    for kind in COMMON_FORMATS
}

_VALUE = re.compile(rb'"[^"]*"|-?\d+(\.\d+)?|true|false|null')
_OTHER_VALUES = rb'null 1e999 -1 999999999999999999999999999999 NaN [] {} true "" "\ud800"'.split()


@dataclass(frozen=True)
class Damage:
    """A change of a file, small enough to be printed."""

    kind: str
    place: float
    data: bytes
    value: bytes

    def of(self, whole: bytes) -> bytes:
        """Other contents, or these with a change at some place."""
        at = int(self.place * len(whole))
        if self.kind == "value":
            values = [found.span() for found in _VALUE.finditer(whole)] or [(at, at)]
            start, end = values[int(self.place * len(values))]
            return whole[:start] + self.value + whole[end:]
        return {
            "other": self.data,
            "change": whole[:at] + self.data + whole[at + len(self.data) :],
            "cut": whole[:at],
            "insert": whole[:at] + self.data + whole[at:],
            "double": whole[:at] + whole[at // 2 :],
            "nest": whole[:at] + b"[" * 5000 + whole[at:],
        }[self.kind]


DAMAGES = st.builds(
    Damage,
    st.sampled_from(["value", "other", "change", "cut", "insert", "double", "nest"]),
    st.floats(0, 1, exclude_max=True),
    st.binary(max_size=40),
    st.sampled_from(_OTHER_VALUES),
)


def refusal_of(reader: Reader, folder: Path) -> str:
    """The reason why a file is refused; nothing if it is read."""
    try:
        reader.read(folder)
    except UserError as error:
        return str(error)
    return ""


def check(name: str, folder: Path, examples: int, *, same: bool) -> None:
    """Damage a file of one kind many times, and read it."""
    reader = READERS[name]
    reader.write(folder)
    (path,) = folder.glob(reader.name)
    whole = path.read_bytes()
    reader.read(folder)

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=same,
        suppress_health_check=list(HealthCheck),
    )
    @given(DAMAGES)
    def read_damaged(damage: Damage) -> None:
        path.write_bytes(damage.of(whole))
        with warnings.catch_warnings(action="ignore"):
            assert "\n" not in refusal_of(reader, folder)

    read_damaged()


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, 12, same=True)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", READERS)
def test_ten_thousand_damaged_files(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, -(-10_000 // len(READERS)), same=False)
