"""Cluster labels as a provider gives them to a client, and the label file.

Labels are sample ids, integers, K, and the provider's name. They also hold a mark of each labelled content,
because ids alone do not distinguish data: the rows of every array have the ids "0", "1" and so on. The file
is JSON, so that a person can read all of it before handing it over.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.dtypes import StringDType
from numpy.typing import NDArray
from pydantic import Field

from ucds.arguments import require_kinds
from ucds.choices import MOST_CLUSTERS
from ucds.data.content import KEY_BYTES, Column, find_places, first_repeated, keys_of, texts_of
from ucds.errors import DamagedFileError, InputError, brief, warn
from ucds.files import digest_of, read_json, require_writable, write_atomically
from ucds.labels.wire import Clusters, Digest, Message
from ucds.showing import shows

if TYPE_CHECKING:
    from ucds.data.samples import Samples

FORMAT = "ucds-labels/2"
Mark = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
MARK_BYTES = 8
_TOGETHER = 10_000  # entries that are Python objects at the same time: a million of them fill the memory


def marks_of(keys: Sequence[bytes]) -> Column[str]:
    """Return the mark of each content key: its first 8 bytes in hexadecimal digits."""
    first = keys_of(keys).array.view(np.uint8).reshape(-1, KEY_BYTES)[:, :MARK_BYTES]
    digits = first.tobytes().hex().encode()
    return Column(np.frombuffer(digits, f"S{2 * MARK_BYTES}").astype(StringDType()))


@shows("ids", "labels", "n_clusters", "provider")
@dataclass(frozen=True, eq=False)
class ClusterLabels:
    """One hard label for each sample; they hold integers and names only, and no part of a model.

    Attributes:
        ids: ids of the samples, each once.
        labels: ``(n,)`` int64 in ``[0, n_clusters)``, read-only.
        n_clusters: number of the provider's clusters, K.
        provider: name of the model that answered.
        contents: mark of the content of each sample, see :func:`marks_of`; ``None`` if not known.
        columns: names of the columns of a table, in the order in which the provider's model reads them;
            ``None`` without names.

    Raises:
        InputError: lengths differ, an id occurs twice, or a label is out of range.
    """

    ids: Sequence[str]
    labels: NDArray[np.int64]
    n_clusters: int
    provider: str
    contents: Sequence[str] | None = None
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Check the labels, and make them read-only."""
        kinds = {"ids": Collection[str], "n_clusters": int, "provider": str}
        require_kinds(kinds, {name: getattr(self, name) for name in kinds})
        object.__setattr__(self, "n_clusters", int(self.n_clusters))
        labels = np.asarray(self.labels)
        if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
            raise InputError(f"labels must be a list of integers, not {labels.dtype} of shape {labels.shape}")
        for held, what in ((labels, "labels"), (self.contents, "marks of contents")):
            if held is not None and len(held) != len(self.ids):
                raise InputError(f"there are {len(self.ids)} sample ids but {len(held)} {what}")
        if not len(labels):
            raise InputError("there are no labels")
        object.__setattr__(self, "ids", texts_of(self.ids))
        if self.contents is not None:
            object.__setattr__(self, "contents", texts_of(self.contents))
        if (twice := first_repeated(self.ids)) is not None:
            raise InputError(f"sample {brief(twice)} is labelled twice")
        if self.n_clusters < 1 or labels.min() < 0 or labels.max() >= self.n_clusters:
            raise InputError(
                f"labels lie in [{labels.min()}, {labels.max()}], "
                f"but {self.n_clusters} clusters were announced"
            )
        own = labels.astype(np.int64)
        own.flags.writeable = False
        object.__setattr__(self, "labels", own)

    def rows_in(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Find the samples to which these labels belong; both must be in the same order.

        Args:
            ids: ids of all samples.

        Returns:
            Positions of the samples that have a label, ascending, one for each label.

        Raises:
            InputError: the labels belong to other samples, or come in another order.
        """
        rows = find_places(self.ids, ids)
        if rows[0] < 0 or (np.diff(rows) <= 0).any():
            raise InputError("the labels belong to other samples, or are in another order")
        return rows

    def take(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> ClusterLabels:
        """Return some of the labels; this object itself if all are chosen in their order.

        Args:
            chosen: ``(n,)`` whether each label is wanted, or positions of labels in the order wanted.
        """
        own = np.arange(len(self.ids))
        rows = own[chosen]
        if np.array_equal(rows, own):
            return self
        contents = None if self.contents is None else texts_of(self.contents).take(rows)
        ids = texts_of(self.ids).take(rows)
        return ClusterLabels(ids, self.labels[rows], self.n_clusters, self.provider, contents, self.columns)

    def align(self, ids: Sequence[str], keys: Sequence[bytes] | None = None) -> ClusterLabels:
        """Return the labels of the given samples, in their order; samples without a label are left out.

        No integer stands for "unknown", so that no reader can take one for a cluster.

        Args:
            ids: ids of the samples.
            keys: content keys of the samples; labels of other contents are left out. ``None`` compares only
                ids.

        Raises:
            InputError: none of the samples has a label, or the labels have a single cluster.

        Warns:
            UcdsWarning: some labels belong to other samples or other contents, or all labels are equal.
        """
        if self.n_clusters == 1:
            raise InputError("labels of a single cluster say nothing: ask for a model with more clusters")
        rows = find_places(ids, self.ids)
        found = np.flatnonzero(rows >= 0)
        if not len(found):
            raise InputError(
                f"none of the {len(ids):,} samples has a label (the first is {brief(ids[0])}, the labels "
                f"begin with {brief(self.ids[0])}): label the same folder that you train on"
            )
        strangers = len(self.ids) - len(found)
        if strangers:
            warn(f"{strangers:,} of {len(self.ids):,} labels belong to samples that were not given")
        if keys is not None and self.contents is not None:
            found = found[self._have_same_content(rows[found], marks_of(keys_of(keys).take(found)))]
        aligned = self.take(rows[found])
        labels = aligned.labels
        if len(labels) > 1 and (labels == labels[0]).all():
            warn(f"all {len(labels):,} labels are {labels[0]}: they say nothing about the samples")
        return aligned

    def align_with(self, samples: Samples) -> ClusterLabels:
        """Return the labels of some samples as :meth:`align` does, for any order of the samples' columns.

        Raises:
            InputError: the samples have other columns, or :meth:`align` refuses them.
        """
        from ucds.data.vectors import in_order  # labels of images need none of it

        return self.align(samples.ids, in_order(samples, self.columns, "the labels").keys)

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that change with any id or label."""
        ids = "\0".join(self.ids).encode("utf-8", "surrogatepass")
        return digest_of(ids, self.labels.data)[:12]

    def save(self, path: str | Path) -> None:
        """Write a label file, all of it or none.

        Raises:
            NoSpaceError: the disk is full, or the folder is not writable.
        """
        fields: dict[str, Any] = {
            "format": FORMAT,
            "provider": self.provider,
            "n_clusters": self.n_clusters,
            "ids": self.ids,
            "labels": self.labels,
        }
        further = {"contents": self.contents, "columns": self.columns}
        fields |= {name: value for name, value in further.items() if value is not None}
        lines = _to_json(fields | {"digest": _digest_of(fields)}, "\n", ascii_only=False)
        path = require_writable(Path(path))
        write_atomically(path, lambda file: file.writelines(chain(lines, [b"\n"])), is_private=True)

    @classmethod
    def load(cls, path: str | Path) -> ClusterLabels:
        """Read a label file.

        Raises:
            InputError: the file cannot be read.
            DamagedFileError: the file holds anything but labels, or was changed after it was written.
        """
        file = read_json(path, LabelFile, "label file")
        try:
            undigested = file.format == "ucds-labels/1" and file.digest is None
            if not undigested and file.digest != _digest_of(
                file.model_dump(exclude={"digest"}, exclude_unset=True)
            ):
                raise InputError("its digest does not match, so it was changed after it was written")
            labels = np.array(file.labels, np.int64)
            return cls(file.ids, labels, file.n_clusters, file.provider, file.contents, file.columns)
        except InputError as error:
            raise DamagedFileError(f"{path} is not a usable label file: {error}") from None

    def _have_same_content(self, rows: NDArray[np.int64], marks: Column[str]) -> NDArray[np.bool_]:
        """Return for each label at some positions whether its content has the given mark."""
        assert self.contents is not None
        same: NDArray[np.bool_] = texts_of(self.contents).take(rows).array == marks.array
        if not same.any():
            raise InputError(
                f"the labels belong to other data: of {len(rows):,} samples with these names, none has the "
                "content that was labelled; label the data that you train on"
            )
        if not same.all():
            warn(
                f"{int((~same).sum()):,} of {len(rows):,} samples have changed since they were "
                "labelled; their labels are left out"
            )
        return same


class LabelFile(Message):
    """The stored form of a label file. Files of version 1, which other programs may write, have no digest."""

    format: Literal["ucds-labels/1", "ucds-labels/2"]
    provider: str
    n_clusters: Clusters
    ids: Annotated[list[str], Field(fail_fast=True)]  # an error for each entry would fill the memory
    labels: Annotated[list[Annotated[int, Field(ge=-1, le=MOST_CLUSTERS)]], Field(fail_fast=True)]
    contents: Annotated[list[Mark], Field(fail_fast=True)] | None = None
    columns: tuple[str, ...] | None = None
    digest: Digest | None = None


def _digest_of(fields: dict[str, Any]) -> str:
    """Compute the digest of the canonical JSON of fields."""
    digest = hashlib.sha256()
    for part in _to_json(dict(sorted(fields.items())), "", ascii_only=True):
        digest.update(part)
    return digest.hexdigest()


def _to_json(fields: dict[str, Any], line: str, *, ascii_only: bool) -> Iterator[bytes]:
    """Yield fields as JSON, one line per entry of a list; without ``line``, in canonical form."""
    # The option ``indent`` of the library would be ten times slower.
    between, colon = f",{line}", ": " if line else ":"
    write = partial(json.dumps, ensure_ascii=ascii_only, separators=(between, colon))
    before = "{" + line
    for name, value in fields.items():
        yield f"{before}{write(name)}{colon}".encode()
        if value is None or isinstance(value, str | int):
            yield write(value).encode()
        else:
            yield f"[{line}".encode()
            for start in range(0, len(value), _TOGETHER):
                part = value[start : start + _TOGETHER]
                entries = part.tolist() if isinstance(part, np.ndarray) else list(part)
                yield ((between if start else "") + write(entries)[1:-1]).encode()
            yield f"{line}]".encode()
        before = between
    yield f"{line}}}".encode()
