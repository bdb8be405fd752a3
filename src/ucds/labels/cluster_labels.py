"""Cluster labels as they cross the wall: sample ids, integers, K, and who gave them."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ucds.errors import UcdsWarning, UserError
from ucds.files import write_text_atomically

FORMAT = "ucds-labels/1"
_FIELDS = frozenset({"format", "provider", "n_clusters", "ids", "labels"})
_MOST_CLUSTERS = 100_000
"""A label file that announces more is refused: its reader would reserve memory for every one of them."""


@dataclass(frozen=True)
class ClusterLabels:
    """One hard label for each sample. It holds integers and names: there is no room for a model.

    Attributes:
        ids: of the samples, each once.
        labels: ``(n,)`` int64 in ``[0, n_clusters)``, read-only.
        n_clusters: the provider's ``K``.
        provider: name of the model that answered.

    Raises:
        UserError: lengths differ, an id occurs twice, or a label is out of range.
    """

    ids: tuple[str, ...]
    labels: NDArray[np.int64]
    n_clusters: int
    provider: str

    def __post_init__(self) -> None:
        """Refuse what cannot be labels, and make the labels read-only."""
        labels = np.asarray(self.labels)
        if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
            raise UserError(f"labels must be a list of integers, not {labels.dtype} of shape {labels.shape}")
        if len(labels) != len(self.ids):
            raise UserError(f"there are {len(self.ids)} sample ids but {len(labels)} labels")
        if not len(labels):
            raise UserError("there are no labels")
        if len(set(self.ids)) != len(self.ids):
            twice = next(name for name, count in Counter(self.ids).items() if count > 1)
            raise UserError(f"sample {twice!r} is labelled twice")
        if self.n_clusters < 1 or labels.min() < 0 or labels.max() >= self.n_clusters:
            raise UserError(
                f"labels lie in [{labels.min()}, {labels.max()}], "
                f"but {self.n_clusters} clusters were announced"
            )
        object.__setattr__(self, "ids", tuple(self.ids))
        own = labels.astype(np.int64)
        own.flags.writeable = False
        object.__setattr__(self, "labels", own)

    def check_matches(self, ids: tuple[str, ...], n_clusters: int) -> NDArray[np.int64]:
        """Make sure that these labels belong to those samples, in their order; some may have none.

        Returns:
            Positions in ``ids`` of the samples that have a label, ascending, one for each label.

        Raises:
            UserError: they do not match, or the model has another number of clusters.
        """
        if self.n_clusters != n_clusters:
            raise UserError(f"the labels have {self.n_clusters} clusters, but the model has {n_clusters}")
        labelled = set(self.ids)
        rows = [i for i, name in enumerate(ids) if name in labelled]
        if self.ids != tuple(ids[i] for i in rows):
            raise UserError("the labels belong to other samples, or to the same in another order")
        return np.array(rows, dtype=np.int64)

    def align(self, ids: tuple[str, ...]) -> ClusterLabels:
        """Return the labels of those of these samples that have one, in their order.

        A label is there or it is not: no integer stands for "unknown", so that whoever reads labels
        cannot take it for a cluster.

        Raises:
            UserError: none of the samples has a label.

        Warns:
            UcdsWarning: there are labels of samples that are not among these.
        """
        position = {name: i for i, name in enumerate(self.ids)}
        found = tuple(name for name in ids if name in position)
        if not found:
            raise UserError(
                f"none of the {len(ids):,} samples has a label (the first is {ids[0]!r}, the labels begin "
                f"with {self.ids[0]!r}): label the same folder that you train on"
            )
        strangers = len(self.ids) - len(found)
        if strangers:
            message = f"{strangers:,} of {len(self.ids):,} labels belong to samples that are not here"
            warnings.warn(message, UcdsWarning, stacklevel=2)
        rows = np.array([position[name] for name in found], dtype=np.int64)
        return ClusterLabels(found, self.labels[rows], self.n_clusters, self.provider)

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that change with any id or label."""
        digest = hashlib.sha256("\0".join(self.ids).encode("utf-8", "surrogatepass"))
        digest.update(self.labels.tobytes())
        return digest.hexdigest()[:12]

    def save(self, path: Path) -> None:
        """Write a label file: JSON, so that every word of it can be read before it is handed over."""
        content = {
            "format": FORMAT,
            "provider": self.provider,
            "n_clusters": self.n_clusters,
            "ids": list(self.ids),
            "labels": self.labels.tolist(),
        }
        write_text_atomically(path, json.dumps(content, ensure_ascii=False, indent=0) + "\n")

    @classmethod
    def load(cls, path: Path) -> ClusterLabels:
        """Read a label file.

        Raises:
            UserError: the file cannot be read, or holds anything but labels.
        """
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UserError(f"cannot read the label file {path}: {error.strerror}") from None
        except (ValueError, RecursionError):
            raise UserError(f"{path} is not a label file: it is not JSON") from None
        try:
            return cls._from_content(content)
        except UserError as error:
            raise UserError(f"{path} is not a usable label file: {error}") from None

    @classmethod
    def _from_content(cls, content: Any) -> ClusterLabels:
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise UserError(f"its format is not {FORMAT}")
        if content.keys() != _FIELDS:
            differing = sorted(content.keys() ^ _FIELDS)
            raise UserError(f"unexpected or missing fields: {', '.join(map(str, differing))}")
        ids, labels = content["ids"], content["labels"]
        if not isinstance(ids, list) or not all(isinstance(name, str) for name in ids):
            raise UserError("ids must be a list of texts")
        if not isinstance(labels, list) or not all(type(label) is int for label in labels):
            raise UserError("labels must be a list of integers")
        if type(content["n_clusters"]) is not int or not isinstance(content["provider"], str):
            raise UserError("n_clusters must be an integer and provider a text")
        if not 1 <= content["n_clusters"] <= _MOST_CLUSTERS:
            raise UserError(f"n_clusters must lie between 1 and {_MOST_CLUSTERS:,}")
        if not all(-1 <= label <= content["n_clusters"] for label in labels):
            raise UserError(f"a label is far out of range for {content['n_clusters']} clusters")
        return cls(tuple(ids), np.array(labels, dtype=np.int64), content["n_clusters"], content["provider"])
