"""Tests of tables: columns become numbers or words, and what is no table is refused in one line."""

import io
from pathlib import Path

import numpy as np
import pandas
import pyarrow.parquet
import pytest

from ucds.data.tables import read_table
from ucds.errors import InputError, UcdsWarning


def test_columns_are_read_as_numbers_or_as_words(tmp_path: Path) -> None:
    path = tmp_path / "t.CSV"
    path.write_text("\ufeffname,size\n\nü,1\n2,2.5\n", encoding="utf-8")
    columns = read_table(path)
    assert columns["name"] == ["ü", "2"]
    np.testing.assert_array_equal(columns["size"], [1, 2.5])
    np.savetxt(path, [[1, 2], [3, 4], [5, 6]], delimiter=",")  # without names
    np.testing.assert_array_equal(read_table(path)["1"], [2, 4, 6])
    table = pyarrow.table({"vector": [[1.0, 2.0], [3.0, 4.0]], "size": [1.5, 2]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    columns = read_table(tmp_path / "t.parquet")
    np.testing.assert_array_equal(columns["vector"], np.array([[1, 2], [3, 4]], np.float32))
    np.testing.assert_array_equal(columns["size"], [1.5, 2])


FORMS = [pyarrow.list_(pyarrow.float32()), pyarrow.large_list(pyarrow.float32())]
FORMS += [pyarrow.list_(pyarrow.float32(), 3)]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_vectors_of_a_long_parquet_file_become_one_array(tmp_path: Path, form: pyarrow.DataType) -> None:
    rows = np.random.default_rng(0).normal(size=(70_000, 3)).astype(np.float32)
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


TWO_OF_A_NAME = io.BytesIO()
pyarrow.parquet.write_table(pyarrow.table([[1.0], [2.0]], names=["a", "a"]), TWO_OF_A_NAME)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.csv", b"", "without rows"),
        ("t.csv", b"a,b\n", "without rows"),
        ("t.csv", b"a,b\n\n \n", "without rows"),
        ("t.csv", b"a;b\n1;2\n", "is separated by semicolons: save it separated by commas"),
        ("t.csv", b"a\tb\n1\t2\n", "is separated by tabs: save it separated by commas"),
        ("t.csv", b"a,a\n1,2\n", "two columns of .* have the same name .a.: rename one column"),
        ("t.parquet", TWO_OF_A_NAME.getvalue(), "two columns of .* have the same name .a."),
        ("t.csv", b"a,b\n1,2\n3\n", "Expected 2 columns, got 1: 3"),
        ("t.csv", b"a\n\xff\n", "not a readable CSV file in UTF-8"),
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


def test_what_only_looks_like_numbers_stays_words(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,c,d\n1_000,2020-01-01,true, 1.5\n2,2020-01-02,false,-inf\n")
    columns = read_table(tmp_path / "t.csv")
    assert columns["a"] == ["1_000", "2"]
    assert columns["b"] == ["2020-01-01", "2020-01-02"]
    assert columns["c"] == ["true", "false"]
    np.testing.assert_array_equal(columns["d"], [1.5, -np.inf])


def test_numbers_from_0_in_the_first_line_are_names(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    pandas.DataFrame(np.array([[1.5, 2.5], [3.5, 4.5]])).to_csv(path, index=False)
    with pytest.warns(UcdsWarning, match="counts from 0, so it is taken for the names"):
        columns = read_table(path)
    assert list(columns) == ["0", "1"]
    np.testing.assert_array_equal(columns["1"], [2.5, 4.5])
