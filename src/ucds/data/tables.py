"""Tables: read and written as CSV and parquet files, whose suffix tells which.

Every text in a table of ours is quoted, and none is a formula, whatever a spreadsheet takes for a separator.
"""

from __future__ import annotations

import csv
import io
import os
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from ucds.data.content import first_repeated
from ucds.errors import InputError, UcdsWarning, UserError, one_line, shown
from ucds.files import write_atomically
from ucds.received import open_received

READ_SUFFIXES = (".csv", ".parquet")

_LONGEST_LINE = 2**22  # bytes, of some hundred thousand names
_UNPACKED, _MOST_PACKED, _VALUE_BYTES = 2**28, 100, 8  # as of arrays; of a column, the same value packs well

# One at the beginning of a cell makes it a formula; the last ones are as wide as Chinese letters, or small.
_SIGNS = r"=+@\-\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b"
_BEGINS = r'(?:^|[,;|\t\n\r\v\f\x1c-\x1f\x85\u2028\u2029])[\s"]*'  # of a cell, by any separator
_ALSO_BEGINS = r'\s"*'  # where blanks separate; a sign between blanks is no formula

Column = Sequence[Any] | NDArray[Any]
Columns = Mapping[str, Column]


_LONGEST_CELL = 64  # bytes that a cell of a wide CSV file takes on average, at most


def plain_column(name: str) -> str:
    """Bring the name of a column to the form in which names are compared: lower case, no spaces around it."""
    return name.strip().lower()


def texts_of_names(names: Iterable[object], where: str = "") -> list[str]:
    """Return names of columns as texts, such as "0" for 0; refuse two that are equal."""
    texts = list(map(str, names))
    if (twice := first_repeated(texts)) is not None:
        raise InputError(f"two columns{where} have the same name {shown(twice, 40)!r}: rename one of them")
    return texts


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
        with open_received(path, follow=True) as file, pyarrow.parquet.ParquetFile(file) as opened:
            names = texts_of_names(opened.schema_arrow.names, f" of {path}")
            held = _VALUE_BYTES * _count_values(opened.metadata)
            if held > max(_UNPACKED, _MOST_PACKED * os.fstat(file.fileno()).st_size):
                raise ValueError(f"it holds over {_MOST_PACKED} times its length: use numpy.save")
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


def _read_csv(path: Path, words: Collection[str]) -> dict[str, Column]:
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


def write_table(
    path: Path, names: Sequence[str], rows: Callable[[], Iterable[Sequence[object]]], *, marked: bool = False
) -> None:
    """Write a table in CSV that a spreadsheet shows as it is, or in parquet, as the suffix says.

    Args:
        path: file to write.
        names: names of the columns.
        rows: function that yields the texts and numbers of each row; it is called twice.
        marked: whether CSV begins with a byte order mark even where all letters are of ASCII.

    Raises:
        NoSpaceError: the disk is full, or the folder is not writable.
    """
    if path.suffix.lower() == ".parquet":
        columns = dict(zip(names, map(_plain_values, zip(*rows(), strict=True)), strict=True))
        write_atomically(path, lambda file: pyarrow.parquet.write_table(pyarrow.table(columns), file))
        return
    plain = not marked and all(str(value).isascii() for row in rows() for value in row)

    def write(file: IO[bytes]) -> None:
        # Without this mark Excel reads letters beyond ASCII in the code page of its country.
        text = io.TextIOWrapper(file, "utf-8" if plain else "utf-8-sig", "backslashreplace", newline="")
        table = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        table.writerow(names)
        table.writerows([guard(v) if isinstance(v, str) else v for v in row] for row in rows())
        text.detach()

    write_atomically(path, write)


def _plain_values(column: Sequence[object]) -> list[object]:
    """Return the values of a column, with floating point where a CSV file has a number of decimals."""
    return [float(value) if isinstance(value, Decimal) else value for value in column]


def guard(text: str) -> str:
    """Return a text with an apostrophe in front of each sign that might make a cell a formula."""
    return re.sub(rf"({_BEGINS})('*[{_SIGNS}])|({_ALSO_BEGINS})('*[{_SIGNS}](?!\s|$))", r"\1\3'\2\4", text)


def unguard(text: str) -> str:
    """Return the text that :func:`guard` was given."""
    return re.sub(rf"({_BEGINS})'('*[{_SIGNS}])|({_ALSO_BEGINS})'('*[{_SIGNS}](?!\s|$))", r"\1\3\2\4", text)


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
    return texts_of_names(first, f" of {path}"), lines.line_num


def _numbers(texts: Any) -> NDArray[np.float64] | None:
    """Return texts as numbers; ``None`` if one of them is no number, or if there is none."""
    try:
        found = pyarrow.compute.utf8_trim_whitespace(texts).cast(pyarrow.float64())
    except pyarrow.ArrowInvalid:
        return None
    return np.asarray(found.to_numpy(zero_copy_only=False)) if len(texts) else None
