"""Keeps labels on disk as they arrive, so that a killed client never asks or pays for one twice."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from ucds.errors import InputError, UserError

FORMAT = "ucds-journal/1"
_SUFFIX = ".journal"


def journal_path(out: Path) -> Path:
    """Where the labels lie that will become the label file ``out``."""
    return out.with_name(out.name + _SUFFIX)


class Journal:
    """The labels received so far: a file of JSON lines that only ever grows.

    The first line says which service and model the labels come from, each further line holds the labels
    of one answer under the content keys of the samples. File names are not in it: a renamed sample keeps
    its label, a changed one is asked about again. A line that a crash cut short is dropped.

    Args:
        path: of the file; it is made if it is not there.
        url: of the service.
        model: that answers.
        n_clusters: its ``K``.

    Attributes:
        labels: by content key.

    Raises:
        UserError: the file holds labels of another service or model, is damaged, or is in use.
    """

    def __init__(self, path: Path, *, url: str, model: str, n_clusters: int) -> None:
        self.path = path
        self.labels: dict[bytes, int] = {}
        self._n_clusters = n_clusters
        self._header = {"format": FORMAT, "url": url, "model": model, "n_clusters": n_clusters}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = path.open("a+b")
        try:
            self._lock()
            self._read()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, labels: Mapping[bytes, int]) -> None:
        """Take in the labels of one answer; they are on disk when this returns."""
        self._append({"labels": {key.hex(): label for key, label in labels.items()}})
        self.labels.update(labels)

    def remove(self) -> None:
        """Forget everything, once the labels are safe in their final place."""
        self.path.unlink(missing_ok=True)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"another process is asking for the labels in {self.path}") from None

    def _append(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self) -> None:
        self._file.seek(0)
        lines = self._file.read().splitlines(keepends=True)
        if lines and not _is_whole(lines[-1]):
            self._file.truncate(sum(map(len, lines[:-1])))
            lines.pop()
        if len(lines) <= 1:  # no label yet: nothing that could not be mixed
            self._file.truncate(0)
            return self._append(self._header)
        try:
            header, *entries = [json.loads(line) for line in lines]
            self._check_header(header)
            for entry in entries:
                self.labels.update(self._parse(entry))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, UserError):
                raise
            raise InputError(f"{self.path} is damaged: delete it to ask again") from None

    def _check_header(self, header: dict[str, Any]) -> None:
        if header["format"] != FORMAT:
            raise ValueError
        if header == self._header:
            return
        raise InputError(
            f"{self.path} holds labels of model {header['model']!r} with {header['n_clusters']} clusters "
            f"from {header['url']}, but {self._header['url']} answers as model {self._header['model']!r} "
            f"with {self._header['n_clusters']}: labels of two services do not mix; choose another --out, "
            "or delete that file to begin anew"
        )

    def _parse(self, entry: dict[str, dict[str, int]]) -> dict[bytes, int]:
        labels = {bytes.fromhex(key): label for key, label in entry["labels"].items()}
        if not all(type(n) is int and 0 <= n < self._n_clusters for n in labels.values()):
            raise ValueError
        return labels


def _is_whole(line: bytes) -> bool:
    if not line.endswith(b"\n"):
        return False
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
