"""Reads and writes tables as CSV, parquet or JSON; the suffix of a file's name tells which."""

from __future__ import annotations

import csv
import io
import json
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ucds.errors import InputError, UcdsWarning, one_line
from ucds.files import require_writable, write_atomically

WRITTEN_SUFFIXES = (".csv", ".parquet", ".json")
READ_SUFFIXES = (".csv", ".parquet")

Column = Sequence[Any] | NDArray[Any]
Columns = Mapping[str, Column]

_EXTRA = "parquet files need a further package: pip install 'ucds[tables]'"
_AT_A_TIME = 2**16  # rows that are written at a time
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def require_table(path: Path) -> None:
    """Make sure, before any work, that a table can be written under a name.

    Raises:
        InputError: the suffix is of no known format, its package is not installed, or the path is a folder.
    """
    require_writable(path)
    require_suffix(path, WRITTEN_SUFFIXES)
    if path.suffix.lower() == ".parquet":
        load_pyarrow()


def require_suffix(path: Path, suffixes: Sequence[str]) -> None:
    """Make sure that the suffix of a file to be written names one of the formats that it can have.

    Raises:
        InputError: it does not.
    """
    if path.suffix.lower() not in suffixes:
        raise InputError(f"{path} must end in {' or '.join(suffixes)}: the suffix chooses the format")


def write_table(path: Path, columns: Columns) -> None:
    """Write columns of equal length, all of the file or none.

    In CSV, numbers that are not whole have four decimals, and a text that a spreadsheet would take for a
    formula gets an apostrophe in front. The other formats keep every value as it is.

    Args:
        path: file to write, with the suffix of its format.
        columns: values by name of the column.

    Raises:
        InputError: the suffix is of no known format, or its package is not installed.
        NoSpaceError: the disk is full, or the folder is not writable.
    """
    require_table(path)
    write = {".parquet": _write_parquet, ".json": _write_json, ".csv": _write_csv}[path.suffix.lower()]
    write_atomically(path, lambda file: write(file, columns))


def _write_parquet(file: IO[bytes], columns: Columns) -> None:
    arrow, parquet = load_pyarrow()
    writer = None
    for piece in _pieces(columns):
        table = arrow.table(dict(piece))
        writer = writer or parquet.ParquetWriter(file, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def _write_json(file: IO[bytes], columns: Columns) -> None:
    for place, rows in enumerate(map(_rows, _pieces(columns))):
        written = json.dumps([dict(zip(columns, row, strict=True)) for row in rows], indent=1)
        file.write(b"," if place else b"[")
        file.write(written.removeprefix("[").removesuffix("]").rstrip("\n").encode())
    file.write(b"\n]\n" if rows else b"]\n")


def _write_csv(file: IO[bytes], columns: Columns) -> None:
    for place, rows in enumerate(map(_rows, _pieces(columns))):
        file.write(csv_text(None if place else list(columns), rows).encode())


def csv_text(names: Sequence[str] | None, rows: Iterable[Sequence[Any]]) -> str:
    """Return rows of values as CSV; see :func:`write_table`.

    Args:
        names: names of the columns, for the first line; ``None`` for no such line.
        rows: values of each row.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([] if names is None else [names])
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _pieces(columns: Columns) -> Iterator[Columns]:
    """Return an iterator over the same columns, some rows at a time, so that no table is held as objects."""
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1:
        raise ValueError(f"columns of one table cannot have the lengths {sorted(lengths)}")
    for start in range(0, max(1, lengths.pop()), _AT_A_TIME):
        yield {name: column[start : start + _AT_A_TIME] for name, column in columns.items()}


def _rows(columns: Columns) -> list[tuple[Any, ...]]:
    return list(zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True))


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    text = str(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text


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
        InputError: there is no such file, it is not such a table, or it has no rows; or the package for
            parquet is not installed.

    Warns:
        UcdsWarning: the first line holds 0, 1, 2 and so on, and is taken for names.
    """
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    columns = read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path, words)
    if not columns or not len(next(iter(columns.values()))):
        raise InputError(f"{path} is a table without rows")
    return columns


def read_parquet(path: Path) -> dict[str, Column]:
    """Read the columns of a parquet file, which may have no rows.

    Raises:
        InputError: it is not such a table, or the package for parquet is not installed.
    """
    arrow, parquet = load_pyarrow()
    try:
        with path.open("rb") as file, parquet.ParquetFile(file) as opened:
            return {name: _read_column(arrow, opened, name) for name in opened.schema_arrow.names}
    # A ValueError comes of text that is not UTF-8, and of a wrong number of rows in the description.
    except (OSError, arrow.ArrowException, ValueError) as error:
        raise InputError(f"{path} is not a readable parquet file ({one_line(error, 120)})") from None


def _read_column(arrow: Any, opened: Any, name: str) -> Column:
    """Read a column piece by piece: numbers, and lists of equally many numbers, become no Python objects.

    Returns:
        ``(n,)`` numbers, ``(n, d)`` rows in single precision, or a list of anything else.
    """
    found, done = np.empty(0), 0
    for batch in opened.iter_batches(_AT_A_TIME, columns=[name]):
        rows = _as_numbers(arrow, batch.columns[0])
        if not done and rows is not None:
            found = np.empty((opened.metadata.num_rows, *rows.shape[1:]), rows.dtype)
        if rows is None or rows.shape[1:] != found.shape[1:]:
            batches = opened.iter_batches(_AT_A_TIME, columns=[name])
            return [value for again in batches for value in again.columns[0].to_pylist()]
        if not np.can_cast(rows.dtype, found.dtype):  # whole numbers, of which some are missing here
            found = found.astype(rows.dtype)
        found[done : done + len(rows)] = rows
        done += len(rows)
    if done < len(found):
        raise ValueError(f"it says that it has {len(found):,} rows, and has {done:,}")
    return found


def _as_numbers(arrow: Any, piece: Any) -> NDArray[Any] | None:
    """Return numbers, or lists of equally many numbers, as an array; ``None`` for anything else."""
    kind, types = piece.type, arrow.types
    if _is_plain(arrow, kind):
        return np.asarray(piece.to_numpy(zero_copy_only=False))
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return None
    flat = piece.flatten()
    if not _is_plain(arrow, kind.value_type) or piece.null_count or flat.null_count or not len(piece):
        return None
    width = len(flat) // len(piece)
    if not types.is_fixed_size_list(kind) and (piece.value_lengths().to_numpy() != width).any():
        return None
    return np.asarray(flat.to_numpy(zero_copy_only=False), np.float32).reshape(len(piece), width)


def _is_plain(arrow: Any, kind: Any) -> bool:
    """Return whether values of a type are plain numbers, which need not become Python objects."""
    return bool(arrow.types.is_integer(kind) or arrow.types.is_floating(kind))


def _read_csv(path: Path, words: Collection[str]) -> dict[str, Column]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file, strict=True) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a readable CSV file in UTF-8 ({one_line(error, 120)})") from None
    names = rows[0] if rows else []
    numbered = [str(number) for number in range(len(names))]
    if names and names == numbered:
        message = f"the first line of {path} counts from 0 and is taken for names of its columns"
        warnings.warn(message, UcdsWarning, stacklevel=5)
    if names == numbered or _numbers(names) is None:
        rows = rows[1:]
    else:
        names = numbered
    if len(names) == 1 and ";" in names[0]:
        raise InputError(f"{path} is separated by semicolons: save it separated by commas")
    if len(set(names)) < len(names):
        raise InputError(f"two columns of {path} have the same name")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(names):
            raise InputError(f"row {number} of {path} has {len(row)} values for {len(names)} columns")
    columns: dict[str, Column] = {}
    for place, name in enumerate(names):
        values = [row[place] for row in rows]
        numbers = None if plain_column(name) in words else _numbers(values)
        columns[name] = values if numbers is None else numbers
    return columns


def _numbers(values: Sequence[str]) -> NDArray[np.float64] | None:
    """Return texts as numbers; ``None`` if one of them is no number, or if there is none."""
    try:
        return np.array([float(value) for value in values]) if values else None
    except ValueError:
        return None


def load_pyarrow() -> tuple[Any, Any]:
    """Return pyarrow and its parquet module.

    Raises:
        InputError: the package is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(_EXTRA) from None
    return pyarrow, pyarrow.parquet
