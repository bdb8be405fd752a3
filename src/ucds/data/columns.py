"""Samples in memory: in the columns of a table, in a list, or in the rows of a data set.

A column holds paths of images, pictures, vectors or numbers; its name tells which.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from os import fsdecode
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
from PIL import Image

from ucds.data.bounds import UnusableImageError
from ucds.data.content import domains_by_name, number_rows, present_domains, require_ids, texts_of
from ucds.data.folders import Scan, is_empty, scan_files
from ucds.data.image_files import read_image_bytes
from ucds.data.samples import Samples
from ucds.data.tables import READ_SUFFIXES, Column, Columns, plain_column, read_table, texts_of_names
from ucds.data.vectors import VectorSamples
from ucds.errors import InputError, UserError, brief, one_line, warn
from ucds.math.arrays import IntArray

PATH_NAMES = ("path", "file_name", "filename", "file", "filepath", "image_path")
PICTURE_NAMES = ("image",)
VECTOR_NAMES = ("embedding", "embeddings", "features", "vector")
ID_NAMES = ("sample", "id")
TEXT_NAMES = ("text", "sentence", "title")
DOMAIN_NAME = "domain"
CLASS_NAMES = frozenset({"label", "labels", "class", "category", "target", "y", "cluster", "split"})
"""Names of columns that never count as measurements of a sample."""
INDEX_NAMES = frozenset({"", "unnamed: 0", "__index_level_0__"})
"""Names that pandas gives to the column of row numbers, in CSV and parquet files."""
WORD_NAMES = frozenset({*PATH_NAMES, *PICTURE_NAMES, *ID_NAMES, *TEXT_NAMES, DOMAIN_NAME})
"""Names of columns whose values are words even where all are digits, such as the id 007."""
_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?\s*", re.IGNORECASE)
_NONE = UnusableImageError("image", "no picture")


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures in memory, of any sizes; their ids differ."""

    pictures: Iterable[object]
    ids: Sequence[str]
    domain: IntArray
    domain_names: tuple[str, ...]

    def __post_init__(self) -> None:
        require_ids(self.ids)

    def take(self, positions: IntArray) -> Pictures:
        """Choose pictures by their ascending positions, and renumber the domains that remain."""
        wanted = set(positions.tolist())
        pictures = (picture for place, picture in enumerate(self.pictures) if place in wanted)
        ids = texts_of(self.ids).take(positions)
        return Pictures(pictures, ids, *present_domains(self.domain[positions], self.domain_names))


def first_present(names: Iterable[str], among: Iterable[str]) -> str | None:
    """Return the first of some names that a table has, as the table writes it; ``None`` if it has none."""
    present = {plain_column(name): name for name in sorted(among)}  # `id` counts before `ID`
    return next((present[name] for name in names if name in present), None)


def is_no_feature(name: str) -> bool:
    """Return whether a column of this name is left out where a table is read: classes, numbers or ids."""
    return plain_column(name) in {*CLASS_NAMES, *INDEX_NAMES, *ID_NAMES}


def samples_in_columns(columns: Columns, what: str, root: Path) -> Scan | VectorSamples | Pictures:
    """Find the samples of a table, one a row; relative paths start from the ``root``.

    A column of :data:`PATH_NAMES` must hold paths of image files, one of :data:`PICTURE_NAMES` pictures, and
    one of :data:`VECTOR_NAMES` a vector in each row. In a table without these, all columns must hold numbers,
    except those of :data:`ID_NAMES`, :data:`TEXT_NAMES` and :data:`DOMAIN_NAME`. A warning says which column
    of classes, or of row numbers, is left out.
    """
    domains, ids = _texts_of([DOMAIN_NAME], columns), _ids_in(columns)
    try:
        if (paths := _texts_of(PATH_NAMES, columns)) is not None:
            return scan_files(paths, root, domains, ids)
        if (name := first_present(PICTURE_NAMES, columns)) is not None:
            n = len(columns[name])
            pictures = [_picture(columns[name], i) for i in range(n)]
            if {type(one) for one in pictures} - {UnusableImageError} == {str}:
                return scan_files(texts_in(list(map(content_of, columns[name]))), root, domains, ids)
            pictures = [_NONE if isinstance(one, str) else one for one in pictures]
            return Pictures(pictures, ids or number_rows(n), *domains_by_name(domains, n, "images"))
        return _vectors(columns, domains, ids)
    except UserError as error:
        raise InputError(f"{what}: {error}") from None


def read_texts(path: Path) -> dict[str, str]:
    """Read the texts in a table's column of :data:`TEXT_NAMES`, by the ids of its rows."""
    if path.suffix.lower() not in READ_SUFFIXES or not path.is_file():
        return {}
    columns = read_table(path, WORD_NAMES)
    texts = _texts_of(TEXT_NAMES, columns) or []
    paths = _texts_of((*PATH_NAMES, *PICTURE_NAMES), columns)
    return dict(zip(_ids_in(columns) or paths or number_rows(len(texts)), texts, strict=False))


def content_of(value: object) -> object:
    """Return the bytes of an image file that a parquet file holds beside its name; else the value itself."""
    if isinstance(value, Mapping) and "bytes" in value:
        return value["bytes"] if value["bytes"] is not None else value.get("path")
    return value


def _vectors(columns: Columns, domains: list[str] | None, ids: list[str] | None) -> VectorSamples:
    n = len(next(iter(columns.values())))
    if (name := first_present(VECTOR_NAMES, columns)) is None:
        array, names = _joined(columns)
    else:
        problem = f"the column {brief(name)} must hold a list of numbers in each row, all of one length"
        array, names = _array_of(columns[name], problem), None
    return VectorSamples(array, *domains_by_name(domains, n, "data"), ids, names)


def _array_of(vectors: Any, problem: str) -> np.ndarray[Any, Any]:
    """Bring vectors of one width into one array."""
    rows = vectors if isinstance(vectors, np.ndarray) and vectors.ndim == 2 else list(vectors)
    if isinstance(rows, np.ndarray) and rows.dtype.kind in "fiucmM":
        return rows  # which are checked and converted when they are read
    try:
        single = getattr(rows[0], "dtype", None) == np.float32
        with warnings.catch_warnings(action="error", category=np.exceptions.ComplexWarning):
            return np.asarray(rows, dtype=np.float32 if single else np.float64)
    except (TypeError, ValueError, np.exceptions.ComplexWarning):
        raise InputError(problem) from None


def _joined(columns: Columns) -> tuple[np.ndarray[Any, Any], tuple[str, ...] | None]:
    """Join all columns of numbers, except ids, texts, domains, classes and row numbers.

    Columns that are named by their positions are sorted by position, and have no names.
    """
    apart = {name for name in columns if plain_column(name) in (*ID_NAMES, *TEXT_NAMES, DOMAIN_NAME)}
    plain = {name: _plain(column) for name, column in columns.items() if name not in apart}
    classes = [name for name in plain if plain_column(name) in CLASS_NAMES]
    numbers = [
        name for name in plain if plain_column(name) in INDEX_NAMES and not _has_fractions(plain[name])
    ]
    for found, what in ((classes, "may be classes"), (numbers, "number the rows")):
        if found:
            told = ", ".join(name or repr(name) for name in sorted(found))
            warn(f"columns that {what} are left out: {told}")
    chosen = {name: plain[name] for name in plain if name not in (*classes, *numbers)}
    words = [name for name, column in chosen.items() if column.dtype.kind not in "fiub" or column.ndim != 1]
    if words:
        raise InputError(_why_not_numbers(brief(words[0]), chosen[words[0]]))
    if not chosen:
        raise InputError("no column holds samples")
    positions = [str(number) for number in range(len(chosen))]
    numbered = chosen.keys() == set(positions)
    names = positions if numbered else list(chosen)
    array = np.column_stack([chosen[name].astype(np.float64) for name in names])
    return array, None if numbered else tuple(names)


def _plain(column: Column) -> np.ndarray[Any, Any]:
    """Return decimals, as databases have them, in floating point; other values as they are."""
    try:
        array = np.asarray(column)
    except ValueError:  # lists of several lengths
        array = np.fromiter(column, object, len(column))
    is_exact = array.dtype == object and all(isinstance(value, Decimal) for value in array)
    return array.astype(np.float64) if is_exact else array


def _has_fractions(column: np.ndarray[Any, Any]) -> bool:
    return column.dtype.kind == "f" and bool(np.modf(column)[0].any())


def _why_not_numbers(name: str, column: np.ndarray[Any, Any]) -> str:
    """Say which value of a column is not a number, or that no value is."""
    texts = [str(value) for value in column] if column.dtype.kind in "OUT" else []
    others = [row for row, text in enumerate(texts) if not _NUMBER.fullmatch(text)]
    if 0 < len(others) < len(texts):
        told = f"the column {name} holds {brief(texts[others[0]])} in row {others[0]}"
        return f"{told}, which is not a number: correct it, or leave the row out"
    remedy = "name a column of image files 'path', one of vectors 'embedding', and leave out other words"
    return f"the column {name} holds no numbers: {remedy}"


def _texts_of(names: Iterable[str], columns: Columns) -> list[str] | None:
    """Return the texts of the first of some columns that a table has; ``None`` if it has none."""
    name = first_present(names, columns)
    return None if name is None else texts_in(columns[name])


def _ids_in(columns: Columns) -> list[str] | None:
    """Return the ids in a table; an empty one is the number of its row, as in a table without ids."""
    ids = _texts_of(ID_NAMES, columns)
    return ids and [str(row) if is_empty(name) else name for row, name in enumerate(ids)]


def texts_in(column: Column | Sequence[object]) -> list[str]:
    """Return values as texts; whole numbers lose the decimal point that a missing value gave their column."""
    return list(map(_text, np.asarray(column, dtype=object).tolist()))


def _text(value: object) -> str:
    if isinstance(value, bytes):  # texts in a parquet file that does not call them so
        return fsdecode(value)
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def samples_in_items(source: Any, n: int) -> Scan | Samples | Pictures:
    """Find the ``n`` samples of an array, a list or a data set; pictures are taken when they are read."""
    source = _undecoded(source)
    if isinstance(source, np.ndarray) and source.ndim == 3 and source.shape[-1] in (3, 4):
        raise InputError(
            f"an array of shape {source.shape} is one picture in colour: give a list of pictures, "
            "or an array (n, h, w, 3)"
        )
    first = _first_item(source, n)
    if isinstance(first, Mapping):
        return _in_rows(source, n, first)
    if isinstance(first, str | Path):
        paths = [_item(source, i) for i in range(n)]
        for i, path in enumerate(paths):
            if not isinstance(path, str | Path | float | NoneType):
                raise InputError(f"sample {i} is no path, in contrast to the first: {brief(path)}")
        return scan_files(paths)
    whole = isinstance(source, np.ndarray) and source.ndim == 2  # vectors, which are not copied
    if not whole and (isinstance(first, Image.Image | bytes | bytearray | memoryview) or np.ndim(first) >= 2):
        pictures = (_picture(source, i) for i in range(n))
        return Pictures(pictures, number_rows(n), *domains_by_name(None, n, "images"))
    items = source if whole else [_item(source, i) for i in range(n)]
    return VectorSamples(
        _array_of(items, "the input holds neither images, image files nor embeddings of one width")
    )


def _in_rows(source: Any, n: int, first: Mapping[str, Any]) -> Scan | Samples | Pictures:
    keys = dict(zip(texts_of_names(first), first, strict=True))
    name = first_present(PICTURE_NAMES, keys)
    if in_memory := name is not None and not isinstance(first[keys[name]], str):
        picture, apart = keys[name], (*ID_NAMES, DOMAIN_NAME)
        keys = {text: key for text, key in keys.items() if plain_column(text) in apart}
    rows = [_item(source, i) for i in range(n)] if keys else []
    columns = {text: [_entry(row, i, key) for i, row in enumerate(rows)] for text, key in keys.items()}
    if in_memory:  # pictures are taken when they are read
        pictures, domains = (
            (_picture(source, i, picture) for i in range(n)),
            _texts_of([DOMAIN_NAME], columns),
        )
        ids = _ids_in(columns) or number_rows(n)
        return Pictures(pictures, ids, *domains_by_name(domains, n, "images"))
    if first_present((*PATH_NAMES, *PICTURE_NAMES, *VECTOR_NAMES), keys) is None:
        for i, row in enumerate(rows):
            for key in row.keys() - first.keys():
                raise InputError(f"row {i} of the data set has {brief(key)}, unlike row 0")
    return samples_in_columns(columns, "the data set", Path())


def _entry(row: Any, number: int, name: Any) -> Any:
    if not isinstance(row, Mapping) or name not in row:
        raise InputError(f"row {number} of the data set has no {brief(name)}, unlike row 0")
    return row[name]


def _picture(source: Any, position: int, name: Any = None) -> Any:
    """Return a picture, or what is wrong with it; data sets decode a picture when it is taken."""
    try:
        item = _item(source, position)
        value = content_of(item if name is None else _entry(item, position, name))
        if name is not None and isinstance(value, str):  # a file beside the data set
            return read_image_bytes(value)
    except UnusableImageError as error:
        return error
    except InputError:
        raise
    except Exception as error:  # damaged files raise almost anything
        return UnusableImageError("image", f"damaged or truncated image ({one_line(error, 120)})")
    value = bytes(value) if isinstance(value, bytearray | memoryview) else value
    return _NONE if value is None else value


def _first_item(source: Any, n: int) -> Any:
    """Return the first item that exists and can be taken."""
    for position in range(n):
        with suppress(Exception):
            if (item := _item(source, position)) is not None:
                return item
    raise InputError(f"none of the {n:,} samples can be used ({_picture(source, 0)})")


def _undecoded(source: Any) -> Any:
    """Make a Hugging Face data set return the contents of image files, which are decoded here."""
    for name, feature in (getattr(source, "features", None) or {}).items():
        if type(feature).__name__ == "Image" and hasattr(source, "cast_column"):
            source = source.cast_column(name, type(feature)(decode=False))
    return source


def _item(source: Any, position: int) -> Any:
    """Return one item, as an array if it is a tensor, without the class that may come with it."""
    item = source[position]
    if isinstance(item, tuple):
        item = item[0]
    return plain_values(item.to_dict() if hasattr(item, "to_dict") else item)  # a row of a data frame


def plain_values(values: Any) -> Any:
    """Return a tensor, or an array without masked values, as a plain array; anything else as it is."""
    if np.ma.is_masked(values):
        raise InputError("the input has masked values: fill them, or leave these samples out")
    if not hasattr(values, "detach"):
        return values.data if isinstance(values, np.ma.MaskedArray) else values
    try:
        tensor = values.detach().to_dense()
        small = tensor.is_floating_point() and tensor.element_size() < 4  # NumPy has no bfloat16
        return (tensor.float() if small else tensor).numpy(force=True)
    except Exception as error:  # every kind of tensor has errors of its own
        raise InputError(f"a tensor cannot be read as an array ({one_line(error, 120)})") from None
