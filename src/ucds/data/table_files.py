"""Reads tables by pyarrow, from CSV and parquet files and from memory."""

from __future__ import annotations

import csv
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from ucds.data.tables import Column, plain_column, texts_of_names, unguard
from ucds.errors import InputError, UserError, one_line, warn
from ucds.received import open_received

_LONGEST_LINE = 2**22  # bytes, of some hundred thousand names
_UNPACKED, _MOST_PACKED, _VALUE_BYTES = 2**28, 100, 8  # as of arrays; of a column, the same value packs well
_LONGEST_CELL = 64  # bytes that a cell of a wide CSV file takes on average, at most


def read_parquet(path: Path) -> dict[str, Column]:
    """Read the columns of a parquet file, as :func:`ucds.data.tables.read_table` does, with its errors."""
    try:
        with open_received(path, follow=True) as file, pyarrow.parquet.ParquetFile(file) as opened:
            names = texts_of_names(opened.schema_arrow.names, f" of {path}")
            held = _VALUE_BYTES * _count_values(opened.metadata)
            if held > max(_UNPACKED, _MOST_PACKED * os.fstat(file.fileno()).st_size):
                raise ValueError(f"it unpacks to over {_MOST_PACKED} times its length: use numpy.save")
            return {name: plain_array(opened.read(columns=[name]).column(0)) for name in names}
    except UserError:
        raise
    except (OSError, pyarrow.ArrowException, ValueError) as error:  # a ValueError: text that is not UTF-8
        raise InputError(f"{path} is not a readable parquet file ({one_line(error, 120)})") from None


def _count_values(about: Any) -> int:
    groups = map(about.row_group, range(about.num_row_groups))
    return sum(group.column(place).num_values for group in groups for place in range(group.num_columns))


def plain_array(column: Any) -> Column:
    """Convert an array of pyarrow to numbers, to ``(n, d)`` rows, or to a list."""
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


def read_csv(path: Path, words: Collection[str]) -> dict[str, Column]:
    """Read the columns of a CSV file, as :func:`ucds.data.tables.read_table` does, with its errors."""
    try:
        with open_received(path, follow=True) as file:
            if len(file.readline(_LONGEST_LINE)) == _LONGEST_LINE:
                raise InputError(f"{path} has too long a first line (over {_LONGEST_LINE / 1e6:.0f} MB)")
        names, skipped = _names_in(path)
        text = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pyarrow.string()), strings_can_be_null=False
        )
        table = pyarrow.csv.read_csv(
            path,
            # A line must fit into two blocks.
            pyarrow.csv.ReadOptions(
                column_names=names, skip_rows=skipped, block_size=max(2**20, _LONGEST_CELL * len(names))
            ),
            pyarrow.csv.ParseOptions(newlines_in_values=True),
            text,
        )
    except (OSError, UnicodeDecodeError, csv.Error, pyarrow.ArrowException) as error:
        raise InputError(f"{path} is not a readable CSV file in UTF-8 ({one_line(error, 160)})") from None
    columns: dict[str, Column] = {}
    for name, column in zip(names, table.columns, strict=True):
        numbers = None if plain_column(name) in words else _numbers(column)
        columns[name] = list(map(unguard, column.to_pylist())) if numbers is None else numbers
    return columns


def _names_in(path: Path) -> tuple[list[str], int]:
    """Return the names of the columns, and the number of lines before the first row."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, strict=True)
        first = next(filter(None, lines), [])
        read, has_rows = lines.line_num, any(map(str.strip, file))
    numbered = [str(number) for number in range(len(first))]
    if first and first == numbered:
        warn(f"the first line of {path} counts from 0, so it is taken for the names of the columns")
    elif first and _numbers(pyarrow.array(first, pyarrow.string())) is not None:
        return numbered, 0
    if not has_rows:
        raise InputError(f"{path} is a table without rows")
    for separator, name in ((";", "semicolons"), ("\t", "tabs")):
        if len(first) == 1 and separator in first[0]:
            raise InputError(f"{path} is separated by {name}: save it separated by commas")
    return texts_of_names(first, f" of {path}"), read


def _numbers(texts: Any) -> NDArray[np.float64] | None:
    """Return texts as numbers; ``None`` if there is none, or if one of them is not a number."""
    try:
        found = pyarrow.compute.utf8_trim_whitespace(texts).cast(pyarrow.float64())
    except pyarrow.ArrowInvalid:
        return None
    return np.asarray(found.to_numpy(zero_copy_only=False)) if len(texts) else None
