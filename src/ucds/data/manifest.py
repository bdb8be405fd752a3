"""Remember the content key of files that were decoded before, so that they need not be read again.

A file is taken to be unchanged while its length, time of modification and time of status change
are. The manifest is only a short cut: a lost, torn or damaged line costs one more reading of one file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ucds.errors import NoSpaceError
from ucds.files import parse_json, write_text_atomically

Stamp = tuple[int, int, int]


def stamp(path: str | Path) -> Stamp | None:
    """Return the length in bytes and the times in nanoseconds of a file, ``None`` if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


class Manifest:
    """The content keys of the files below one root, in a text file with a line for each.

    Lines are only ever added, in single writes, so that processes can share the file and be killed
    at any moment. The last line of a path counts.

    Args:
        folder: folder of all manifests; it must exist.
        root: folder of the files.
        kind: name of the kind of decoding that the files have passed; part of the manifest's name.
    """

    def __init__(self, folder: Path, root: Path, kind: str) -> None:
        name = hashlib.sha256(f"{kind}|{root.resolve()}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
        self.path = folder / f"{name}.jsonl"
        self._entries: dict[str, tuple[Stamp, bytes]] = {}
        if self._load() > 2 * len(self._entries) + 1000:
            # Drop outdated lines; a line that another process adds meanwhile may get lost, harmlessly.
            lines = (_line(path, current, key) for path, (current, key) in self._entries.items())
            with suppress(OSError, NoSpaceError):
                write_text_atomically(self.path, "".join(lines))

    def key(self, path: str, current: Stamp | None) -> bytes | None:
        """Return the content key of a file that has not changed since it was remembered."""
        known = self._entries.get(path)
        return known[1] if known is not None and known[0] == current else None

    def add(self, entries: Iterable[tuple[str, Stamp, bytes]]) -> None:
        """Remember files that have been decoded without fault; only in memory if the file may only be read.

        Args:
            entries: path relative to the root, stamp and content key of each file.

        Raises:
            OSError: the disk is full or fails.
        """
        lines = []
        for path, current, key in entries:
            self._entries[path] = current, key
            lines.append(_line(path, current, key))
        if not lines:
            return
        with suppress(PermissionError), self.path.open("ab", buffering=0) as file:  # unbuffered: one write
            # The leading line break ends a line that a killed process left torn.
            file.write(("\n" + "".join(lines)).encode())

    def _load(self) -> int:
        """Read the entries and return the number of lines."""
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return 0
        for line in lines:
            with suppress(ValueError, TypeError):
                path, size, modified, changed, key, check = parse_json(line)
                entry = (size, modified, changed), bytes.fromhex(key)
                if check == _check(path, *entry):
                    self._entries[path] = entry
        return len(lines)


def _line(path: str, current: Stamp, key: bytes) -> str:
    return json.dumps([path, *current, key.hex(), _check(path, current, key)]) + "\n"


def _check(path: str, current: Stamp, key: bytes) -> str:
    return hashlib.sha256(json.dumps([path, *current, key.hex()]).encode()).hexdigest()[:8]
