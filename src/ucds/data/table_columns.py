"""Finds the samples in the columns of a table: paths of images, pictures, or numbers."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ucds.data.columns import number_rows
from ucds.data.folders import Scan, scan_files
from ucds.data.tables import Column, Columns, plain_column
from ucds.errors import InputError, UcdsWarning, UserError
from ucds.math.arrays import IntArray

if TYPE_CHECKING:
    from ucds.data.vectors import VectorSamples

PATH_NAMES = ("path", "file_name", "filename", "file", "filepath", "image_path")
PICTURE_NAMES = ("image",)
VECTOR_NAMES = ("embedding", "embeddings", "features", "vector")
ID_NAMES = ("sample", "id")
DOMAIN_NAME = "domain"
CLASS_NAMES = frozenset({"label", "labels", "class", "category", "target", "y", "cluster", "split"})
"""Names of columns that are never taken for measurements of a sample."""
INDEX_NAMES = frozenset({"", "unnamed: 0", "__index_level_0__"})
"""Names that pandas gives a column of the numbers of the rows, in CSV and parquet files."""
WORD_NAMES = frozenset({*PATH_NAMES, *PICTURE_NAMES, *ID_NAMES, DOMAIN_NAME})
"""Names of columns whose values are words even where all are digits, such as the id 007."""


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures in memory, not brought to one size yet.

    Attributes:
        pictures: PIL images, arrays of pixels or contents of image files, to be gone through once.
        ids: stable id of each picture.
        domain: ``(n,)`` int64 positions in ``domain_names``.
        domain_names: names of the domains.
    """

    pictures: Iterable[object]
    ids: Sequence[str]
    domain: IntArray
    domain_names: tuple[str, ...]

    @classmethod
    def of_one_domain(cls, pictures: Iterable[object], n: int) -> Pictures:
        """Number ``n`` pictures as samples of one domain."""
        return cls(pictures, number_rows(n), np.zeros(n, np.int64), ("images",))


def first_present(names: Iterable[str], among: Iterable[str]) -> str | None:
    """Return the first of some names that a table has, as it is written there; ``None`` if it has none.

    Args:
        names: names to look for, see :func:`ucds.data.tables.plain_column`.
        among: names of the table's columns.
    """
    present = {plain_column(name): name for name in sorted(among)}  # `id` counts before `ID`
    return next((present[name] for name in names if name in present), None)


def samples_in_columns(columns: Columns, what: str, root: Path) -> Scan | VectorSamples | Pictures:
    """Find the samples of a table, one a row.

    Args:
        columns: values by name of the column. A column of :data:`PATH_NAMES` holds paths of image files; one
            of :data:`PICTURE_NAMES` pictures; one of :data:`VECTOR_NAMES` a vector a row. In a table without
            these, all columns are numbers, except those of :data:`ID_NAMES` and :data:`DOMAIN_NAME`.
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
        return _vectors(columns, what, domains)
    except UserError as error:
        raise InputError(f"{what}: {error}") from None


def _pictures(column: Column, columns: Columns, root: Path, domains: list[str] | None) -> Scan | Pictures:
    """Return the pictures of a column that holds paths, contents of files, or pictures."""
    values = [content_of(value) for value in column]
    if isinstance(values[0], str):
        return scan_files(_texts(values), root, domains)
    names, domain = np.unique(domains or ["images"] * len(values), return_inverse=True)
    return Pictures(values, _ids(columns, len(values)), domain.astype(np.int64), tuple(map(str, names)))


def content_of(value: object) -> object:
    """Return the bytes of a file that a parquet file of a data set holds beside its name; else the value."""
    if isinstance(value, Mapping) and "bytes" in value:
        return value["bytes"] if value["bytes"] is not None else value.get("path")
    return value


def _vectors(columns: Columns, what: str, domains: list[str] | None) -> VectorSamples:
    from ucds.data.vectors import VectorSamples  # it brings torch, which a list of paths does not need

    n = len(next(iter(columns.values())))
    if (name := first_present(VECTOR_NAMES, columns)) is not None:
        array = _stacked(name, columns[name])
    else:
        array = _numbers(columns)
    names, domain = np.unique(domains or ["data"] * n, return_inverse=True)
    return VectorSamples(array, domain.astype(np.int64), tuple(map(str, names)), _ids(columns, n))


def _stacked(name: str, column: Column) -> np.ndarray[Any, Any]:
    if isinstance(column, np.ndarray) and column.ndim == 2:
        return column
    try:
        return np.stack([np.asarray(row, dtype=np.float32) for row in column])
    except (TypeError, ValueError):
        raise InputError(
            f"the column {name!r} must hold a list of numbers a row, all of one length"
        ) from None


def _numbers(columns: Columns) -> np.ndarray[Any, Any]:
    """Join all columns of numbers, without ids, domains, classes and numbers of rows."""
    apart = {name for name in columns if plain_column(name) in (*ID_NAMES, DOMAIN_NAME)}
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
