"""Cluster labels as a provider gives them to a client: sample ids, integers, K, and the provider's name.

A label file also has marks of the contents that were labelled, because ids alone do not tell data apart: the
rows of every array are called "0", "1" and so on.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ucds.data.columns import Chosen, find_places, first_repeated, pack
from ucds.errors import DamagedFileError, InputError, UcdsWarning
from ucds.labels.label_file import write_label_file
from ucds.labels.label_reading import read_label_file
from ucds.labels.marks import Marks, marks_of

_AT_A_TIME = 65_536  # samples whose contents are compared at a time


@dataclass(frozen=True)
class ClusterLabels:
    """One hard label for each sample. It holds integers and names: there is no room for a model.

    Attributes:
        ids: ids of the samples, each once.
        labels: ``(n,)`` int64 in ``[0, n_clusters)``, read-only.
        n_clusters: number of the provider's clusters, K.
        provider: name of the model that answered.
        contents: mark of the content of each sample, see :class:`ucds.labels.marks.Marks`; ``None`` if not
            known.
        noise: scale of the noise on the embeddings that were labelled, see :class:`ucds.labels.noise.Noise`;
            ``None`` without noise.

    Raises:
        InputError: lengths differ, an id occurs twice, or a label is out of range.
    """

    ids: Sequence[str]
    labels: NDArray[np.int64]
    n_clusters: int
    provider: str
    contents: Sequence[str] | None = None
    noise: float | None = None

    def __post_init__(self) -> None:
        """Check the labels, and make them read-only."""
        labels = np.asarray(self.labels)
        if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
            raise InputError(f"labels must be a list of integers, not {labels.dtype} of shape {labels.shape}")
        if len(labels) != len(self.ids):
            raise InputError(f"there are {len(self.ids)} sample ids but {len(labels)} labels")
        if self.contents is not None and len(self.contents) != len(self.ids):
            raise InputError(
                f"there are {len(self.ids)} sample ids but {len(self.contents)} marks of contents"
            )
        if not len(labels):
            raise InputError("there are no labels")
        object.__setattr__(self, "ids", pack(self.ids))
        if (twice := first_repeated(self.ids)) is not None:
            raise InputError(f"sample {twice!r} is labelled twice")
        if self.n_clusters < 1 or labels.min() < 0 or labels.max() >= self.n_clusters:
            raise InputError(
                f"labels lie in [{labels.min()}, {labels.max()}], "
                f"but {self.n_clusters} clusters were announced"
            )
        own = labels.astype(np.int64)
        own.flags.writeable = False
        object.__setattr__(self, "labels", own)

    def rows_in(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Find the samples that these labels belong to; the labels must be in the order of the samples.

        Args:
            ids: ids of all samples.

        Returns:
            Positions of the samples that have a label, ascending, one for each label.

        Raises:
            InputError: the labels belong to other samples, or come in another order.
        """
        rows = find_places(self.ids, ids)
        if rows[0] < 0 or (np.diff(rows) <= 0).any():
            raise InputError("the labels belong to other samples, or to the same in another order")
        return rows

    def take(self, chosen: NDArray[np.bool_]) -> ClusterLabels:
        """Return some of the labels, in their order.

        Args:
            chosen: ``(n,)`` whether each label is wanted.
        """
        if chosen.all():
            return self
        rows = np.flatnonzero(chosen)
        contents = None if self.contents is None else Marks(Marks.of(self.contents).rows[rows])
        return ClusterLabels(
            Chosen(self.ids, rows), self.labels[rows], self.n_clusters, self.provider, contents, self.noise
        )

    def align(self, ids: Sequence[str], keys: Sequence[bytes] | None = None) -> ClusterLabels:
        """Return the labels of the given samples, in their order; samples without a label are left out.

        No integer stands for "unknown", so that no reader can take one for a cluster.

        Args:
            ids: ids of the samples.
            keys: content keys of the samples; a label of another content is left out. ``None`` compares ids
                alone.

        Raises:
            InputError: none of the samples has a label, or the labels know one cluster only.

        Warns:
            UcdsWarning: there are labels of further samples or of other contents, or all labels are equal.
        """
        if self.n_clusters == 1:
            raise InputError("labels of one cluster say nothing: ask the provider for a model with more")
        rows = find_places(ids, self.ids)
        found = np.flatnonzero(rows >= 0)
        if not len(found):
            raise InputError(
                f"none of the {len(ids):,} samples has a label (the first is {ids[0]!r}, the labels begin "
                f"with {self.ids[0]!r}): label the same folder that you train on"
            )
        strangers = len(self.ids) - len(found)
        if strangers:
            message = f"{strangers:,} of {len(self.ids):,} labels belong to samples that are not here"
            warnings.warn(message, UcdsWarning, stacklevel=2)
        if keys is not None and self.contents is not None:
            found = found[self._have_same_content(found, rows, marks_of(keys))]
        aligned = self
        if not (len(found) == len(rows) == len(self.ids) and (np.diff(rows) == 1).all()):
            rows = rows[found]
            contents = None if self.contents is None else Marks(Marks.of(self.contents).rows[rows])
            names = ids if len(found) == len(ids) else Chosen(ids, found)
            aligned = ClusterLabels(
                names, self.labels[rows], self.n_clusters, self.provider, contents, self.noise
            )
        labels = aligned.labels
        if len(labels) > 1 and (labels == labels[0]).all():
            message = f"all {len(labels):,} labels are {labels[0]}: they say nothing about the samples"
            warnings.warn(message, UcdsWarning, stacklevel=2)
        return aligned

    def _have_same_content(
        self, found: NDArray[np.int64], rows: NDArray[np.int64], marks: Marks
    ) -> NDArray[np.bool_]:
        """Return for some samples, whose labels are in ``rows``, whether they are what was labelled."""
        assert self.contents is not None
        labelled, same = Marks.of(self.contents), np.empty(len(found), bool)
        for start in range(0, len(found), _AT_A_TIME):
            part = found[start : start + _AT_A_TIME]
            same[start : start + len(part)] = (labelled.rows[rows[part]] == marks.rows[part]).all(1)
        if not same.any():
            raise InputError(
                f"the labels belong to other data: of {len(found):,} samples with these names, none has the "
                "content that was labelled; label the data that you train on"
            )
        if not same.all():
            message = (
                f"{int((~same).sum()):,} of {len(found):,} samples have changed since they were "
                "labelled; their labels are left out"
            )
            warnings.warn(message, UcdsWarning, stacklevel=3)
        return same

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that change with any id or label."""
        digest = hashlib.sha256()
        for place, name in enumerate(self.ids):
            digest.update(f"{chr(0) if place else ''}{name}".encode("utf-8", "surrogatepass"))
        digest.update(self.labels.data)
        return digest.hexdigest()[:12]

    def save(self, path: str | Path) -> None:
        """Write a label file: JSON, so that a person can read all of it before handing it over."""
        write_label_file(
            Path(path), self.provider, self.n_clusters, self.ids, self.labels, self.contents, self.noise
        )

    @classmethod
    def load(cls, path: str | Path) -> ClusterLabels:
        """Read a label file.

        Raises:
            InputError: the file cannot be read.
            DamagedFileError: the file holds anything but labels.
        """
        content = read_label_file(path)
        try:
            content.check_digest()
            form = content.form
            return cls(
                content.ids, content.labels, form.n_clusters, form.provider, content.contents, form.noise
            )
        except InputError as error:
            raise DamagedFileError(f"{path} is not a usable label file: {error}") from None
