"""The records of a benchmark: one line of JSON for each run, appended when it is finished and never changed.

A record names everything on which its figures depend: the cell, all settings of its method, and the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ucds.config import hash_settings
from ucds.errors import DamagedFileError, InputError
from ucds.experiments.grid import Cell
from ucds.experiments.methods import METHODS
from ucds.experiments.scoring import Record
from ucds.files import append_line, lock, parse_json, require_writable
from ucds.received import open_received

FILE = "runs.jsonl"

IDENTITY = (
    *("dataset", "target", "seed", "method", "settings", "backbone", "source_backbone"),
    *("image_size", "subset", "pooled_source", "source_clusters", "start"),
)
"""Entries that identify the cell of a record."""

ORIGIN = ("weights", "source_weights", "data")
"""Entries that name the files a run was made from."""

_NEEDED = (*IDENTITY, *ORIGIN, "accuracy")


def read_records(path: Path) -> list[dict[str, Any]]:
    """Read the records of a benchmark; none if there is no file yet.

    A last line without a line end was left by a crash; it is ignored.
    """
    if not path.exists():
        return []
    # Bytes, because a torn line may end in the middle of a character.
    *lines, _ = path.read_bytes().split(b"\n")
    try:
        return [_read_record(line) for line in lines]
    except ValueError as error:
        raise DamagedFileError(f"{path} holds a line that cannot be read as a record: {error}") from None


def append_record(path: Path, record: Record) -> None:
    """Append a record; it is on the disk when this returns, and earlier records stay readable."""
    path.parent.mkdir(parents=True, exist_ok=True)
    append_line(path, json.dumps(record))


def _read_record(line: bytes) -> dict[str, Any]:
    """Parse a line; a ValueError says which entry of a record the line lacks."""
    found = parse_json(line)
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    missing = [name for name in _NEEDED if name not in found]
    if missing:
        raise ValueError(f"it has no {missing[0]!r}")
    return found


@contextmanager
def lock_records(folder: Path) -> Iterator[None]:
    """Keep other processes from filling the same records meanwhile, because they would repeat runs."""
    require_writable(folder / FILE)
    folder.mkdir(parents=True, exist_ok=True)
    with open_received(folder / ".lock", "a+b") as file:
        if not lock(file):
            raise InputError(f"another process is filling {folder}: wait for it, or end it")
        yield


def describe(cell: Cell) -> dict[str, Any]:
    """Return the entries of a record that identify its cell, without weights and data."""
    condition, settings = cell.condition, cell.settings
    return {
        "dataset": cell.dataset,
        "target": cell.target,
        "seed": cell.seed,
        "method": cell.method,
        "settings": None if settings is None else settings.model_dump(mode="json"),
        "backbone": condition.target.backbone,
        "source_backbone": condition.source.backbone,
        "image_size": condition.target.image_size,
        "subset": condition.subset,
        "pooled_source": condition.pooled_source,
        "source_clusters": condition.source_clusters,
        "start": condition.start,
    }


def identity(described: Record) -> str:
    """Return a text that is equal for all records of one cell, and for the cell's :func:`describe`."""
    found = {name: described[name] for name in IDENTITY} | {"settings": essential_settings(described)}
    return json.dumps(found, sort_keys=True)


def essential_settings(described: Record) -> Mapping[str, Any] | None:
    """Return the settings of a record without those that it could leave out."""
    settings: Mapping[str, Any] | None = described["settings"]
    method = METHODS.get(described["method"])
    if settings is None or method is None or method.settings is None:
        return settings
    return method.settings.essential(settings)


def settings_hash(record: Record) -> str:
    """Return the hash of a record's settings by the present rules; "none" if the record has none."""
    settings = essential_settings(record)
    return "none" if settings is None else hash_settings(settings)


def origin_of(record: Record) -> dict[str, str]:
    """Return the weights and the data that a run was made from."""
    return {name: record[name] for name in ORIGIN}
