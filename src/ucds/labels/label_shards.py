"""Reads cluster labels from the parquet shards that bulk work writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from ucds.data.content import KEY_BYTES
from ucds.data.tables import Column, Columns, read_parquet
from ucds.errors import DamagedFileError, InputError
from ucds.files import read_json

LABELS = "labels"
"""Kind of these shards."""

_KEY = re.compile(f"[0-9a-f]{{{2 * KEY_BYTES}}}")


def read_label_shards(folder: Path) -> dict[str, Any]:
    """Read a folder of label shards.

    Returns:
        Arguments of :class:`ucds.ClusterLabels`, with whole content keys in hexadecimal digits.

    Raises:
        InputError: the folder holds no labels, or not all of them yet; or a shard is not a parquet file.
        DamagedFileError: the description is damaged, or a shard holds anything but labels.
    """
    job = read_json(folder / "job.json", _Job, "description of label shards")
    parts: list[Columns] = []
    for number in range(job.shards):
        path = folder / f"part-{number:06d}.parquet"
        if not path.is_file():
            raise InputError(f"{folder} does not hold all labels yet: run the same `ucds label` again")
        parts.append(_read_part(path))
    return {
        "ids": tuple(name for part in parts for name in part["sample"]),
        "labels": np.concatenate([np.asarray(part["label"], np.int64) for part in parts]),
        "n_clusters": job.n_clusters,
        "provider": job.provider,
        "contents": tuple(key for part in parts for key in part["content"]),
    }


def _read_part(path: Path) -> Columns:
    """Read the columns of one shard, which may have no rows.

    Raises:
        InputError: it is not a parquet file.
        DamagedFileError: a column is missing, or holds something else.
    """
    columns = read_parquet(path)
    for name, (is_right, kind) in _COLUMNS.items():
        if name not in columns:
            raise DamagedFileError(f"{path} is not a usable label shard: it has no column {name!r}")
        # Columns without rows are read as numbers, whatever their type.
        if len(columns[name]) and not is_right(columns[name]):
            raise DamagedFileError(
                f"{path} is not a usable label shard: its column {name!r} must hold {kind}"
            )
    return columns


def _are_texts(column: Column) -> bool:
    return all(isinstance(value, str) for value in column)


def _are_keys(column: Column) -> bool:
    return _are_texts(column) and all(map(_KEY.fullmatch, column))


def _are_integers(column: Column) -> bool:
    """Return whether a column is one of integers; where values are missing, they are read as fractions."""
    return isinstance(column, np.ndarray) and column.ndim == 1 and np.issubdtype(column.dtype, np.integer)


_COLUMNS = {
    "sample": (_are_texts, "texts"),
    "content": (_are_keys, f"{2 * KEY_BYTES} hexadecimal digits for each sample"),
    "label": (_are_integers, "integers"),
}


class _Job(BaseModel):
    """What is read of the file ``job.json``."""

    format: Literal["ucds-shards/1"]
    what: Literal["labels"]
    shards: int = Field(ge=1)
    n_clusters: int
    provider: str
