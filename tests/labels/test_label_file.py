"""The label file is the JSON that ``json.dumps`` would write, however many labels there are."""

from __future__ import annotations

import hashlib
import json
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from ucds.data.columns import Keys, RowIds
from ucds.errors import UserError
from ucds.labels.cluster_labels import ClusterLabels
from ucds.labels.label_reading import read_label_file
from ucds.labels.marks import marks_of
from ucds.labels.wire import canonical_json

COUNTS = [1, 3, 10_000, 10_001, 20_000]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("marked", [False, True])
def test_a_file_in_pieces_is_the_file_as_a_whole(tmp_path: Path, count: int, marked: bool) -> None:
    rng = np.random.default_rng(count)
    contents = marks_of(Keys(rng.integers(256, size=(count, 16), dtype=np.uint8))) if marked else None
    held = ClusterLabels(RowIds(count), rng.integers(7, size=count), 7, 'Klinik "Süd"', contents)
    held.save(tmp_path / "labels.json")
    fields = {"format": "ucds-labels/2", "provider": 'Klinik "Süd"', "n_clusters": 7}
    fields |= {"ids": [str(i) for i in range(count)], "labels": held.labels.tolist()}
    fields |= {} if contents is None else {"contents": list(contents)}
    fields["digest"] = hashlib.sha256(canonical_json(fields)).hexdigest()
    whole = json.dumps(fields, ensure_ascii=False, indent=0) + "\n"
    assert (tmp_path / "labels.json").read_text(encoding="utf-8") == whole
    again = ClusterLabels.load(tmp_path / "labels.json")
    assert isinstance(again.ids, RowIds)
    assert (again.ids, again.contents) == (held.ids, held.contents)
    assert again.fingerprint == held.fingerprint


def in_pieces_and_whole(text: str, folder: Path) -> list[object]:
    """Return what is read of a label file, or why it is refused: as it stands, and with all in one line."""
    found: list[object] = []
    for name, content in (("lines", text), ("line", text.replace("\n", " "))):
        path = folder / f"{name}.json"
        path.write_text(content, encoding="utf-8")
        try:
            read = read_label_file(path)
            read.check_digest()
            contents = None if read.contents is None else list(read.contents)
            found.append((list(read.ids), read.labels.tolist(), contents, read.form.provider))
        except UserError as error:
            found.append(re.sub(r" at line.*", "", str(error).replace(str(path), "FILE")))
    return found


def lines_of(**fields: object) -> str:
    plain = {"format": "ucds-labels/1", "provider": "p", "n_clusters": 5, "ids": ["a", "b"], "labels": [0, 1]}
    return json.dumps(plain | fields, indent=0)


@pytest.mark.parametrize(
    "text",
    [
        lines_of(),
        lines_of(contents=["0" * 16, "1" * 16]),
        lines_of(contents=None),
        lines_of(contents=[]),
        lines_of(ids=["a\n]", "b[\n"]),
        lines_of(ids=[], labels=[]),
        lines_of(noise=0.5),
        lines_of(more=[1, 2]),
        lines_of(labels=[0, [1]]),
        lines_of(labels=[0, 1.0]),
        lines_of(labels=[0, 2**70]),
        lines_of(provider="x" * 70_000),
        lines_of().replace('"a"', '"a",\n'),
        lines_of().replace('"b"', '"b",\n'),
        lines_of().replace('"a"', '"a"], "noise": 1, "ids": [\n"c"'),
        lines_of().replace('"b"\n]', '"b"]'),
        lines_of().replace('"labels"', '"ids"'),
        lines_of() + "}",
        "[\n]",
        "",
    ],
)
def test_pieces_say_what_the_whole_file_says(tmp_path: Path, text: str) -> None:
    pieces, whole = in_pieces_and_whole(text, tmp_path)
    assert pieces == whole


def test_a_file_is_read_in_the_memory_of_its_columns(tmp_path: Path) -> None:
    count, path = 200_000, tmp_path / "labels.json"
    marks = marks_of(Keys(np.random.default_rng(0).integers(256, size=(count, 16), dtype=np.uint8)))
    ClusterLabels(RowIds(count), np.arange(count) % 7, 7, "p", marks).save(path)
    tracemalloc.start()
    read_label_file(path)
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert held < 80 * count  # of Python objects it would be some 300 bytes a label
