"""Tests of tables: what is written is read again, and what is no table is refused in one line."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow.parquet
import pytest

from ucds.data.columns import RowIds
from ucds.data.tables import read_table, require_table, write_table
from ucds.errors import InputError, UcdsWarning

COLUMNS = {
    "sample": ["=1+1.png", "+a", "-b", "@c", "d=e", 'a,"b'],
    "cluster": np.array([0, -1, 2, 3, 4, 5]),
    "confidence": np.array([1 / 3, 0, 1, 0.25, 0.5, 0.99999], np.float32),
}


def test_every_format_holds_the_same_values(tmp_path: Path) -> None:
    for suffix in ("csv", "parquet", "json"):
        write_table(tmp_path / f"t.{suffix}", COLUMNS)
    exact = pyarrow.parquet.read_table(tmp_path / "t.parquet").to_pylist()
    assert [row["sample"] for row in exact] == COLUMNS["sample"]
    assert [row["cluster"] for row in exact] == [0, -1, 2, 3, 4, 5]
    assert exact[0]["confidence"] == np.float32(1 / 3)
    assert json.loads((tmp_path / "t.json").read_text()) == exact
    with (tmp_path / "t.csv").open(newline="") as file:
        assert file.readline() == "sample,cluster,confidence\n"
        rows = list(csv.reader(file))
    assert [row[0] for row in rows] == ["'=1+1.png", "'+a", "'-b", "'@c", "d=e", 'a,"b']  # no formulas
    assert rows[1][1] == "-1"  # a number is no formula
    assert [row[2] for row in rows] == ["0.3333", "0.0000", "1.0000", "0.2500", "0.5000", "1.0000"]


@pytest.mark.parametrize("rows", [0, 1, 2**16, 2**16 + 1, pytest.param(150_000, marks=pytest.mark.slow)])
def test_a_long_table_in_pieces_is_the_table_as_a_whole(tmp_path: Path, rows: int) -> None:
    columns = {"sample": RowIds(rows), "cluster": np.arange(rows) % 7}
    for suffix in ("csv", "parquet", "json"):
        write_table(tmp_path / f"t.{suffix}", columns)
    expected = [{"sample": str(i), "cluster": i % 7} for i in range(rows)]
    assert (tmp_path / "t.json").read_text() == json.dumps(expected, indent=1) + "\n"
    assert pyarrow.parquet.read_table(tmp_path / "t.parquet").to_pylist() == expected
    lines = [f"{row['sample']},{row['cluster']}\n" for row in expected]
    assert (tmp_path / "t.csv").read_text() == "sample,cluster\n" + "".join(lines)


def test_columns_of_different_lengths_are_no_table(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"lengths \[2, 3\]"):
        write_table(tmp_path / "t.csv", {"a": [1, 2], "b": [1, 2, 3]})
    assert not list(tmp_path.iterdir())


def test_columns_are_read_as_numbers_or_as_words(tmp_path: Path) -> None:
    path = tmp_path / "t.CSV"
    path.write_text("\ufeffname,size\n\nü,1\n2,2.5\n", encoding="utf-8")
    columns = read_table(path)
    assert columns["name"] == ["ü", "2"]
    np.testing.assert_array_equal(columns["size"], [1, 2.5])
    np.savetxt(path, [[1, 2], [3, 4], [5, 6]], delimiter=",")  # without names
    np.testing.assert_array_equal(read_table(path)["1"], [2, 4, 6])
    write_table(tmp_path / "t.parquet", {"vector": [[1.0, 2.0], [3.0, 4.0]], "size": np.array([1.5, 2])})
    columns = read_table(tmp_path / "t.parquet")
    np.testing.assert_array_equal(columns["vector"], np.array([[1, 2], [3, 4]], np.float32))
    np.testing.assert_array_equal(columns["size"], [1.5, 2])


@pytest.mark.parametrize("kind", ["list_", "large_list", "fixed"])
def test_vectors_of_a_long_parquet_file_become_one_array(tmp_path: Path, kind: str) -> None:
    rows = np.random.default_rng(0).normal(size=(70_000, 3)).astype(np.float32)
    of_numbers = {"list_": pyarrow.list_, "large_list": pyarrow.large_list}.get(kind)
    form = pyarrow.list_(pyarrow.float32(), 3) if of_numbers is None else of_numbers(pyarrow.float32())
    vectors = pyarrow.FixedSizeListArray.from_arrays(rows.ravel(), 3).cast(form)
    sizes = pyarrow.array([*range(69_999), None])
    table = pyarrow.table({"embedding": vectors, "size": sizes, "id": [str(i) for i in range(70_000)]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    columns = read_table(tmp_path / "t.parquet")
    np.testing.assert_array_equal(columns["embedding"], rows)
    np.testing.assert_array_equal(columns["size"], [*range(69_999), np.nan])
    assert columns["id"] == [str(i) for i in range(70_000)]


def test_lists_that_are_no_rows_of_numbers_stay_lists(tmp_path: Path) -> None:
    columns = {
        "ragged": [[1.0], [2.0, 3.0]],
        "hole": [[1.0], None],
        "gap": [[1.0], [None]],
        "no": [["a"], ["b"]],
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet") == columns


def test_a_parquet_file_that_has_fewer_rows_than_it_says_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"a": [1.0, 2.0, 3.0]}), tmp_path / "t.parquet")
    whole = pyarrow.parquet.ParquetFile.iter_batches

    def lose_rows(*arguments: Any, **options: Any) -> Iterator[Any]:
        return (batch.slice(1) for batch in whole(*arguments, **options))

    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", lose_rows)
    with pytest.raises(InputError, match="says that it has 3 rows, and has 2"):
        read_table(tmp_path / "t.parquet")


@pytest.mark.parametrize("name", ["t.txt", "t.xlsx", "t.csv.gz", "t", "parquet"])
def test_a_table_of_no_known_format_is_not_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"must end in \.csv or \.parquet or \.json"):
        write_table(tmp_path / name, COLUMNS)
    assert not list(tmp_path.iterdir())
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match="is a folder: name the file to write"):
        require_table(tmp_path / "folder.csv")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.csv", b"", "without rows"),
        ("t.csv", b"a,b\n", "without rows"),
        ("t.csv", b"a;b\n1;2\n", "save it separated by commas"),
        ("t.csv", b"a,a\n1,2\n", "two columns of .* have the same name"),
        ("t.csv", b"a,b\n1,2\n3\n", "row 2 of .* has 1 values for 2 columns"),
        ("t.csv", b"a\n\xff\n", "not a readable CSV file in UTF-8"),
        ("t.csv", b'a\n"b', "not a readable CSV file"),
        ("t.csv", b"a\n" + b"x" * 200_000, "not a readable CSV file"),
        ("t.parquet", b"PAR1 junk PAR1", "not a readable parquet file"),
        ("absent.csv", None, "There is no file"),
        ("absent.parquet", None, "There is no file"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, name: str, content: bytes | None, words: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=words) as error:
        read_table(tmp_path / name)
    assert "\n" not in str(error.value)


def test_numbers_from_0_in_the_first_line_are_names(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    pandas.DataFrame(np.array([[1.5, 2.5], [3.5, 4.5]])).to_csv(path, index=False)
    with pytest.warns(UcdsWarning, match="counts from 0 and is taken for names"):
        columns = read_table(path)
    assert list(columns) == ["0", "1"]
    np.testing.assert_array_equal(columns["1"], [2.5, 4.5])
