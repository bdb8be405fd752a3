"""Tables: read by pyarrow from CSV and parquet files, whose suffix tells which, and the samples in them.

A column holds paths of images, pictures, vectors or numbers; its name tells which.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from ucds.data.content import domains_by_name, number_rows, present_domains, texts_of
from ucds.data.folders import Scan, scan_files
from ucds.errors import InputError, UcdsWarning, UserError, one_line
from ucds.math.arrays import IntArray

if TYPE_CHECKING:
    from ucds.data.vectors import VectorSamples

READ_SUFFIXES = (".csv", ".parquet")

Column = Sequence[Any] | NDArray[Any]
Columns = Mapping[str, Column]

PATH_NAMES = ("path", "file_name", "filename", "file", "filepath", "image_path")
PICTURE_NAMES = ("image",)
VECTOR_NAMES = ("embedding", "embeddings", "features", "vector")
ID_NAMES = ("sample", "id")
TEXT_NAMES = ("text", "sentence", "title")
DOMAIN_NAME = "domain"
CLASS_NAMES = frozenset({"label", "labels", "class", "category", "target", "y", "cluster", "split"})
"""Names of columns that are never taken for measurements of a sample."""
INDEX_NAMES = frozenset({"", "unnamed: 0", "__index_level_0__"})
"""Names that pandas gives a column of the numbers of the rows, in CSV and parquet files."""
WORD_NAMES = frozenset({*PATH_NAMES, *PICTURE_NAMES, *ID_NAMES, *TEXT_NAMES, DOMAIN_NAME})
"""Names of columns whose values are words even where all are digits, such as the id 007."""


def require_suffix(path: Path, suffixes: Sequence[str]) -> None:
    """Make sure that the suffix of a file to be written names one of the formats that it can have."""
    if path.suffix.lower() not in suffixes:
        raise InputError(f"{path} must end in {' or '.join(suffixes)}: the suffix chooses the format")


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
    """Return ``(n,)`` numbers, ``(n, d)`` rows in single precision, or a list of anything else."""
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
    return np.asarray(flat.to_numpy(), np.float32).reshape(len(column), -1)


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


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures in memory, not brought to one size yet."""

    pictures: Iterable[object]
    ids: Sequence[str]
    domain: IntArray
    domain_names: tuple[str, ...]

    @classmethod
    def of_one_domain(cls, pictures: Iterable[object], n: int) -> Pictures:
        """Number ``n`` pictures as samples of one domain."""
        return cls(pictures, number_rows(n), *domains_by_name(None, n, "images"))

    def take(self, positions: IntArray) -> Pictures:
        """Choose pictures by their ascending positions, and number the domains that remain anew."""
        wanted = set(positions.tolist())
        pictures = (picture for place, picture in enumerate(self.pictures) if place in wanted)
        ids = texts_of(self.ids).take(positions)
        return Pictures(pictures, ids, *present_domains(self.domain[positions], self.domain_names))


def first_present(names: Iterable[str], among: Iterable[str]) -> str | None:
    """Return the first of some names that a table has, as it is written there; ``None`` if it has none."""
    present = {plain_column(name): name for name in sorted(among)}  # `id` counts before `ID`
    return next((present[name] for name in names if name in present), None)


def samples_in_columns(columns: Columns, what: str, root: Path) -> Scan | VectorSamples | Pictures:
    """Find the samples of a table, one a row.

    Args:
        columns: values by name of the column. A column of :data:`PATH_NAMES` holds paths of image files; one
            of :data:`PICTURE_NAMES` pictures; one of :data:`VECTOR_NAMES` a vector a row. In a table without
            these, all columns are numbers, except those of :data:`ID_NAMES`, :data:`TEXT_NAMES` and
            :data:`DOMAIN_NAME`.
        what: name of the table, for messages.
        root: folder that relative paths start from.

    Raises:
        InputError: the columns hold no samples.

    Warns:
        UcdsWarning: a column of classes, or of the numbers of the rows, is left out.
    """
    of_domains = first_present([DOMAIN_NAME], columns)
    domains = None if of_domains is None else _texts(columns[of_domains])
    try:
        if (name := first_present(PATH_NAMES, columns)) is not None:
            return scan_files(_texts(columns[name]), root, domains)
        if (name := first_present(PICTURE_NAMES, columns)) is not None:
            return _pictures(columns[name], columns, root, domains)
        return _vectors(columns, domains)
    except UserError as error:
        raise InputError(f"{what}: {error}") from None


def read_texts(path: Path) -> dict[str, str]:
    """Read the texts of the rows of a table, which its column of :data:`TEXT_NAMES` holds, by their ids.

    Raises:
        InputError: the table cannot be read.
    """
    if path.suffix.lower() not in READ_SUFFIXES or not path.is_file():
        return {}
    columns = read_table(path, WORD_NAMES)
    if (name := first_present(TEXT_NAMES, columns)) is None:
        return {}
    texts = _texts(columns[name])
    return dict(zip(_ids(columns, len(texts)), texts, strict=True))


def _pictures(column: Column, columns: Columns, root: Path, domains: list[str] | None) -> Scan | Pictures:
    """Return the pictures of a column that holds paths, contents of files, or pictures."""
    values = [content_of(value) for value in column]
    if isinstance(values[0], str):
        return scan_files(_texts(values), root, domains)
    n = len(values)
    return Pictures(values, _ids(columns, n), *domains_by_name(domains, n, "images"))


def content_of(value: object) -> object:
    """Return the bytes of a file that a parquet file of a data set holds beside its name; else the value."""
    if isinstance(value, Mapping) and "bytes" in value:
        return value["bytes"] if value["bytes"] is not None else value.get("path")
    return value


def _vectors(columns: Columns, domains: list[str] | None) -> VectorSamples:
    from ucds.data.vectors import VectorSamples  # it brings torch, which a list of paths does not need

    n = len(next(iter(columns.values())))
    name = first_present(VECTOR_NAMES, columns)
    array = _joined(columns) if name is None else _stacked(name, columns[name])
    return VectorSamples(array, *domains_by_name(domains, n, "data"), _ids(columns, n))


def _stacked(name: str, column: Column) -> np.ndarray[Any, Any]:
    if isinstance(column, np.ndarray) and column.ndim == 2:
        return column
    try:
        return np.stack([np.asarray(row, dtype=np.float32) for row in column])
    except (TypeError, ValueError):
        raise InputError(
            f"the column {name!r} must hold a list of numbers a row, all of one length"
        ) from None


def _joined(columns: Columns) -> np.ndarray[Any, Any]:
    """Join all columns of numbers, without ids, texts, domains, classes and numbers of rows."""
    apart = {name for name in columns if plain_column(name) in (*ID_NAMES, *TEXT_NAMES, DOMAIN_NAME)}
    for names, what in ((CLASS_NAMES, "may be classes"), (INDEX_NAMES, "number the rows")):
        if found := sorted(name for name in columns if plain_column(name) in names):
            message = f"columns that {what} are left out: {', '.join(name or repr(name) for name in found)}"
            warnings.warn(message, UcdsWarning, stacklevel=6)
            apart.update(found)
    chosen = {name: np.asarray(column) for name, column in columns.items() if name not in apart}
    words = [name for name, column in chosen.items() if column.dtype.kind not in "fiub"]
    if words:
        remedy = "name a column of image files 'path', one of vectors 'embedding', and leave out other words"
        raise InputError(f"the column {words[0]!r} holds no numbers: {remedy}")
    if not chosen:
        raise InputError("no column holds samples")
    return np.column_stack([column.astype(np.float32) for column in chosen.values()])


def _ids(columns: Columns, n: int) -> Sequence[str]:
    name = first_present(ID_NAMES, columns)
    return number_rows(n) if name is None else _texts(columns[name])


def _texts(column: Column | Sequence[object]) -> list[str]:
    """Return values as texts; whole numbers that became fractions where one is missing lose their point."""
    values = np.asarray(column, dtype=object).tolist()
    return [str(int(v)) if isinstance(v, float) and v.is_integer() else str(v) for v in values]
