"""What a guarantee of differential privacy protects: single images, or all images of a person."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ucds.data.samples import Samples
from ucds.errors import InputError
from ucds.math.privacy import PrivacyClaim, ProtectedUnit

LARGEST_DELTA = 1e-5
"""Delta where none is given, unless one over the number of images or persons is smaller."""


def read_groups(path: Path) -> dict[str, str]:
    """Read the person of each image from a CSV file with the columns ``id`` and ``group``.

    Args:
        path: file; an id is the path of an image below the folder of the domains.

    Raises:
        InputError: the file cannot be read, a column is missing, or an id has two groups.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"the groups {path} cannot be read: {error}") from None
    groups: dict[str, str] = {}
    for number, row in enumerate(rows, 2):
        name, group = row.get("id"), row.get("group")
        if not name or not group:
            raise InputError(f"line {number} of {path} has no id or no group: the columns are id and group")
        if groups.setdefault(name, group) != group:
            raise InputError(f"{path} gives {name!r} two groups: {groups[name]!r} and {group!r}")
    return groups


def number_units(samples: Samples, groups: Mapping[str, str] | None) -> NDArray[np.int64]:
    """Number what is protected: ``(n,)`` number of each sample's person, or of its content.

    Copies of one image are one unit, because an image that counts twice would be protected half as well.

    Args:
        samples: source samples.
        groups: person of each sample by id; ``None`` protects single images.

    Raises:
        InputError: a sample has no group.
    """
    names: list[str] | list[bytes] = list(samples.keys)
    if groups is not None:
        missing = [name for name in samples.ids if name not in groups]
        if missing:
            raise InputError(
                f"--dp-group has no group for {len(missing):,} of {len(samples):,} images, such as "
                f"{missing[0]!r}: without one for all, somebody would be protected less than is said"
            )
        names = [groups[name] for name in samples.ids]
    return np.asarray(np.unique(np.array(names, dtype=object), return_inverse=True)[1], dtype=np.int64)


def weights_of(units: NDArray[np.int64]) -> NDArray[np.float64]:
    """Compute the weight ``(n,)`` of each sample: those of one unit sum to 1."""
    return np.asarray(1.0 / np.bincount(units)[units])


def make_claim(
    epsilon: float, delta: float | None, units: NDArray[np.int64], unit: ProtectedUnit
) -> PrivacyClaim:
    """Return the guarantee that a run is asked for.

    Args:
        epsilon: bound on the privacy loss.
        delta: probability with which it may fail; ``None`` chooses :data:`LARGEST_DELTA` or less.
        units: ``(n,)`` number of the unit of each sample.
        unit: kind of the units.

    Raises:
        InputError: delta is larger than one over the number of units.
    """
    count = int(units.max()) + 1
    if delta is None:
        delta = min(LARGEST_DELTA, 1 / count)
    if delta > 1 / count:
        raise InputError(
            f"delta {delta:g} is larger than 1 / {count:,}, one over the number of protected {unit}s: such a "
            "guarantee lets a model give one of them away; choose a smaller dp_delta"
        )
    return PrivacyClaim(epsilon, delta, unit)
