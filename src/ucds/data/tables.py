"""Tables, read by pyarrow from CSV and parquet files, whose suffix tells which."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from ucds.errors import InputError, UcdsWarning, one_line

READ_SUFFIXES = (".csv", ".parquet")

Column = Sequence[Any] | NDArray[Any]
Columns = Mapping[str, Column]


def plain_column(name: str) -> str:
    """Bring the name of a column to the form in which names are compared: lower case, no spaces around it."""
    return name.strip().lower()


def read_table(path: Path, words: Collection[str] = ()) -> dict[str, Column]:
    """Read the columns of a CSV or parquet file.

    A CSV file is in UTF-8, separated by commas, with names in the first line; without that line if it holds
    numbers only, unless these are 0, 1, 2 and so on: names that pandas gives. A column of a CSV file becomes
    numbers if all its values are.

    Args:
        path: file to read.
        words: names of columns of a CSV file that stay words, see :func:`plain_column`.

    Raises:
        InputError: there is no such file, it is not such a table, or it has no rows.

    Warns:
        UcdsWarning: the first line holds 0, 1, 2 and so on, and is taken for names.
    """
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    columns = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path, words)
    if not columns or not len(next(iter(columns.values()))):
        raise InputError(f"{path} is a table without rows")
    return columns


def _read_parquet(path: Path) -> dict[str, Column]:
    try:
        with path.open("rb") as file, pyarrow.parquet.ParquetFile(file) as opened:
            names = opened.schema_arrow.names
            return {name: _column(opened.read(columns=[name])[name]) for name in names}
    except (OSError, pyarrow.ArrowException, ValueError) as error:  # a ValueError: text that is not UTF-8
        raise InputError(f"{path} is not a readable parquet file ({one_line(error, 120)})") from None


def _column(column: Any) -> Column:
    """Return ``(n,)`` numbers, ``(n, d)`` rows, or a list of anything else."""
    kind, types = column.type, pyarrow.types
    if _are_numbers(kind):
        return np.asarray(column.to_numpy())
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return list(column.to_pylist())
    flat = pyarrow.compute.list_flatten(column)
    lengths = pyarrow.compute.list_value_length(column).drop_null().unique()
    whole = len(lengths) == 1 and not column.null_count and not flat.null_count
    if not whole or not _are_numbers(kind.value_type):
        return list(column.to_pylist())
    return np.asarray(flat.to_numpy()).reshape(len(column), -1)


def _are_numbers(kind: Any) -> bool:
    return bool(pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind))


def _read_csv(path: Path, words: Collection[str]) -> dict[str, Column]:
    try:
        names, skipped = _names_in(path)
        text = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pyarrow.string()), strings_can_be_null=False
        )
        table = pyarrow.csv.read_csv(
            path,
            pyarrow.csv.ReadOptions(column_names=names, skip_rows=skipped),
            pyarrow.csv.ParseOptions(newlines_in_values=True),
            text,
        )
    except (OSError, UnicodeDecodeError, csv.Error, pyarrow.ArrowException) as error:
        raise InputError(f"{path} is not a readable CSV file in UTF-8 ({one_line(error, 160)})") from None
    columns: dict[str, Column] = {}
    for name in names:
        numbers = None if plain_column(name) in words else _numbers(table[name])
        columns[name] = table[name].to_pylist() if numbers is None else numbers
    return columns


def _names_in(path: Path) -> tuple[list[str], int]:
    """Return the names of the columns, and the number of lines before the first row.

    Raises:
        InputError: there are no names that can be used.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, strict=True)
        first = next((row for row in lines if row), [])
    numbered = [str(number) for number in range(len(first))]
    if first and first == numbered:
        message = f"the first line of {path} counts from 0 and is taken for names of its columns"
        warnings.warn(message, UcdsWarning, stacklevel=6)
    elif first and _numbers(pyarrow.array(first, pyarrow.string())) is not None:
        return numbered, 0
    if not first:
        raise InputError(f"{path} is a table without rows")
    if len(first) == 1 and ";" in first[0]:
        raise InputError(f"{path} is separated by semicolons: save it separated by commas")
    if len(set(first)) < len(first):
        raise InputError(f"two columns of {path} have the same name")
    return first, lines.line_num


def _numbers(texts: Any) -> NDArray[np.float64] | None:
    """Return texts as numbers; ``None`` if one of them is no number, or if there is none."""
    try:
        found = pyarrow.compute.utf8_trim_whitespace(texts).cast(pyarrow.float64())
    except pyarrow.ArrowInvalid:
        return None
    return np.asarray(found.to_numpy(zero_copy_only=False)) if len(texts) else None
