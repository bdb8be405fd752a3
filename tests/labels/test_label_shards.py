"""Tests of label shards: what is read, and what is refused by the name of its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest

from ucds.errors import DamagedFileError, InputError
from ucds.labels.cluster_labels import ClusterLabels

GOOD = {
    "sample": ["a", "b"],
    "content": ["0" * 32, "f" * 32],
    "label": pyarrow.array([0, 2], pyarrow.int32()),
}
BAD_BYTES = pyarrow.array([b"a", b"\xff"]).view(pyarrow.string())


def write(folder: Path, *parts: dict[str, Any], **job: Any) -> Path:
    """Write label shards with these columns."""
    for number, columns in enumerate(parts):
        parquet.write_table(pyarrow.table(columns), folder / f"part-{number:06d}.parquet")
    card = {
        "format": "ucds-shards/1",
        "what": "labels",
        "shards": len(parts),
        "n_clusters": 3,
        "provider": "p",
    }
    (folder / "job.json").write_text(json.dumps(card | job))
    return folder


def test_parts_are_joined_and_one_of_them_may_be_empty(tmp_path: Path) -> None:
    empty = {"sample": pyarrow.array([], pyarrow.string()), "content": [], "label": []}
    more = GOOD | {"sample": ["c", "d"], "label": np.array([1, 1])}
    found = ClusterLabels.load(write(tmp_path, GOOD, empty, more))
    assert tuple(found.ids) == ("a", "b", "c", "d")
    assert found.labels.tolist() == [0, 2, 1, 1]
    assert tuple(found.contents or ()) == ("0" * 16, "f" * 16) * 2
    assert (found.n_clusters, found.provider) == (3, "p")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("label", [0.0, 1.7]),
        ("label", [0.0, 1.0]),
        ("label", [0, None]),
        ("label", ["0", "1"]),
        ("label", [True, False]),
        ("label", [[0], [1]]),
        ("sample", [7, 8]),
        ("sample", ["a", None]),
        ("sample", [b"a", b"b"]),
        ("content", ["0" * 32, "g" * 32]),
        ("content", ["0" * 32, "f" * 31]),
        ("content", ["0" * 32, "f" * 33]),
        ("content", ["0" * 32, "0f" * 15 + " \n"]),
        ("content", ["0" * 32, None]),
        ("content", [1, 2]),
    ],
)
def test_a_column_of_another_kind_is_refused_by_the_name_of_the_file(
    tmp_path: Path, name: str, values: list[Any]
) -> None:
    with pytest.raises(
        DamagedFileError, match=f"part-000001.parquet is not .*: its column '{name}' must hold"
    ):
        ClusterLabels.load(write(tmp_path, GOOD, GOOD | {"sample": ["c", "d"], name: values}))


@pytest.mark.parametrize("name", list(GOOD))
def test_a_missing_column_is_refused_by_the_name_of_the_file(tmp_path: Path, name: str) -> None:
    rest = {other: values for other, values in GOOD.items() if other != name}
    with pytest.raises(DamagedFileError, match=f"part-000000.parquet is not .*: it has no column '{name}'"):
        ClusterLabels.load(write(tmp_path, rest))


@pytest.mark.parametrize(
    ("change", "job", "words"),
    [
        ({"label": [0, 3]}, {}, "3 clusters were announced"),
        ({"label": [0, -1]}, {}, "3 clusters were announced"),
        ({"sample": ["a", "a"]}, {}, "labelled twice"),
        ({}, {"n_clusters": 0}, "0 clusters were announced"),
    ],
)
def test_labels_that_contradict_each_other_are_refused(
    tmp_path: Path, change: dict[str, Any], job: dict[str, Any], words: str
) -> None:
    with pytest.raises(DamagedFileError, match=f"is not a usable folder of label shards: .*{words}"):
        ClusterLabels.load(write(tmp_path, GOOD | change, **job))


def test_a_part_that_is_no_parquet_or_no_text_is_refused(tmp_path: Path) -> None:
    write(tmp_path, GOOD | {"sample": BAD_BYTES})
    with pytest.raises(InputError, match=r"part-000000\.parquet is not a readable parquet file"):
        ClusterLabels.load(tmp_path)
    (tmp_path / "part-000000.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match=r"part-000000\.parquet is not a readable parquet file"):
        ClusterLabels.load(tmp_path)
