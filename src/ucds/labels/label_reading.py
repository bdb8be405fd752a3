"""Reads the file of cluster labels piece by piece: as Python objects, a label would take some 300 bytes.

The files that :func:`ucds.labels.label_file.write_label_file` writes have one entry of a column in each line.
Such a file is cut at ends of lines into files of the same form, each with some entries of one column, and
each is checked like any label file. A file that is laid out otherwise is one piece.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ucds.data.columns import RowIds, Texts
from ucds.errors import InputError
from ucds.files import read_json
from ucds.labels.label_file import FORMAT, LabelFile, digest_of_fields
from ucds.labels.marks import MARK_BYTES, Marks

_COLUMNS = ("ids", "labels", "contents")
_PIECE = 2**18  # bytes that are parsed at a time
_LONGEST_FRAME = 2**16  # bytes of a file beside its columns, which every piece repeats


@dataclass(frozen=True)
class StoredLabels:
    """Contents of a label file.

    Attributes:
        form: the file without the entries of its columns.
        ids: id of each sample.
        labels: ``(n,)`` cluster of each sample.
        contents: mark of the content of each sample; ``None`` if the file has none.
    """

    form: LabelFile
    ids: Sequence[str]
    labels: npt.NDArray[np.int64]
    contents: Marks | None

    def check_digest(self) -> None:
        """Make sure that the file is as it was written.

        Raises:
            InputError: its digest does not match.
        """
        if self.form.format != FORMAT and self.form.digest is None:
            return
        columns = {"ids": self.ids, "labels": self.labels, "contents": self.contents}
        values = dict(self.form) | columns
        names = sorted(self.form.model_fields_set - {"digest"})
        if self.form.digest != digest_of_fields({name: values[name] for name in names}):
            raise InputError("its digest does not match, so it was changed after it was written")


def read_label_file(path: str | Path) -> StoredLabels:
    """Read a label file; its digest is not compared yet.

    Raises:
        InputError: the file cannot be read.
        DamagedFileError: the file holds anything but labels.
    """
    path = Path(path)
    if path.is_file():
        with suppress(OSError, ValueError):  # of another layout, or no label file: the whole file says why
            return _read_in_pieces(path)
    entries = _Entries()
    entries.add(read_json(path, LabelFile, "label file"))
    return entries.joined()


def _read_in_pieces(path: Path) -> StoredLabels:
    """Read a label file piece by piece.

    Raises:
        ValueError: the file is laid out otherwise, or holds anything but labels.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        places = _places_of_columns(data)
        starts, ends = [0, *(end for _, end in places)], [*(start for start, _ in places), len(data)]
        if sum(ends) - sum(starts) > _LONGEST_FRAME:
            raise ValueError("too much beside the columns")
        around = [data[start:end] for start, end in zip(starts, ends, strict=True)]
        frame = LabelFile.model_validate_json(b"".join(around))
        if any(getattr(frame, name) for name in _COLUMNS):
            raise ValueError("a column in one line")
        entries = _Entries()
        for number, (start, end) in enumerate(places):
            before, after = b"".join(around[: number + 1]), b"".join(around[number + 1 :])
            for piece in _pieces_of_column(data, start, end):
                part = LabelFile.model_validate_json(before + piece + after)
                _require_one_column(part, frame)
                entries.add(part)
    return entries.joined()


def _places_of_columns(data: mmap.mmap) -> list[tuple[int, int]]:
    """Find lists that begin at the end of a line and end at the beginning of one, as positions in a file.

    Text in quotes has no ends of lines in JSON, so that these brackets are never part of an entry.
    """
    places: list[tuple[int, int]] = []
    end = 0
    while (start := data.find(b"[\n", end) + 2) > 1:
        end = data.find(b"\n]", start)
        if end < 0 or len(places) == len(_COLUMNS):
            raise ValueError("lists of another layout")
        places.append((start, end))
    return places


def _pieces_of_column(data: mmap.mmap, start: int, end: int) -> Iterator[bytes]:
    """Return an iterator over the entries between two positions, cut at commas that end a line."""
    while start >= 0:
        comma = data.find(b",\n", min(start + _PIECE, end), end)
        piece = data[start : end if comma < 0 else comma]
        if not piece.strip():
            raise ValueError("a comma without an entry after it")
        yield piece
        start = comma if comma < 0 else comma + 2


def _require_one_column(part: LabelFile, frame: LabelFile) -> None:
    """Make sure that a piece held entries of one column and nothing else."""
    filled = [name for name in _COLUMNS if getattr(part, name) != getattr(frame, name)]
    if len(filled) != 1 or part.model_copy(update={filled[0]: getattr(frame, filled[0])}) != frame:
        raise ValueError("a piece of another layout")


class _Entries:
    """Entries of the columns of a label file, gathered in arrays part by part."""

    def __init__(self) -> None:
        self._form: LabelFile | None = None
        self._ids: list[Texts] = []
        self._labels: list[npt.NDArray[np.int32]] = []
        self._contents: list[bytes] = []
        self._count, self._numbered = 0, True

    def add(self, part: LabelFile) -> None:
        """Add the entries of a part of the file, which may be all of it."""
        self._form = self._form or part.model_copy(update={"ids": [], "labels": []})
        numbers = map(str, range(self._count, self._count + len(part.ids)))
        self._numbered = self._numbered and part.ids == list(numbers)
        self._count += len(part.ids)
        self._ids.append(Texts(part.ids))
        self._labels.append(np.array(part.labels, np.int32))
        self._contents.append(bytes.fromhex("".join(part.contents or ())))

    def joined(self) -> StoredLabels:
        """Return all entries."""
        form = self._form
        if form is None:
            raise ValueError("no columns")
        ids = RowIds(self._count) if self._numbered else Texts.joined(self._ids)
        marks = np.frombuffer(b"".join(self._contents), np.uint8).reshape(-1, MARK_BYTES)
        contents = None if form.contents is None else Marks(marks)
        return StoredLabels(form, ids, np.concatenate(self._labels, dtype=np.int64), contents)
