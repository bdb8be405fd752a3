"""Finished shards: parquet files that also hold, in their metadata, which samples could not be used."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ucds.bulk.places import Place, open_file
from ucds.bulk.shards import Rows
from ucds.data.tables import load_pyarrow
from ucds.errors import DamagedFileError

_KEY = b"ucds"


@dataclass(frozen=True)
class ShardSummary:
    """What became of one shard.

    Attributes:
        number: number of the shard, from 0.
        samples: number of samples in its file.
        skipped: id of each sample that could not be used, with the reason.
    """

    number: int
    samples: int
    skipped: tuple[tuple[str, str], ...]


def shard_name(number: int) -> str:
    """Return the name of a shard's file."""
    return f"part-{number:06d}.parquet"


def write_shard(place: Place, number: int, rows: Rows) -> ShardSummary:
    """Write the rows of a shard that have no ``problem``, all of the file or none.

    Raises:
        NoSpaceError: the disk is full, or the folder is not writable.
        UnreachablePlaceError: the store refuses.
    """
    arrow, parquet = load_pyarrow()
    good = rows["problem"] == ""
    skipped = tuple(zip(rows["sample"][~good].tolist(), rows["problem"][~good].tolist(), strict=True))
    summary = ShardSummary(number, int(good.sum()), skipped)
    columns = {name: _column(arrow, values[good]) for name, values in rows.items() if name != "problem"}
    table = arrow.table(columns).replace_schema_metadata({_KEY: json.dumps(asdict(summary))})
    file = io.BytesIO()
    # Features hardly become smaller, and ids do.
    plain = [name for name in columns if name != "features"]
    parquet.write_table(
        table, file, row_group_size=max(1, len(good)), compression="snappy", use_dictionary=plain
    )
    place.write(shard_name(number), file.getvalue())
    return summary


def read_summary(place: Place, number: int) -> ShardSummary:
    """Read what became of a finished shard.

    Raises:
        InputError: the file cannot be read.
        DamagedFileError: it is not a shard.
    """
    _, parquet = load_pyarrow()
    path = f"{place}/{shard_name(number)}"
    with open_file(path) as file:
        try:
            told = json.loads(parquet.read_metadata(file).metadata[_KEY])
            skipped = tuple((str(name), str(reason)) for name, reason in told["skipped"])
            return ShardSummary(int(told["number"]), int(told["samples"]), skipped)
        except Exception:  # a damaged file raises nearly anything
            raise DamagedFileError(f"{path} is damaged: delete it, and run the same command again") from None


def _column(arrow: Any, values: np.ndarray[Any, Any]) -> Any:
    if values.ndim == 2:
        return arrow.FixedSizeListArray.from_arrays(arrow.array(values.reshape(-1)), values.shape[1])
    return arrow.array(values.tolist(), arrow.string()) if values.dtype == object else arrow.array(values)
