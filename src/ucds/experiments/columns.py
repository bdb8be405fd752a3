"""The columns that a table can show besides accuracy by target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A number that a record gives.

    Attributes:
        title: name in tables.
        of: function from a record to the number; ``None`` where the record has none.
        digits: number of digits after the point.
    """

    title: str
    of: Callable[[Record], float | None]
    digits: int = 1


def _entry(key: str, scale: float = 1.0) -> Callable[[Record], float | None]:
    return lambda record: scale * record[key] if record.get(key) else None


def _seconds_per_batch(record: Record) -> float | None:
    """Return the seconds for 64 images in training: the paper's step, whatever the method's batch is."""
    rate = record.get("images_per_second")
    return 64 / rate if rate else None


COLUMNS = {
    "accuracy": Column("accuracy", _entry("accuracy", 100)),
    "nmi": Column("NMI", _entry("nmi", 100)),
    "ari": Column("ARI", _entry("ari", 100)),
    "oracle_accuracy": Column("oracle accuracy (not used)", _entry("oracle_accuracy", 100)),
    "proportions_l1": Column("L1 of proportions", _entry("proportions_l1"), 2),
    "uniform_l1": Column("L1 of uniform", _entry("uniform_l1"), 2),
    "cluster_sizes_l1": Column("L1 of cluster sizes", _entry("cluster_sizes_l1"), 2),
    "estimate_error_l1": Column("L1 of proportions from cluster sizes", _entry("estimate_error_l1"), 2),
    "seconds": Column("seconds", _entry("seconds")),
    "seconds_per_batch": Column("seconds per 64 images", _seconds_per_batch, 3),
    "images_per_second": Column("images/s", _entry("images_per_second"), 0),
    "parameters": Column("million parameters", _entry("parameters", 1e-6), 2),
    "peak_memory_mib": Column("peak MiB", _entry("peak_memory_mib"), 0),
    "peak_device_memory_mib": Column("peak MiB of the GPU", _entry("peak_device_memory_mib"), 0),
}
"""Columns by the name that benchmarks use."""
