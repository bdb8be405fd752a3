"""Remembers the content key of files that were decoded before, so that they need not be read again.

A file is taken to be unchanged while its length, time of modification and time of status change
are. The memory is only a short cut: a lost or torn line costs one more reading of one file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

Stamp = tuple[int, int, int]


def stamp(path: str | Path) -> Stamp | None:
    """Length in bytes and times in nanoseconds of a file, `None` if there is none."""
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
        folder: where manifests lie; it must exist.
        root: the folder whose files are remembered.
        kind: part of the manifest's name: what kind of decoding the files have passed.
    """

    def __init__(self, folder: Path, root: Path, kind: str) -> None:
        name = hashlib.sha256(f"{kind}|{root.resolve()}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
        self.path = folder / f"{name}.jsonl"
        self._entries: dict[str, tuple[Stamp, bytes]] = {}
        lines = self._load()
        if lines > 2 * len(self._entries) + 1000:
            self._rewrite()

    def key(self, path: str, current: Stamp | None) -> bytes | None:
        """The content key of a file that has not changed since it was remembered."""
        known = self._entries.get(path)
        return known[1] if known is not None and known[0] == current else None

    def add(self, entries: Iterable[tuple[str, Stamp, bytes]]) -> None:
        """Remember files that have been decoded without fault.

        Raises:
            OSError: the disk is full or fails.
        """
        lines = []
        for path, current, key in entries:
            self._entries[path] = current, key
            lines.append(_line(path, current, key))
        if lines:
            # The leading line break ends a line that a killed process left torn.
            data = ("\n" + "".join(lines)).encode()
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                os.write(descriptor, data)
            finally:
                os.close(descriptor)

    def _load(self) -> int:
        try:
            text = self.path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return 0
        lines = text.splitlines()
        for line in lines:
            try:
                path, size, modified, changed, key = json.loads(line)
                self._entries[path] = (size, modified, changed), bytes.fromhex(key)
            except (ValueError, TypeError):
                continue
        return len(lines)

    def _rewrite(self) -> None:
        """Drop outdated lines; a line that another process adds meanwhile may get lost, harmlessly."""
        temporary = self.path.with_suffix(f".{os.getpid()}.tmp")
        lines = (_line(path, current, key) for path, (current, key) in self._entries.items())
        try:
            temporary.write_text("".join(lines), encoding="utf-8")
            temporary.replace(self.path)
        except OSError:
            temporary.unlink(missing_ok=True)


def _line(path: str, current: Stamp, key: bytes) -> str:
    return json.dumps([path, *current, key.hex()]) + "\n"
