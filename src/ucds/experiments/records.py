"""The records of a benchmark: one line of JSON a run, appended when it is finished and never changed.

A record holds all that its figures depend on. Entries that are younger than a record had, when it was
made, the values that :data:`ORIGINAL` and the settings' defaults give.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ucds.config import RECIPE_SETTINGS, Config
from ucds.errors import UserError
from ucds.experiments.grid import Cell
from ucds.experiments.measures import Record
from ucds.experiments.methods import METHODS, settings_of

FILE = "runs.jsonl"

ORIGINAL: Mapping[str, Any] = {
    **{"subset": "full", "pooled_source": False, "start": "pre-trained"},
    **{"source_clusters": None, "image_size": None},
}

ORIGIN = ("weights", "source_weights", "data")
"""Entries that say which files a run was made from."""


def read_records(path: Path) -> list[dict[str, Any]]:
    """Read the records of a benchmark; none if there is no file yet.

    A last line without an end is what a crash left of a record never finished; it is passed over.

    Raises:
        UserError: a finished line is not a record.
    """
    if not path.exists():
        return []
    # Bytes, because a torn line may end in the middle of a character.
    *lines, _ = path.read_bytes().split(b"\n")
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise UserError(f"{path} holds a line that is no record: {error}") from None


def append_records(path: Path, records: Sequence[Record]) -> None:
    """Append records, and return when they are on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.truncate(_finished_bytes(path))
        for record in records:
            file.write(json.dumps(record).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _finished_bytes(path: Path) -> int:
    """Length up to the last end of a line: what a crash left after it is no record."""
    return path.read_bytes().rfind(b"\n") + 1


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other processes from filling the same records meanwhile: they would repeat runs.

    Raises:
        UserError: one is at it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"another process is filling {folder}: wait for it, or end it") from None
        yield
    finally:
        os.close(handle)


def describe(cell: Cell, baselines: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What a record says of its cell: all that tells it from others, but for the files it was made from."""
    condition = cell.condition
    return {
        "dataset": cell.dataset,
        "target": cell.target,
        "seed": cell.seed,
        "method": cell.method,
        "config": condition.config.model_dump(mode="json"),
        "baseline": settings_of(cell.method, baselines),
        "backbone": condition.target.name,
        "source_backbone": condition.source.name,
        "random": condition.target.random,
        "image_size": condition.target.image_size,
        "subset": condition.subset,
        "pooled_source": condition.pooled_source,
        "source_clusters": condition.source_clusters,
        "start": condition.start,
    }


def identity_of(cell: Cell, baselines: Mapping[str, Mapping[str, Any]]) -> str:
    """What tells the records of this cell from those of others."""
    return _as_text(describe(cell, baselines))


def identity_in(record: Record, dataset: str) -> str:
    """The same of a record; its data set is ``dataset`` if it is too old to name one."""
    values: dict[str, Any] = {"dataset": dataset, **ORIGINAL, "random": False, "baseline": None, **record}
    values.setdefault("source_backbone", record["backbone"])
    values["config"] = Config().model_dump(mode="json") | dict(record["config"])
    return _as_text({name: values[name] for name in _IDENTITY})


_IDENTITY = (
    "dataset",
    "target",
    "seed",
    "method",
    "config",
    "baseline",
    "backbone",
    "source_backbone",
    "random",
    "image_size",
    "subset",
    "pooled_source",
    "source_clusters",
    "start",
)


def origin_of(record: Record) -> dict[str, str]:
    """Which weights and data a run was made from."""
    return {
        "weights": record["weights"],
        "source_weights": record.get("source_weights", record["weights"]),
        "data": record["data"],
    }


def _as_text(values: Mapping[str, Any]) -> str:
    """The entries of an identity, without settings that the method does not look at."""
    method = METHODS.get(values["method"])
    unseen = frozenset() if method is None or method.recipe else RECIPE_SETTINGS
    config = {name: value for name, value in values["config"].items() if name not in unseen}
    return json.dumps({**values, "config": config}, sort_keys=True)
