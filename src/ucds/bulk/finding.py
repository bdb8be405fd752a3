"""Finds samples of any size, and cuts them into shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ucds.bulk.places import open_file, open_store
from ucds.bulk.shards import ArrayShard, ListedShard, Rows, Shard, TableShard, file_rows, texts, vector_rows
from ucds.data.array_files import read_arrays
from ucds.data.folders import IMAGE_SUFFIXES, Scan
from ucds.data.sources import Source, find_samples, is_address
from ucds.data.table_columns import (
    DOMAIN_NAME,
    ID_NAMES,
    PATH_NAMES,
    PICTURE_NAMES,
    VECTOR_NAMES,
    Pictures,
    first_present,
)
from ucds.data.tables import load_pyarrow
from ucds.errors import DamagedFileError, InputError, one_line

_TABLE, _ARRAY = ".parquet", ".npy"


def find_shards(
    source: Source, size: int, *, by_domain: bool = False, domains: Sequence[str] | None = None
) -> list[Shard]:
    """Find samples, and cut them into shards.

    Args:
        source: samples in any form that :func:`ucds.data.sources.find_samples` takes, except pictures in
            memory; or the address of a folder of images or of parquet files in an object store. Parquet and
            ``.npy`` files, and folders of parquet files, are read shard by shard.
        size: number of samples of a shard; the last one of a file or list may have fewer.
        by_domain: whether a folder holds one folder a domain, or a table has a column of domains, which the
            rows then name.
        domains: names of the domains to take; all if ``None``. Parquet files and object stores are taken
            whole: their domains are known when their rows are read.

    Raises:
        InputError: the samples cannot be used, or there are none, or there is no such domain.
    """
    path = str(source) if isinstance(source, str | Path) else None
    if path is not None and is_address(path):
        return _in_store(path, size, by_domain)
    if path is not None and path.lower().endswith(_ARRAY):
        return _in_array(Path(path), size)
    if path is not None and (tables := _tables_at(Path(path))):
        return _in_tables(tables, size, by_domain)
    found = find_samples(source, by_domain=by_domain, domains=domains)
    if isinstance(found, Pictures):
        raise InputError("bulk work takes files and embeddings, not pictures in memory")
    columns = _scanned(found) if isinstance(found, Scan) else vector_rows(found)
    if by_domain:
        columns[DOMAIN_NAME] = texts(found.domain_names[d] for d in found.domain)
    return _cut(columns, size)


def _cut(columns: Rows, size: int) -> list[Shard]:
    n = len(columns["sample"])
    return [
        ListedShard({name: column[start : start + size] for name, column in columns.items()})
        for start in range(0, n, size)
    ]


def _scanned(scan: Scan) -> Rows:
    root = scan.root.absolute()
    spans, files = scan.spans, list(scan.paths)
    if spans is not None:
        inside = map(spans.at, range(len(files)))
        files = [path if span is None else span.archive for path, span in zip(files, inside, strict=True)]
    rows = file_rows(scan.ids, [file if is_address(file) else str(root / file) for file in files])
    if spans is not None:
        rows["offset"] = np.where(spans.archive < 0, -1, spans.offset)
        rows["length"] = spans.length
    return rows


def _in_array(path: Path, size: int) -> list[Shard]:
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    try:
        array = next(iter(read_arrays(path).values()))
    except DamagedFileError as error:
        raise InputError(f"{error}; write it with numpy.save.") from None
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"{path} must have shape (n, d), one row per sample, not {array.shape}.")
    place = str(path.absolute())
    return [ArrayShard(place, first, count) for first, count in _pieces(len(array), size)]


def _pieces(n: int, size: int) -> Iterator[tuple[int, int]]:
    return ((first, min(size, n - first)) for first in range(0, n, size))


def _tables_at(path: Path) -> list[str]:
    """Return the parquet files at a path: itself, or all files of a folder that holds no other samples."""
    if path.suffix.lower() == _TABLE and path.is_file():
        return [str(path.absolute())]
    if not path.is_dir():
        return []
    entries = [entry for entry in path.absolute().iterdir() if not entry.name.startswith(".")]
    if any(entry.is_dir() or entry.suffix.lower() in IMAGE_SUFFIXES for entry in entries):
        return []
    return sorted(str(entry) for entry in entries if entry.suffix.lower() == _TABLE)


def _in_store(address: str, size: int, by_domain: bool) -> list[Shard]:
    store, root = open_store(address)
    try:
        found = sorted(store.find(root))
    except Exception as error:
        raise InputError(f"{address} cannot be listed: {one_line(error)}") from None
    images = [name for name in found if _suffix(name) in IMAGE_SUFFIXES]
    if not images:
        tables = [store.unstrip_protocol(name) for name in found if _suffix(name) == _TABLE]
        if not tables:
            raise InputError(f"{address} holds neither images nor parquet files")
        return _in_tables(tables, size, by_domain)
    ids = [name.removeprefix(root).lstrip("/") for name in images]
    columns = file_rows(ids, [store.unstrip_protocol(name) for name in images])
    if by_domain:
        columns[DOMAIN_NAME] = texts(name.partition("/")[0] for name in ids)
    return _cut(columns, size)


def _suffix(name: str) -> str:
    dot = name.rpartition("/")[2].rpartition(".")
    return f".{dot[2].lower()}" if dot[0] else ""


def _in_tables(paths: list[str], size: int, by_domain: bool) -> list[Shard]:
    shards: list[Shard] = []
    for path in paths:
        names, n = _describe(path)
        column = first_present((*PATH_NAMES, *PICTURE_NAMES, *VECTOR_NAMES), names)
        if column is None:
            raise InputError(f"{path} has no column of paths, images or embeddings; see docs/inputs.md")
        if by_domain and DOMAIN_NAME not in names:
            raise InputError(f"{path} has no column {DOMAIN_NAME!r}")
        prefix = "" if len(paths) == 1 else f"{path.rpartition('/')[2]}/"
        how = (column, first_present(ID_NAMES, names), prefix, by_domain)
        shards += [TableShard(path, first, count, *how) for first, count in _pieces(n, size)]
    if not shards:
        raise InputError(f"{paths[0]} is a table without rows")
    return shards


def _describe(path: str) -> tuple[list[str], int]:
    """Return the columns of a parquet file, and the number of its rows."""
    arrow, parquet = load_pyarrow()
    with open_file(path) as file:
        try:
            opened = parquet.ParquetFile(file)
            return list(opened.schema_arrow.names), int(opened.metadata.num_rows)
        except (OSError, arrow.ArrowException) as error:
            raise InputError(f"{path} is not a readable parquet file ({one_line(error, 120)})") from None
