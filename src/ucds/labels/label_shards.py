"""Reads cluster labels from the parquet shards that bulk work writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from ucds.data.tables import Columns, read_parquet
from ucds.errors import InputError
from ucds.files import read_json

LABELS = "labels"
"""Kind of these shards."""


def read_label_shards(folder: Path) -> dict[str, Any]:
    """Read a folder of label shards.

    Returns:
        Arguments of :class:`ucds.ClusterLabels`, with whole content keys in hexadecimal digits.

    Raises:
        InputError: the folder holds no labels, or not all of them yet.
        DamagedFileError: its description is damaged.
    """
    job = read_json(folder / "job.json", _Job, "description of label shards")
    parts: list[Columns] = []
    for number in range(job.shards):
        path = folder / f"part-{number:06d}.parquet"
        if not path.is_file():
            raise InputError(f"{folder} does not hold all labels yet: run the same `ucds label` again")
        parts.append(read_parquet(path))
    return {
        "ids": tuple(name for part in parts for name in part["sample"]),
        "labels": np.concatenate([np.asarray(part["label"], np.int64) for part in parts]),
        "n_clusters": job.n_clusters,
        "provider": job.provider,
        "contents": tuple(key for part in parts for key in part["content"]),
    }


class _Job(BaseModel):
    """What is read of the file ``job.json``."""

    format: Literal["ucds-shards/1"]
    what: Literal["labels"]
    shards: int = Field(ge=1)
    n_clusters: int
    provider: str
