"""Cluster labels as a provider gives them to a client: sample ids, integers, K, and the provider's name.

A label file also has marks of the contents that were labelled, because ids alone do not tell data apart: the
rows of every array are called "0", "1" and so on.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ucds.errors import DamagedFileError, InputError, UcdsWarning
from ucds.files import digest_of, read_json, write_text_atomically
from ucds.labels.label_shards import read_label_shards
from ucds.labels.wire import MOST_CLUSTERS, Clusters, Digest, Message, canonical_json

FORMAT = "ucds-labels/2"
_MARK_BYTES = 8


def marks_of(keys: Sequence[bytes]) -> tuple[str, ...]:
    """Return the mark of each content key: its first 8 bytes in hexadecimal digits."""
    return tuple(key[:_MARK_BYTES].hex() for key in keys)


@dataclass(frozen=True)
class ClusterLabels:
    """One hard label for each sample. It holds integers and names: there is no room for a model.

    Attributes:
        ids: ids of the samples, each once.
        labels: ``(n,)`` int64 in ``[0, n_clusters)``, read-only.
        n_clusters: number of the provider's clusters, K.
        provider: name of the model that answered.
        contents: mark of the content of each sample, see :func:`marks_of`; ``None`` if it is not known.

    Raises:
        InputError: lengths differ, an id occurs twice, or a label is out of range.
    """

    ids: tuple[str, ...]
    labels: NDArray[np.int64]
    n_clusters: int
    provider: str
    contents: tuple[str, ...] | None = None

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
        if len(set(self.ids)) != len(self.ids):
            twice = next(name for name, count in Counter(self.ids).items() if count > 1)
            raise InputError(f"sample {twice!r} is labelled twice")
        if self.n_clusters < 1 or labels.min() < 0 or labels.max() >= self.n_clusters:
            raise InputError(
                f"labels lie in [{labels.min()}, {labels.max()}], "
                f"but {self.n_clusters} clusters were announced"
            )
        object.__setattr__(self, "ids", tuple(self.ids))
        own = labels.astype(np.int64)
        own.flags.writeable = False
        object.__setattr__(self, "labels", own)

    def rows_in(self, ids: tuple[str, ...]) -> NDArray[np.int64]:
        """Find the samples that these labels belong to; the labels must be in the order of the samples.

        Args:
            ids: ids of all samples.

        Returns:
            Positions of the samples that have a label, ascending, one for each label.

        Raises:
            InputError: the labels belong to other samples, or come in another order.
        """
        labelled = set(self.ids)
        rows = [i for i, name in enumerate(ids) if name in labelled]
        if self.ids != tuple(ids[i] for i in rows):
            raise InputError("the labels belong to other samples, or to the same in another order")
        return np.array(rows, dtype=np.int64)

    def align(self, ids: tuple[str, ...], keys: Sequence[bytes] | None = None) -> ClusterLabels:
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
        position = {name: i for i, name in enumerate(self.ids)}
        found = tuple(name for name in ids if name in position)
        if not found:
            raise InputError(
                f"none of the {len(ids):,} samples has a label (the first is {ids[0]!r}, the labels begin "
                f"with {self.ids[0]!r}): label the same folder that you train on"
            )
        strangers = len(self.ids) - len(found)
        if strangers:
            message = f"{strangers:,} of {len(self.ids):,} labels belong to samples that are not here"
            warnings.warn(message, UcdsWarning, stacklevel=2)
        if keys is not None and self.contents is not None:
            found = self._of_same_content(found, dict(zip(ids, marks_of(keys), strict=True)), position)
        rows = np.array([position[name] for name in found], dtype=np.int64)
        labels = self.labels[rows]
        if len(labels) > 1 and (labels == labels[0]).all():
            message = f"all {len(labels):,} labels are {labels[0]}: they say nothing about the samples"
            warnings.warn(message, UcdsWarning, stacklevel=2)
        contents = None if self.contents is None else tuple(self.contents[row] for row in rows)
        return ClusterLabels(found, labels, self.n_clusters, self.provider, contents)

    def _of_same_content(
        self, names: tuple[str, ...], marks: dict[str, str], position: dict[str, int]
    ) -> tuple[str, ...]:
        assert self.contents is not None
        same = tuple(name for name in names if marks[name] == self.contents[position[name]])
        if not same:
            raise InputError(
                f"the labels belong to other data: of {len(names):,} samples with these names, none has the "
                "content that was labelled; label the data that you train on"
            )
        if len(same) < len(names):
            message = (
                f"{len(names) - len(same):,} of {len(names):,} samples have changed since they were "
                "labelled; their labels are left out"
            )
            warnings.warn(message, UcdsWarning, stacklevel=3)
        return same

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that change with any id or label."""
        digest = hashlib.sha256("\0".join(self.ids).encode("utf-8", "surrogatepass"))
        digest.update(self.labels.tobytes())
        return digest.hexdigest()[:12]

    def save(self, path: str | Path) -> None:
        """Write a label file: JSON, so that a person can read all of it before handing it over."""
        content = {"format": FORMAT, "provider": self.provider, "n_clusters": self.n_clusters}
        content |= {"ids": list(self.ids), "labels": self.labels.tolist()}
        content |= {} if self.contents is None else {"contents": list(self.contents)}
        content |= {"digest": digest_of(canonical_json(content))}
        write_text_atomically(Path(path), json.dumps(content, ensure_ascii=False, indent=0) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> ClusterLabels:
        """Read a label file, or a folder of label shards.

        Raises:
            InputError: the file cannot be read, or the folder does not hold all labels.
            DamagedFileError: the file holds anything but labels.
        """
        if Path(path).is_dir():
            told = read_label_shards(Path(path))
            marks = tuple(key[: 2 * _MARK_BYTES] for key in told.pop("contents"))
            return cls(**told, contents=marks)
        content = read_json(path, _LabelFile, "label file")
        try:
            content.check_digest()
            labels = np.array(content.labels, dtype=np.int64)
            contents = None if content.contents is None else tuple(content.contents)
            return cls(tuple(content.ids), labels, content.n_clusters, content.provider, contents)
        except InputError as error:
            raise DamagedFileError(f"{path} is not a usable label file: {error}") from None


class _LabelFile(Message):
    """A label file as it is stored. Files of version 1, which other programs may write, have no digest."""

    format: Literal["ucds-labels/1", "ucds-labels/2"]
    provider: str
    n_clusters: Clusters
    ids: list[str]
    labels: list[Annotated[int, Field(ge=-1, le=MOST_CLUSTERS)]]
    contents: list[Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]] | None = None
    digest: Digest | None = None

    def check_digest(self) -> None:
        """Make sure that the file is as it was written."""
        if self.format != FORMAT and self.digest is None:
            return
        if self.digest != digest_of(canonical_json(self.model_dump(exclude={"digest"}, exclude_none=True))):
            raise InputError("its digest does not match, so it was changed after it was written")
