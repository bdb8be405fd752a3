"""Remembers the content keys of files that were decoded before, so that they need not be read again.

A file is taken to be unchanged while its length, time of modification and time of status change are. What is
remembered is only a short cut: where it is lost, files are read once more.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from ucds.errors import DamagedFileError, NoSpaceError
from ucds.files import read_sealed, write_sealed

Stamp = tuple[int, int, int]
_SEAL = "ucds-known-files/1"


def stamp(path: str | Path) -> Stamp | None:
    """Return the length in bytes and the times in nanoseconds of a file, ``None`` if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116  (strings: much faster than paths on many files)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


class KnownFiles:
    """The content keys of the files below one root.

    Processes that share them save one after the other; what one of them overwrites is only read again.

    Args:
        folder: folder of all such files.
        root: folder of the files.
        kind: name of the kind of decoding that the files have passed.
    """

    def __init__(self, folder: Path, root: Path, kind: str) -> None:
        name = hashlib.sha256(f"{kind}|{root.resolve()}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
        self.path = folder / f"{name}.known"
        self._known, self._fresh = self._load(), dict[str, tuple[Stamp, bytes]]()

    def key(self, path: str, current: Stamp | None) -> bytes | None:
        """Return the content key of a file that has not changed since it was remembered."""
        known = self._known.get(path)
        return known[1] if known is not None and known[0] == current else None

    def add(self, path: str, current: Stamp, key: bytes) -> None:
        """Remember a file that has been decoded without fault."""
        self._fresh[path] = current, key

    def save(self) -> None:
        """Write what is new, if the file can be written."""
        if not self._fresh:
            return
        self._known = self._load() | self._fresh
        self._fresh = {}
        entries = {path: [*current, key.hex()] for path, (current, key) in self._known.items()}
        with suppress(NoSpaceError, OSError):
            write_sealed(self.path, _SEAL, json.dumps(entries).encode())

    def _load(self) -> dict[str, tuple[Stamp, bytes]]:
        try:
            entries = json.loads(read_sealed(self.path, _SEAL))
        except (OSError, DamagedFileError):
            return {}
        return {path: (tuple(current), bytes.fromhex(key)) for path, (*current, key) in entries.items()}
