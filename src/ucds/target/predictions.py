"""Clusters found for samples, and the table that holds them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from ucds.data.folders import Scan
from ucds.errors import InputError
from ucds.files import require_writable, write_atomically

UNSORTED = -1
"""Number in place of a cluster, for a sample whose confidence is below the least one asked for."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Predictions:
    """Clusters of samples.

    Attributes:
        ids: id of each sample.
        clusters: ``(n,)`` most probable cluster of each sample; :data:`UNSORTED` where its confidence is
            below the least one asked for.
        confidence: ``(n,)`` confidence in the most probable cluster, see ``docs/consensus.md``.
        names: name of each named cluster by its number.
        n_clusters: number of clusters, K.
        files: image files of the samples; ``None`` for other samples.
    """

    ids: Sequence[str]
    clusters: NDArray[np.int64]
    confidence: NDArray[np.float32]
    names: Mapping[int, str] = field(default_factory=dict)
    n_clusters: int = 0
    files: Scan | None = None

    @property
    def unsorted(self) -> int:
        """Number of samples that are left without a cluster."""
        return int((self.clusters == UNSORTED).sum())

    def save(self, path: str | Path) -> None:
        """Write a table in CSV: sample, cluster and confidence, and name if clusters have names.

        A text that a spreadsheet would take for a formula gets an apostrophe in front.

        Args:
            path: file to write; its name ends in .csv.

        Raises:
            InputError: the name has another suffix.
            NoSpaceError: the disk is full, or the folder is not writable.
        """
        path = Path(path)
        require_csv(path)
        write_atomically(path, self._write)

    def _write(self, file: IO[bytes]) -> None:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["sample", "cluster", "confidence", *(["name"] if self.names else [])])
        writer.writerows(self._rows())
        text.detach()

    def _rows(self) -> Iterator[list[object]]:
        for name, cluster, confidence in zip(self.ids, self.clusters, self.confidence, strict=True):
            named = [_plain(self.names.get(int(cluster), ""))] if self.names else []
            yield [_plain(name), cluster, f"{confidence:.4f}", *named]


def require_csv(path: Path) -> None:
    """Make sure, before any work, that predictions can be written under a name.

    Raises:
        InputError: the name does not end in .csv, or the file cannot be written.
    """
    require_writable(path)
    if path.suffix.lower() != ".csv":
        raise InputError(f"{path} must end in .csv: predictions are written as a table")


def require_probability(min_confidence: float) -> None:
    """Make sure that a least confidence is a probability.

    Raises:
        InputError: it is not.
    """
    if not 0 <= min_confidence <= 1:
        raise InputError(f"--min-confidence is a probability from 0 to 1, not {min_confidence}")


def _plain(text: str) -> str:
    """Put an apostrophe in front of what a spreadsheet would compute."""
    return f"'{text}" if text.startswith(_FORMULA) else text
