"""Files that name sizes which they do not hold: refused in one line, or read, in little memory."""

import io
import json
import shutil
import struct
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from memory_kit import check
from quick import quick
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import ucds
from ucds.choices import MOST_CLUSTERS
from ucds.data.content import content_key
from ucds.data.features import FeatureFolder, FeaturePart
from ucds.data.parts import describe_rows, write_part
from ucds.data.tables import read_table
from ucds.data.vectors import load_vectors
from ucds.encoders.encoder import IdentityEncoder
from ucds.encoders.spec import LARGEST_INPUT
from ucds.files import digest_of
from ucds.labels.cluster_labels import ClusterLabels
from ucds.page.findings import read_record
from ucds.received import MOST_ENTRIES
from ucds.target.answers import read_answers
from ucds.target.predictions import read_names
from ucds.target.remembered import Remembered, read_remembered, write_features, write_remembered
from ucds.training.model_file import arrays_digest, load_model, save_model
from ucds.training.run_folder import MODEL_FILE

CPU = ucds.Compute("cpu", cache=None)
ZEROS = bytes(2**24)
LARGE = 33 * len(ZEROS)


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of an array of zeros that is much smaller than its array."""
    path, head = tmp_path_factory.mktemp("bomb") / "bomb.npz", io.BytesIO()
    described = {"descr": "<f4", "fortran_order": False, "shape": (LARGE // 4, 1)}
    np.lib.format.write_array_header_1_0(head, described)
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("zeros.npy", "w", force_zip64=True) as entry,
    ):
        entry.write(head.getvalue())
        for _ in range(LARGE // len(ZEROS)):
            entry.write(ZEROS)
    return path


def test_packed_arrays_are_measured_before_they_are_unpacked(bomb: Path, tmp_path: Path) -> None:
    check(lambda: load_vectors(bomb), "unpacks to over 16 times its length: use numpy.savez")
    np.savez_compressed(tmp_path / "fine.npz", a=np.zeros((2**17, 8), np.float32))
    check(lambda: load_vectors(tmp_path / "fine.npz"), "")


def test_tables_are_measured_before_they_are_read(tmp_path: Path) -> None:
    column, path = pyarrow.table({"a": np.zeros(LARGE // 80)}), tmp_path / "packed.parquet"
    with pyarrow.parquet.ParquetWriter(path, column.schema) as table:
        for _ in range(12):
            table.write_table(column)
    check(lambda: read_table(path), "unpacks to over 100 times its length")
    pyarrow.parquet.write_table(pyarrow.table({"a": np.zeros(10**6)}), path)
    check(lambda: read_table(path), "")
    (tmp_path / "wide.csv").write_bytes(b"a," * 2**22)
    check(lambda: read_table(tmp_path / "wide.csv"), "too long a first line (over 4 MB)")


def test_a_header_larger_than_its_file_is_refused(tmp_path: Path) -> None:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (2**36, 8)})
    (tmp_path / "long.npy").write_bytes(head.getvalue() + bytes(64))
    check(lambda: load_vectors(tmp_path / "long.npy"), "is not a readable .npy or .npz file")
    (tmp_path / "head.npy").write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b"{" * 100)
    check(lambda: load_vectors(tmp_path / "head.npy"), "is not a readable .npy or .npz file")


REMEMBERED = Remembered(
    tuple(map(str, range(20))),
    np.zeros((3, 20), np.int64),
    np.arange(20) % 4,
    4,
    [content_key(bytes([i])) for i in range(20)],
    np.eye(20, 4, dtype=np.float32),
)


@pytest.fixture
def votes(tmp_path: Path) -> Path:
    write_remembered(tmp_path, REMEMBERED)
    write_features(tmp_path, np.ones((20, 5), np.float32))
    return tmp_path


def test_entries_that_nobody_asked_for_are_not_unpacked(votes: Path, bomb: Path) -> None:
    with zipfile.ZipFile(votes / "votes.npz") as archive:
        whole = {name: archive.read(name) for name in archive.namelist()}
    shutil.copy(bomb, votes / "votes.npz")
    with zipfile.ZipFile(votes / "votes.npz", "a") as archive:
        for name, content in whole.items():
            archive.writestr(name, content)
    check(lambda: read_remembered(votes), "")


@pytest.mark.parametrize(
    "changed",
    [
        {"partitions": np.full((3, 20), 2**62)},
        {"partitions": np.zeros((3, 19), np.int64)},
        {"partitions": np.zeros((2**22, 20), np.int8)},
        {"own": np.full(20, 2**40), "n_clusters": np.array(2**41)},
        {"own": np.full(20, 4)},
        {"n_clusters": np.array(2**40)},
        {"labels": np.zeros((20, 2**23), np.float16)},
        {"labels": np.zeros((19, 4), np.float16)},
        {"ids": np.frombuffer(b"[" + b"[]," * MOST_ENTRIES + b"1]", np.uint8)},
    ],
)
def test_what_a_run_remembers_is_compared_with_the_number_of_its_samples(votes: Path, changed: Any) -> None:
    with np.load(votes / "votes.npz") as found:
        arrays = dict(found) | changed
    with zipfile.ZipFile(votes / "votes.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as entry:
                np.lib.format.write_array(entry, array)

    def read() -> None:
        start, _ = read_remembered(votes)
        start.doubts()

    check(read, "votes.npz is")


@pytest.fixture
def model(tmp_path: Path, stored_model: Callable[..., Any]) -> Path:
    save_model(tmp_path, stored_model(IdentityEncoder(5), 3, 7))
    return tmp_path


def _describe(run: Path, tensors: dict[str, np.ndarray] | None = None, **changes: Any) -> None:
    """Write the file of a model again, with another description and its right digest."""
    path = run / MODEL_FILE
    tensors = load_file(path) if tensors is None else tensors
    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
    card = json.loads(metadata["card"])
    card = json.dumps(card | changes | {"encoder": card["encoder"] | changes.get("encoder", {})})
    metadata |= {"card": card, "digest": digest_of(card.encode(), arrays_digest(tensors))}
    save_file(tensors, path, metadata)


@pytest.mark.parametrize(
    "changes",
    [
        {"bottleneck_width": 2**31},
        {"n_clusters": 2**31},
        {"encoder": {"width": 2**31}},
        {"encoder": {"name": "resnet18", "input_size": LARGEST_INPUT + 1}},
        {"encoder": {"name": "resnet18", "input_size": 2**40}},
    ],
)
def test_the_description_of_a_model_is_compared_with_its_tensors(
    model: Path, changes: dict[str, Any]
) -> None:
    _describe(model, **changes)
    large = "input_size" in changes.get("encoder", ())
    words = "an encoder's input size is 1 to 1024 pixels" if large else "does not fit its own description"
    check(lambda: load_model(model), words)


def test_a_model_of_too_many_clusters_is_refused(model: Path) -> None:
    many = MOST_CLUSTERS + 1
    tensors = load_file(model / MODEL_FILE) | {"head.prototypes": np.zeros((7, many), np.float32)}
    _describe(model, tensors, n_clusters=many)
    check(lambda: load_model(model), "or there are too many")


def test_a_long_header_of_tensors_is_refused(model: Path) -> None:
    head = b'{"__metadata__":{' + b",".join(b'"%d":"%s"' % (i, b"x" * 2**12) for i in range(2**12)) + b"}}"
    (model / MODEL_FILE).write_bytes(len(head).to_bytes(8, "little") + head)
    check(lambda: load_model(model), "its header is too long")


LABELS = b'{"format": "ucds-labels/1", "provider": "a", "n_clusters": 3, "ids": ["a"], "labels": [%s]}'
NAMES = b'{"format": "ucds-names/1", "names": {%s}}'
ANSWERS = b'{"format": "ucds-answers/1"}\n[%s1]\n'
MANY = 2**23
TEXTS = {
    "labels": (LABELS % (b"1," * MANY + b"1"), ClusterLabels.load, "too large to be read"),
    "wrong labels": (LABELS % (b"[]," * (MOST_ENTRIES // 2 - 9) + b"1"), ClusterLabels.load, "labels"),
    "objects": (LABELS % (b'{"a":1},' * MANY), ClusterLabels.load, "too large to be read"),
    "deep": (b"[" * (MANY // 2), ClusterLabels.load, "is not a usable label file"),
    "names": (NAMES % (b'"":1,' * MANY), lambda path: read_names(path.parent), "too large"),
    "answers": (ANSWERS % (b"[]," * MANY), lambda path: read_answers(path, None), "too large"),
}
"""Texts of JSON whose entries take far more memory than the text, the way to read them, and the refusal."""


@pytest.mark.parametrize("name", TEXTS)
def test_the_entries_of_a_text_are_counted_before_they_are_read(tmp_path: Path, name: str) -> None:
    text, read, said = TEXTS[name]
    path = tmp_path / ("names.json" if name == "names" else "text")
    path.write_bytes(text)
    check(lambda: read(path), said)


def test_a_long_text_of_a_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ucds.received.MOST_TEXT", 2**20)
    (tmp_path / "run.json").write_text('{"a": "%s"}' % ("x" * (2**20 - 9)))
    read_record(tmp_path)
    (tmp_path / "run.json").write_text('{"a": "%s"}' % ("x" * (2**20 - 8)))
    with pytest.raises(ucds.UserError, match=r"run\.json is too large to be read \(over 1 MB\)"):
        read_record(tmp_path)


def test_labels_of_many_clusters_take_the_room_of_those_that_occur(
    tmp_path: Path, blobs: Callable[..., dict[str, Any]]
) -> None:
    np.save(tmp_path / "a.npy", blobs({"a": 300}, 3)["a"])
    n_clusters = MOST_CLUSTERS
    labels = ClusterLabels(tuple(map(str, range(300))), n_clusters - 1 - np.arange(300) % 5, n_clusters, "p")
    settings = quick(bottleneck_width=8, transfer="equal")
    train = partial(ucds.train_target, tmp_path / "a.npy", labels=labels, settings=settings, compute=CPU)
    check(lambda: train(tmp_path / "three", n_clusters=3), "")
    check(lambda: train(tmp_path / "all"), f"300 samples are too few for {n_clusters:,} clusters")


def test_features_are_compared_with_the_width_of_their_encoder(tmp_path: Path) -> None:
    keys, rows = [bytes(16)] * 3, np.zeros((3, 8), np.float32)
    manifest = {"format": "ucds-features/2", "origin": "x", "domain": "d", "parts": ["m"]}
    manifest |= {"weights": "w", "computed_by": "c", "size": 100_000, "decoder": 1, "root": str(tmp_path)}

    def write(ids: list[str], width: int) -> None:
        part = FeaturePart(
            **describe_rows(keys, rows), made_of="m", ids=ids, paths=None, domains=None, skipped=[]
        )
        write_part(tmp_path / "part-000000", rows, part)
        described = manifest | {"encoder": {"name": "resnet18", "width": width}}
        (tmp_path / "features.json").write_text(json.dumps(described))

    def read() -> None:
        (tmp_path / "a.png").write_bytes(b"no image")
        pictures = FeatureFolder(tmp_path, by_domain=False).find_pictures(None)
        pictures.read(np.arange(3))

    write(["a.png", "b.png", "c.png"], 8)
    check(read, "")  # pictures of 100,000 pixels a side would be asked for
    write(["a.png", "b.png", "c.png"], 9)
    check(read, "does not fit its rows")
    write(["a.png", "b.png"], 8)
    check(read, "does not fit its rows")
