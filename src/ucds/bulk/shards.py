"""Shards: pieces of the samples, each of which is worked on and written by itself.

A shard says where its samples are. What it names is read when the shard is worked on, by the process that
works on it; so neither images nor embeddings of all shards are ever in memory together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ucds.bulk.places import open_file
from ucds.data.array_files import read_arrays
from ucds.data.samples import Samples
from ucds.data.sources import is_address
from ucds.data.table_columns import DOMAIN_NAME, VECTOR_NAMES
from ucds.data.tables import load_pyarrow, plain_column
from ucds.data.vectors import VectorSamples
from ucds.errors import InputError, UserError, one_line
from ucds.files import digest_of

Rows = dict[str, npt.NDArray[Any]]
"""Columns by name, all of one length.

Images have ``sample``, their ids, with ``path``, ``offset`` and ``length``, or with ``bytes``, the contents
of their files. Embeddings have ``sample`` and ``features`` ``(n, d)``. Where they are known there are
``domain``, the names of the domains, and ``content``, the content keys in hexadecimal digits.
"""


class Shard(Protocol):
    """Some samples, and the way to read them."""

    @property
    def holds_vectors(self) -> bool:
        """Whether the samples are embeddings, and not images."""
        ...

    def __len__(self) -> int: ...

    def rows(self) -> Rows:
        """Read the samples, or the paths of their files."""
        ...

    def digest(self) -> str:
        """Return a digest of the samples' ids and places, or of the place that they are read from."""
        ...


@dataclass(frozen=True, eq=False)
class ListedShard:
    """Samples whose columns are at hand: paths of image files, or embeddings that were in memory."""

    columns: Rows

    @property
    def holds_vectors(self) -> bool:
        """Whether there is a column of embeddings."""
        return "features" in self.columns

    def __len__(self) -> int:
        return len(self.columns["sample"])

    def rows(self) -> Rows:
        """Return the columns."""
        return self.columns

    def digest(self) -> str:
        """Return a digest of all values."""
        return digest_of(*(_bytes_of(column) for _, column in sorted(self.columns.items())))


@dataclass(frozen=True)
class ArrayShard:
    """Rows ``first`` to ``first + count`` of the embeddings in a ``.npy`` file."""

    path: str
    first: int
    count: int

    @property
    def holds_vectors(self) -> bool:
        """Whether the rows are embeddings: always."""
        return True

    def __len__(self) -> int:
        return self.count

    def rows(self) -> Rows:
        """Read the rows through a memory map."""
        array = next(iter(read_arrays(Path(self.path)).values()))
        ids = [str(i) for i in range(self.first, self.first + self.count)]
        return _checked_rows(array[self.first : self.first + self.count], ids, self.path)

    def digest(self) -> str:
        """Return a digest of path and rows."""
        return digest_of(repr(self).encode())


@dataclass(frozen=True)
class TableShard:
    """Rows ``first`` to ``first + count`` of a parquet file.

    Attributes:
        path: file, or address of one.
        first: number of the first row.
        count: number of rows.
        column: column that holds paths, pictures or embeddings.
        id_column: column of ids; rows are called by their numbers if ``None``.
        prefix: text before these numbers.
        by_domain: whether the column of domains is read.
    """

    path: str
    first: int
    count: int
    column: str
    id_column: str | None
    prefix: str
    by_domain: bool

    @property
    def holds_vectors(self) -> bool:
        """Whether the column is one of embeddings."""
        return plain_column(self.column) in VECTOR_NAMES

    def __len__(self) -> int:
        return self.count

    def rows(self) -> Rows:
        """Read the rows, from the row groups that hold them.

        Raises:
            InputError: the file cannot be read, or the column holds something else.
        """
        optional = [self.id_column, DOMAIN_NAME if self.by_domain else None, "content"]
        with open_file(self.path) as file:
            table = _slice(file, self.path, self.first, self.count, self.column, optional)
        columns = {name: table[name] for name in table.column_names}
        if self.id_column is None:
            ids = [f"{self.prefix}{i}" for i in range(self.first, self.first + self.count)]
        else:
            ids = [str(value) for value in columns[self.id_column].to_pylist()]
        more = {
            name: texts(columns[name].to_pylist()) for name in (DOMAIN_NAME, "content") if name in columns
        }
        return self._samples(columns[self.column], ids) | more

    def _samples(self, column: Any, ids: list[str]) -> Rows:
        if self.holds_vectors:
            try:
                array = column.combine_chunks().flatten().to_numpy().reshape(len(ids), -1)
            except (AttributeError, ValueError):
                reason = f"{self.path}: the column {self.column!r} must hold lists of numbers of one length"
                raise InputError(reason) from None
            return _checked_rows(array, ids, self.path)
        values = [value["bytes"] if isinstance(value, Mapping) else value for value in column.to_pylist()]
        if all(isinstance(value, bytes) for value in values):
            return {"sample": texts(ids), "bytes": texts(values)}
        if not all(isinstance(value, str) for value in values):
            raise InputError(f"{self.path}: the column {self.column!r} holds neither paths nor image files")
        above = self.path.rpartition("/")[0]
        paths = [
            value if is_address(value) or value.startswith("/") else f"{above}/{value}" for value in values
        ]
        return file_rows(values, paths)

    def digest(self) -> str:
        """Return a digest of path, rows and columns."""
        return digest_of(repr(self).encode())


def texts(values: Iterable[object]) -> npt.NDArray[Any]:
    """Return an array of objects, such as texts or contents of files, without copying them."""
    listed = list(values)
    array = np.empty(len(listed), dtype=object)
    array[:] = listed
    return array


def file_rows(ids: Iterable[str], paths: list[str]) -> Rows:
    """Return the columns of whole image files."""
    n = len(paths)
    return {
        "sample": texts(ids),
        "path": texts(paths),
        "offset": np.full(n, -1, np.int64),
        "length": np.zeros(n, np.int64),
    }


def vector_rows(samples: Samples) -> Rows:
    """Return the columns of embeddings."""
    every = samples.read(np.arange(len(samples))).numpy()
    return {"sample": texts(samples.ids), "features": every, "content": texts(k.hex() for k in samples.keys)}


def _checked_rows(array: npt.NDArray[Any], ids: list[str], what: str) -> Rows:
    try:
        return vector_rows(VectorSamples(array, ids=ids))
    except UserError as error:
        raise InputError(f"{what}: {error}") from None


def _slice(file: Any, path: str, first: int, count: int, column: str, optional: Iterable[str | None]) -> Any:
    """Read some rows of a parquet file: one column, and those of the optional ones that it has."""
    arrow, parquet = load_pyarrow()
    try:
        opened = parquet.ParquetFile(file)
        lengths = [opened.metadata.row_group(g).num_rows for g in range(opened.metadata.num_row_groups)]
        ends = np.cumsum(lengths)
        groups = [g for g, end in enumerate(ends) if end > first and end - lengths[g] < first + count]
        names = [column, *(name for name in optional if name in opened.schema_arrow.names)]
        table = opened.read_row_groups(groups, columns=list(dict.fromkeys(names)))
        return table.slice(first - int(ends[groups[0]] - lengths[groups[0]]), count)
    except (OSError, arrow.ArrowException) as error:
        raise InputError(f"{path} is not a readable parquet file ({one_line(error, 120)})") from None


def _bytes_of(column: npt.NDArray[Any]) -> bytes:
    if column.dtype == object:
        return "\0".join(map(str, column.tolist())).encode("utf-8", "surrogatepass")
    return np.ascontiguousarray(column).tobytes()
