"""Keeps labels on disk as they arrive, so that a killed client never asks or pays for one twice."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Literal

from ucds.errors import DamagedFileError, InputError, RefusedError
from ucds.labels.wire import Count, Message, Positive


class _Header(Message):
    format: Literal["ucds-journal/1"] = "ucds-journal/1"
    url: str
    model: str
    n_clusters: Positive


class _Entry(Message):
    labels: dict[str, Count]


def journal_path(out: Path) -> Path:
    """Return the path of the journal that is kept until the label file ``out`` is complete."""
    return out.with_name(f"{out.name}.journal")


class Journal:
    """The labels received so far: a file of JSON lines that only ever grows.

    The first line names the service and model that the labels come from. Each further line holds the labels
    of one answer under the content keys of the samples. File names are not in it: a renamed sample keeps
    its label, a changed one is asked about again. A line that a crash cut short is dropped.

    Args:
        path: file of the journal; it is made if it does not exist.
        url: address of the service.
        model: name of the model that answers.
        n_clusters: number of the model's clusters, K.

    Attributes:
        path: file of the journal.
        labels: labels received so far, by content key.

    Raises:
        InputError: another process uses the file.
        RefusedError: the file holds labels of another service or model.
        DamagedFileError: the file cannot be read as a journal.
    """

    def __init__(self, path: Path, *, url: str, model: str, n_clusters: int) -> None:
        self.path = path
        self.labels: dict[bytes, int] = {}
        self._header = _Header(url=url, model=model, n_clusters=n_clusters)
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
        """Add the labels of one answer; they are on disk when this returns."""
        self._append(_Entry(labels={key.hex(): label for key, label in labels.items()}))
        self.labels.update(labels)

    def remove(self) -> None:
        """Delete the file, once the labels are safe in their final place."""
        self.path.unlink(missing_ok=True)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"another process is asking for the labels in {self.path}") from None

    def _append(self, line: Message) -> None:
        self._file.write(line.model_dump_json().encode() + b"\n")
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
            header = _Header.model_validate_json(lines[0])
            entries = [_Entry.model_validate_json(line).labels for line in lines[1:]]
            self.labels = {bytes.fromhex(key): entry[key] for entry in entries for key in entry}
            if any(label >= header.n_clusters for label in self.labels.values()):
                raise ValueError
        except ValueError:
            raise DamagedFileError(f"{self.path} is damaged: delete it to ask again") from None
        if header != (ours := self._header):
            raise RefusedError(
                f"{self.path} holds labels of model {header.model!r} with {header.n_clusters} clusters from "
                f"{header.url}, but {ours.url} answers as model {ours.model!r} with {ours.n_clusters}: "
                "labels of two services do not mix; choose another --out, or delete that file to begin anew"
            )


def _is_whole(line: bytes) -> bool:
    try:
        return line.endswith(b"\n") and json.loads(line) is not None
    except ValueError:
        return False
