"""Shards: pieces of the images, each of which is computed and written by itself.

A shard says where its images are. They are read by the process that works on them, so that the images of all
shards are never in memory together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import fsspec
import numpy as np

from ucds.data.decode import MAX_FILE_BYTES, UnusableImageError, read_image_bytes
from ucds.data.folders import IMAGE_SUFFIXES, Scan, scan_folder
from ucds.data.known_files import stamp
from ucds.data.shards import Span
from ucds.data.sources import Source, find_samples, is_address, is_plain_folder
from ucds.data.table_columns import DOMAIN_NAME, ID_NAMES, PICTURE_NAMES, content_of, first_present
from ucds.data.tables import load_pyarrow
from ucds.errors import InputError, UserError, one_line
from ucds.files import digest_of

_TABLE = ".parquet"


class Listed:
    """Images of a shard, ready to be read.

    Args:
        ids: id of each image.
        domains: name of the domain of each image; ``None`` if the ids alone tell.
        read: function from the position of an image to its bytes, which raises :class:`UnusableImageError`.
    """

    def __init__(
        self, ids: Sequence[str], domains: Sequence[str] | None, read: Callable[[int], bytes]
    ) -> None:
        self.ids, self.domains, self.read = ids, domains, read


class Shard(Protocol):
    """Some images, and the way to read them."""

    def __len__(self) -> int: ...

    def mark(self) -> str:
        """Return what changes with the ids of the images, and with the times and lengths of their files."""
        ...

    def listed(self) -> Listed:
        """Return the images, ready to be read."""
        ...


@dataclass(frozen=True)
class Found:
    """Images that were found.

    Attributes:
        shards: these images, in pieces.
        root: folder that the ids are relative to, or its address.
        domain: name of the domain if the images are taken as one.
    """

    shards: list[Shard]
    root: str
    domain: str


@dataclass(frozen=True)
class FileShard:
    """Images in files, or at places inside tar files.

    Attributes:
        ids: id of each image.
        domains: name of the domain of each image; ``None`` if the ids alone tell.
        files: path or address of each file.
        spans: place of each image in its file, if this is an archive.
        marks: times and length of each file, or what its store tells of it.
    """

    ids: tuple[str, ...]
    domains: tuple[str, ...] | None
    files: tuple[str, ...]
    spans: tuple[Span | None, ...]
    marks: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def mark(self) -> str:
        """Return a digest of ids, domains and marks."""
        return _digest([self.ids, self.domains, self.spans, self.marks])

    def listed(self) -> Listed:
        """Return the images; their files are opened one by one."""
        return Listed(self.ids, self.domains, lambda i: _read(self.files[i], self.spans[i]))


@dataclass(frozen=True)
class TableShard:
    """Rows ``first`` to ``first + count`` of a parquet file with a column of pictures.

    Attributes:
        path: file, or address of one.
        mark_of_file: times and length of the file, or what its store tells of it.
        first: number of the first row.
        count: number of rows.
        prefix: text before the number of a row, which is its id if there is no column of ids.
    """

    path: str
    mark_of_file: str
    first: int
    count: int
    prefix: str

    def __len__(self) -> int:
        return self.count

    def mark(self) -> str:
        """Return a digest of the file's mark and the rows."""
        return _digest([self.path, self.mark_of_file, self.first, self.count, self.prefix])

    def listed(self) -> Listed:
        """Read the rows, from the row groups that hold them.

        Raises:
            InputError: the file cannot be read.
        """
        with _opened(self.path) as table:
            names = table.schema_arrow.names
            picture, name = first_present(PICTURE_NAMES, names), first_present(ID_NAMES, names)
            wanted = [column for column in (picture, name, DOMAIN_NAME) if column and column in names]
            columns = _rows(table, self.first, self.count, wanted)
        ids = columns[name] if name else range(self.first, self.first + self.count)
        domains = [str(value) for value in columns[DOMAIN_NAME]] if DOMAIN_NAME in columns else None
        values = [content_of(value) for value in columns[picture or ""]]
        return Listed([f"{'' if name else self.prefix}{value}" for value in ids], domains, _reader(values))


def find_shards(source: Source, size: int) -> Found:
    """Find images, and cut them into shards.

    Args:
        source: image files in any form that :func:`ucds.data.sources.find_samples` takes; a parquet file with
            a column of pictures, or a folder of such files; or the address of a folder of images or of such
            files in an object store.
        size: number of images of a shard; the last one of a file or list may have fewer.

    Raises:
        InputError: there are no images, or these are not in files.
    """
    path = str(source) if isinstance(source, str | Path) else None
    if path is not None and is_address(path):
        return _in_store(path, size)
    if path is not None and (tables := _tables_at(Path(path))):
        above = str(Path(tables[0]).parent)
        return Found(_in_tables({table: _mark(table) for table in tables}, size), above, "images")
    plain = path is not None and is_plain_folder(Path(path))
    found = scan_folder(str(path)) if plain else find_samples(source, by_domain=True)
    if not isinstance(found, Scan):
        raise InputError("features are computed of image files, not of embeddings or pictures in memory")
    return Found(list(_in_scan(found, size)), str(found.root.absolute()), _domain_of(found))


def _domain_of(scan: Scan) -> str:
    return scan.domain_names[0] if len(scan.domain_names) == 1 else "images"


def _in_scan(scan: Scan, size: int) -> Iterator[Shard]:
    root, named = scan.root.absolute(), len(scan.domain_names) > 1
    for first in range(0, len(scan), size):
        places = range(first, min(first + size, len(scan)))
        spans = tuple(None if scan.spans is None else scan.spans.at(i) for i in places)
        inside = zip(places, spans, strict=True)
        paths = [scan.paths[i] if span is None else span.archive for i, span in inside]
        files = tuple(path if is_address(path) else str(root / path) for path in paths)
        domains = tuple(scan.domain_names[scan.domain[i]] for i in places) if named else None
        ids = tuple(scan.ids[i] for i in places)
        yield FileShard(ids, domains, files, spans, tuple(map(_mark, files)))


def _tables_at(path: Path) -> list[str]:
    """Return the parquet files of pictures at a path: itself, or all files of a folder without images."""
    entries = [path] if path.is_file() else sorted(path.glob("[!.]*")) if path.is_dir() else []
    if not entries or any(entry.suffix.lower() != _TABLE for entry in entries):
        return []
    with _opened(str(entries[0])) as table:
        has_pictures = first_present(PICTURE_NAMES, table.schema_arrow.names) is not None
    return [str(entry.absolute()) for entry in entries] if has_pictures else []


def _in_tables(tables: dict[str, str], size: int) -> list[Shard]:
    shards: list[Shard] = []
    for path, mark in tables.items():
        with _opened(path) as table:
            if first_present(PICTURE_NAMES, table.schema_arrow.names) is None:
                raise InputError(f"{path} has no column of pictures; see docs/inputs.md")
            n = int(table.metadata.num_rows)
        prefix = "" if len(tables) == 1 else f"{path.rpartition('/')[2]}/"
        shards += [TableShard(path, mark, first, min(size, n - first), prefix) for first in range(0, n, size)]
    if not shards:
        raise InputError(f"{next(iter(tables))} is a table without rows")
    return shards


def _in_store(address: str, size: int) -> Found:
    store, root = _store_of(address)
    try:
        found = dict(sorted(store.find(root, detail=True).items()))
    except Exception as error:  # every store has errors of its own
        raise InputError(f"{address} cannot be listed: {one_line(error)}") from None
    marks = {store.unstrip_protocol(name): _told(about) for name, about in found.items()}
    images = [name for name in marks if _suffix(name) in IMAGE_SUFFIXES]
    domain = address.rstrip("/").rpartition("/")[2] or "images"
    if not images:
        tables = {name: mark for name, mark in marks.items() if _suffix(name) == _TABLE}
        if not tables:
            raise InputError(f"{address} holds neither images nor parquet files")
        return Found(_in_tables(tables, size), address, domain)
    whole = store.unstrip_protocol(root)
    shards: list[Shard] = []
    for first in range(0, len(images), size):
        files = tuple(images[first : first + size])
        ids = tuple(name.removeprefix(whole).lstrip("/") for name in files)
        shards.append(FileShard(ids, None, files, (None,) * len(files), tuple(marks[name] for name in files)))
    return Found(shards, address, domain)


def _suffix(name: str) -> str:
    return Path(name).suffix.lower()


def _store_of(address: str) -> tuple[Any, str]:
    try:
        store, inside = fsspec.core.url_to_fs(address)
        return store, str(inside)
    except (ValueError, ImportError) as error:
        raise InputError(f"{address} cannot be used: {one_line(error)}") from None


def _mark(path: str) -> str:
    """Return the times and the length of a file, or what its store tells of it; empty if there is none."""
    if not is_address(path):
        return str(stamp(path) or "")
    store, inside = _store_of(path)
    try:
        return _told(store.info(inside))
    except Exception:  # every store has errors of its own; the image will be named when it is read
        return ""


def _told(about: dict[str, Any]) -> str:
    return str(sorted((name, str(value)) for name, value in about.items()))


def _read(path: str, span: Span | None) -> bytes:
    """Read the bytes of one image.

    Raises:
        UnusableImageError: they cannot be read, or are more than 256 MiB.
    """
    if not is_address(path):
        return read_image_bytes(path, span)
    try:
        store, inside = _store_of(path)
        with store.open(inside, "rb") as file:
            data: bytes = file.read(MAX_FILE_BYTES + 1)
    except Exception as error:  # every store has errors of its own
        raise UnusableImageError(path, f"cannot be read ({one_line(error, 120)})") from None
    if not 0 < len(data) <= MAX_FILE_BYTES:
        raise UnusableImageError(path, "too large a file (over 256 MiB)" if data else "empty file")
    return data


def _reader(values: Sequence[Any]) -> Callable[[int], bytes]:
    def read(position: int) -> bytes:
        if not isinstance(value := values[position], bytes):
            raise UnusableImageError(str(position), "no picture")
        return value

    return read


@contextmanager
def _opened(path: str) -> Iterator[Any]:
    """Open a parquet file of this machine or of a store; its errors become one line."""
    arrow, parquet = load_pyarrow()
    with _open_file(path) as file:
        try:
            yield parquet.ParquetFile(file)
        except (OSError, arrow.ArrowException) as error:
            raise InputError(f"{path} is not a readable parquet file ({one_line(error, 120)})") from None


def _open_file(path: str) -> IO[bytes]:
    try:
        if not is_address(path):
            return Path(path).open("rb")
        store, inside = _store_of(path)
        opened: IO[bytes] = store.open(inside, "rb")
        return opened
    except UserError:
        raise
    except Exception as error:
        raise InputError(f"{path} cannot be read: {one_line(error)}") from None


def _rows(table: Any, first: int, count: int, names: Sequence[str]) -> dict[str, list[Any]]:
    """Read some rows of a parquet file, from the row groups that hold them."""
    lengths = [table.metadata.row_group(g).num_rows for g in range(table.metadata.num_row_groups)]
    ends = np.cumsum(lengths)
    groups = [g for g, end in enumerate(ends) if end > first and end - lengths[g] < first + count]
    read = table.read_row_groups(groups, columns=list(names))
    chosen = read.slice(first - int(ends[groups[0]] - lengths[groups[0]]), count)
    return {name: chosen[name].to_pylist() for name in names}


def _digest(parts: Sequence[object]) -> str:
    return digest_of(repr(parts).encode("utf-8", "surrogatepass"))
