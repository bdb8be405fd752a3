"""Folders of results and addresses of images, on this machine or in an object store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import fsspec

from ucds.data.decode import MAX_FILE_BYTES, UnusableImageError, read_image_bytes
from ucds.data.shards import Span
from ucds.data.sources import Source, is_address, place_of
from ucds.errors import InputError, UserError, one_line
from ucds.files import refuse_inside, write_atomically


class UnreachablePlaceError(UserError):
    """An object store that refuses, cannot be reached, or needs a further package."""


def open_store(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it.

    Raises:
        InputError: no file system has such addresses, or its package is not installed.
    """
    try:
        store, inside = fsspec.core.url_to_fs(address)
        return store, str(inside)
    except (ValueError, ImportError) as error:
        raise InputError(f"{address} cannot be used: {one_line(error)}") from None


def read_image(path: str, offset: int = -1, length: int = 0) -> bytes:
    """Read the bytes of one image.

    Args:
        path: file, or address of one.
        offset: position of its first byte, if the file is an archive on this machine; -1 for a whole file.
        length: number of its bytes in the archive.

    Raises:
        UnusableImageError: they cannot be read, or are more than 256 MiB.
    """
    if not is_address(path):
        return read_image_bytes(path, None if offset < 0 else Span(path, offset, length))
    try:
        store, inside = open_store(path)
        with store.open(inside, "rb") as file:
            data: bytes = file.read(MAX_FILE_BYTES + 1)
    except Exception as error:  # every store has errors of its own
        raise UnusableImageError(path, f"cannot be read ({one_line(error, 120)})") from None
    if not 0 < len(data) <= MAX_FILE_BYTES:
        raise UnusableImageError(path, "too large a file (over 256 MiB)" if data else "empty file")
    return data


@dataclass(frozen=True)
class Place:
    """Folder of results: a path that all workers share, or an address.

    Attributes:
        root: path or address of the folder; it is made with its first file.
    """

    root: str

    @classmethod
    def of(cls, path: str | Path, inputs: Source) -> Place:
        """Name a folder so that every process finds it, whatever its working folder.

        Args:
            path: path or address of the folder.
            inputs: samples of the job.

        Raises:
            InputError: the path is a file, or lies inside the folder of the samples.
        """
        if is_address(str(path)):
            return cls(str(path).rstrip("/"))
        if Path(path).is_file():
            raise InputError(f"{path} is a file: name a folder, which gets the shards")
        if (place := place_of(inputs)) is not None:
            refuse_inside(Path(path), place)
        return cls(str(Path(path).absolute()))

    def __str__(self) -> str:
        """Return the path or address."""
        return self.root

    def names(self) -> set[str]:
        """Return the names of the visible files that are in the folder; none if there is no folder."""
        if not is_address(self.root):
            return {path.name for path in Path(self.root).glob("[!.]*")}
        store, inside = open_store(self.root)

        def listed() -> set[str]:
            store.invalidate_cache()
            return {name.rpartition("/")[2] for name in store.find(inside, maxdepth=1)}

        return set(_reached(self.root, listed))

    def read(self, name: str) -> bytes:
        """Read a file of the folder.

        Raises:
            OSError: the file on this machine cannot be read.
            UnreachablePlaceError: the store cannot be read.
        """
        if not is_address(self.root):
            return (Path(self.root) / name).read_bytes()
        store, inside = open_store(self.root)
        return bytes(_reached(self.root, lambda: store.cat_file(f"{inside}/{name}")))

    def write(self, name: str, data: bytes) -> None:
        """Write a file so that nobody ever sees half of it.

        Raises:
            NoSpaceError: the disk is full, or the folder is not writable.
            UnreachablePlaceError: the store refuses.
        """
        if not is_address(self.root):
            write_atomically(Path(self.root) / name, lambda file: file.write(data))
            return
        store, inside = open_store(self.root)
        _reached(
            self.root,
            lambda: (store.makedirs(inside, exist_ok=True), store.pipe_file(f"{inside}/{name}", data)),
        )


def open_file(path: str) -> IO[bytes]:
    """Open a file of this machine or of a store for reading.

    Raises:
        InputError: it cannot be opened.
    """
    try:
        if not is_address(path):
            return Path(path).open("rb")
        store, inside = open_store(path)
        opened: IO[bytes] = store.open(inside, "rb")
        return opened
    except UserError:
        raise
    except Exception as error:
        raise InputError(f"{path} cannot be read: {one_line(error)}") from None


def _reached(address: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        raise UnreachablePlaceError(f"{address} cannot be used: {one_line(error)}") from None
