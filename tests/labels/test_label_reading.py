"""A label file that is read piece by piece says what it says as a whole, in the memory of its columns."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ucds.data.columns import Keys, RowIds, Texts
from ucds.errors import UserError
from ucds.labels.cluster_labels import ClusterLabels
from ucds.labels.label_reading import read_label_file
from ucds.labels.marks import marks_of


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


@pytest.mark.parametrize(
    "ids", [RowIds(200_000), Texts([f"a/{i}.png" for i in range(30_000)])], ids=["numbers", "names"]
)
def test_a_file_is_read_in_the_memory_of_its_columns(tmp_path: Path, ids: Sequence[str]) -> None:
    count, path = len(ids), tmp_path / "labels.json"
    marks = marks_of(Keys(np.random.default_rng(0).integers(256, size=(count, 16), dtype=np.uint8)))
    ClusterLabels(ids, np.arange(count) % 7, 7, "p", marks).save(path)
    tracemalloc.start()
    read = read_label_file(path)
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert held < 2**23 + 60 * count  # a piece at a time; as Python objects a label has some 300 bytes
    assert type(read.ids) is type(ids)
    assert (read.ids, read.contents) == (ids, marks)
    assert (read.labels == np.arange(count) % 7).all()
