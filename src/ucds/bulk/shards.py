"""Shards: pieces of the images; each is computed and written by itself.

A shard says where its images are. They are read by the process that works on them, so that the images of all
shards are never in memory together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import pyarrow
import pyarrow.parquet

from ucds.data.columns import DOMAIN_NAME, ID_NAMES, PICTURE_NAMES, content_of, first_present, texts_in
from ucds.data.content import first_repeated, require_ids
from ucds.data.decode import IMAGE_SUFFIXES, UnusableImageError
from ucds.data.folders import Scan, scan_folder
from ucds.data.image_files import MAX_FILE_BYTES, read_image_bytes, stamp
from ucds.data.sources import Source, find_samples, is_address, is_plain_folder
from ucds.errors import InputError, UserError, one_line
from ucds.files import digest_of


class Images(NamedTuple):
    """Images of a shard, ready to be read."""

    ids: Sequence[str]  # id of each image
    paths: Sequence[str] | None  # path of each image below the root; `None` if the ids are the paths
    domains: Sequence[str] | None  # domain of each image; `None` if the ids alone tell
    read: Callable[[int], bytes]  # from a position to the bytes of the image; raises UnusableImageError


@dataclass(frozen=True)
class _FileShard:
    """Images in files; each file has a mark that changes with it."""

    ids: tuple[str, ...]
    paths: tuple[str, ...] | None
    domains: tuple[str, ...] | None
    files: tuple[str, ...]
    marks: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def mark(self) -> str:
        return _digest(self.ids, self.domains, self.marks)

    def images(self) -> Images:
        return Images(self.ids, self.paths, self.domains, lambda i: _read(self.files[i]))


@dataclass(frozen=True)
class _TableShard:
    """A row group of a parquet file with a column of pictures; rows without ids are numbered.

    The prefix makes ids unique across several files.
    """

    path: str
    mark_of_file: str
    group: int
    first: int
    count: int
    prefix: str

    def __len__(self) -> int:
        return self.count

    def mark(self) -> str:
        return _digest(self.path, self.mark_of_file, self.group, self.prefix)

    def images(self) -> Images:
        with _opened(self.path) as table:
            names = table.schema_arrow.names
            known = (PICTURE_NAMES, ID_NAMES, [DOMAIN_NAME])
            picture, name, domain = (first_present(one, names) for one in known)
            wanted = [column for column in (picture, name, domain) if column is not None]
            rows = table.read_row_group(self.group, columns=wanted).to_pydict()
        numbers = range(self.first, self.first + self.count)
        ids = [f"{self.prefix}{one}" for one in (texts_in(rows[name]) if name else numbers)]
        domains = None if domain is None else list(map(str, rows[domain]))
        values = [content_of(value) for value in rows[picture]]

        def read(position: int) -> bytes:
            if not isinstance(value := values[position], bytes):
                raise UnusableImageError(ids[position], "no picture")
            return value

        return Images(ids, None, domains, read)


Shard = _FileShard | _TableShard
"""Some images: their number, a mark that changes with their files, and how to read them."""


class Found(NamedTuple):
    """Images in shards; the folder at which their ids begin; the name of their domain."""

    shards: list[Shard]
    root: str
    domain: str


def find_shards(source: Source, size: int) -> Found:
    """Find images, and cut them into shards.

    Args:
        source: image files in any form that :func:`ucds.data.sources.find_samples` takes; a parquet file with
            a column of pictures, or a folder of such files, whose row groups are the shards; or the address
            of a folder of images or of such files in an object store.
        size: number of images of a shard of files; the last one may have fewer.
    """
    path = str(source) if isinstance(source, str | Path) else None
    if path is not None and is_address(path):
        return _in_store(path, size)
    if path is not None and (shards := _in_tables(_tables_at(Path(path)))):
        return Found(shards, str(Path(path).absolute()), "images")
    plain = path is not None and is_plain_folder(Path(path))
    found = scan_folder(str(path)) if plain else find_samples(source, by_domain=True)
    if not isinstance(found, Scan):
        raise InputError("features are computed from image files, not from embeddings or images in memory")
    domain = found.domain_names[0] if len(found.domain_names) == 1 else "images"
    return Found(list(_in_scan(found, size)), str(found.root.absolute()), domain)


def _in_scan(scan: Scan, size: int) -> Iterator[Shard]:
    root, named = scan.root.absolute(), len(scan.domain_names) > 1
    for first in range(0, len(scan), size):
        places = range(first, min(first + size, len(scan)))
        paths = [scan.paths[i] for i in places]
        files = tuple(path if is_address(path) else str(root / path) for path in paths)
        domains = tuple(scan.domain_names[scan.domain[i]] for i in places) if named else None
        shown = tuple(scan.readable_paths[i] for i in places) if scan.given_ids is not None else None
        yield _FileShard(tuple(scan.ids[i] for i in places), shown, domains, files, tuple(map(_mark, files)))


def _tables_at(path: Path) -> dict[str, str]:
    """Return the parquet file at a path, or all those in a folder, with their marks."""
    entries = [path] if path.is_file() else sorted(path.glob("[!.]*"))
    of_tables = all(entry.suffix.lower() == ".parquet" for entry in entries)
    return {str(entry.absolute()): _mark(str(entry)) for entry in entries} if of_tables else {}


def _in_tables(tables: dict[str, str]) -> list[Shard]:
    """Return the row groups of tables that have a column of pictures.

    If ids repeat between files, the file's name is added to them.
    """
    counts, ids = dict[str, list[int]](), dict[str, list[str] | None]()
    for path in tables:
        with _opened(path) as table:
            if first_present(PICTURE_NAMES, table.schema_arrow.names) is None:
                continue
            name = first_present(ID_NAMES, table.schema_arrow.names)
            counts[path] = [table.metadata.row_group(group).num_rows for group in range(table.num_row_groups)]
            ids[path] = None if name is None else texts_in(table.read(columns=[name])[name].to_pylist())
            require_ids(ids[path] or [])
    everything = [one for of_file in ids.values() for one in of_file or ()]
    apart = len(ids) < 2 or (None not in ids.values() and first_repeated(everything) is None)
    above = os.path.commonprefix([*counts]).rpartition("/")[0]  # noqa: RUF071  (up to a slash, of addresses as well)
    shards: list[Shard] = []
    for path, of_groups in counts.items():
        prefix, first = "" if apart else f"{path.removeprefix(above).lstrip('/')}/", 0
        for group, count in enumerate(of_groups):
            shards.append(_TableShard(path, tables[path], group, first, count, prefix))
            first += count
    return shards


def _in_store(address: str, size: int) -> Found:
    store, root = _store_of(address)
    try:
        found = dict(sorted(store.find(root, detail=True).items()))
    except Exception as error:  # every store has errors of its own
        raise InputError(f"{address} cannot be listed: {one_line(error)}") from None
    marks = {store.unstrip_protocol(name): _told(about) for name, about in found.items()}
    images = [name for name in marks if Path(name).suffix.lower() in IMAGE_SUFFIXES]
    domain = address.rstrip("/").rpartition("/")[2] or "images"
    if not images:
        tables = _in_tables({name: mark for name, mark in marks.items() if name.lower().endswith(".parquet")})
        if not tables:
            raise InputError(f"{address} holds neither images nor parquet files of them")
        return Found(tables, address, domain)
    above, shards = store.unstrip_protocol(root), list[Shard]()
    for first in range(0, len(images), size):
        files = tuple(images[first : first + size])
        ids = tuple(name.removeprefix(above).lstrip("/") for name in files)
        shards.append(_FileShard(ids, None, None, files, tuple(marks[name] for name in files)))
    return Found(shards, address, domain)


def _store_of(address: str) -> tuple[Any, str]:
    try:
        store, inside = fsspec.core.url_to_fs(address)
        return store, str(inside)
    except (ValueError, ImportError) as error:
        raise InputError(f"{address} cannot be used: {one_line(error)}") from None


def _mark(path: str) -> str:
    """Return length and times of a file, or its store's description of it; nothing if it does not exist."""
    if not is_address(path):
        return str(stamp(path) or "")
    store, inside = _store_of(path)
    try:
        return _told(store.info(inside))
    except Exception:  # every store has errors of its own; the image will be named when it is read
        return ""


def _told(about: dict[str, Any]) -> str:
    return str(sorted((name, str(value)) for name, value in about.items()))


def _read(path: str) -> bytes:
    """Read the bytes of one image, at most 256 MiB."""
    if not is_address(path):
        return read_image_bytes(path)
    try:
        with fsspec.open(path, "rb") as file:
            data: bytes = file.read(MAX_FILE_BYTES + 1)
    except Exception as error:  # every store has errors of its own
        raise UnusableImageError(path, f"cannot be read ({one_line(error, 120)})") from None
    if not 0 < len(data) <= MAX_FILE_BYTES:
        raise UnusableImageError(path, "too large a file (over 256 MiB)" if data else "empty file")
    return data


@contextmanager
def _opened(path: str) -> Iterator[Any]:
    """Open a parquet file of this machine or of a store; its errors become one line."""
    try:
        with fsspec.open(path, "rb") as file:
            yield pyarrow.parquet.ParquetFile(file)
    except UserError:
        raise
    except Exception as error:  # every store has errors of its own
        raise InputError(f"{path} is not a readable parquet file ({one_line(error, 120)})") from None


def _digest(*parts: object) -> str:
    return digest_of(repr(parts).encode("utf-8", "surrogatepass"))
