"""Clusters found for samples: their names, the table of them, and images sorted into a folder a cluster."""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from ucds.choices import Sorting
from ucds.data.folders import Scan
from ucds.errors import InputError
from ucds.files import making, read_json, require_writable, write_atomically

if TYPE_CHECKING:
    from ucds.training.model_file import StoredModel

MOST_LETTERS = 80
"""Characters of a cluster's name at most."""

UNSORTED = -1
"""Number in place of a cluster, for a sample whose confidence is below the least one asked for."""

UNSORTED_FOLDER = "unsorted"
"""Folder of the images that are left without a cluster, beside those of the clusters."""

_LONGEST_NAME = 240  # bytes, of the 255 that file systems take; the rest is for underscores
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class ClusterNames(BaseModel):
    """Names that a person gave to the clusters of a model, as the report saves them.

    Attributes:
        format: name and version of the form of the file.
        model: fingerprint of the model whose clusters are named.
        names: name of each named cluster by its number.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["ucds-names/1"]
    model: str
    names: dict[Annotated[int, Field(ge=0)], Annotated[str, Field(min_length=1, max_length=MOST_LETTERS)]]

    @classmethod
    def load(cls, path: str | Path) -> ClusterNames:
        """Read a file of names.

        Raises:
            InputError: the file cannot be read.
            DamagedFileError: the file holds anything but names.
        """
        return read_json(path, cls, "file of names")

    def of(self, stored: StoredModel) -> dict[int, str]:
        """Return the names by cluster, if they are those of a model.

        Args:
            stored: model whose clusters are to be named.

        Raises:
            InputError: the names belong to the clusters of another model.
        """
        if self.model != stored.fingerprint or max(self.names, default=0) >= stored.card.n_clusters:
            raise InputError("the names belong to another model: type them in the report of this one")
        return self.names


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
        for name, cluster, confidence in zip(self.ids, self.clusters, self.confidence, strict=True):
            named = [_plain(self.names.get(int(cluster), ""))] if self.names else []
            writer.writerow([_plain(name), cluster, f"{confidence:.4f}", *named])
        text.detach()


def require_csv(path: Path) -> None:
    """Make sure, before any work, that predictions can be written under a name.

    Raises:
        InputError: the name does not end in .csv, or the file cannot be written.
    """
    require_writable(path)
    if path.suffix.lower() != ".csv":
        raise InputError(f"{path} must end in .csv: predictions are written as a table")


def _plain(text: str) -> str:
    """Put an apostrophe in front of what a spreadsheet would compute."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def check_unused(folder: Path) -> None:
    """Make sure that images can be sorted into a folder: it is empty or new, and not the current one."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not an empty folder: choose another --sort-into")
    if folder.resolve() == Path.cwd():
        raise InputError("the current folder cannot be sorted into: name a new one")


def sort_into_folders(folder: Path, found: Predictions, how: Sorting = "copy") -> None:
    """Sort images into one folder a cluster, under names that differ.

    The folder of a named cluster has this name; clusters of one name share a folder, and others do not.
    Images without a cluster have a folder of their own. A file in a sub-folder, ``a/b.jpg``, becomes
    ``a__b.jpg``; if that is too long or taken, ``sample 7.jpg``, where 7 is the sample's row in the table.
    If an image cannot be sorted, there is no folder.

    Args:
        folder: folder to make; it must not exist, or be empty, see :func:`check_unused`.
        found: clusters of images, with their files.
        how: ``"copy"``, or ``"link"`` for symbolic links to the images where they are.

    Raises:
        OSError: an image cannot be read or written.
    """
    files, places = found.files, _folder_names(found)
    assert files is not None
    with making(folder) as partial:
        for place in places.values():
            (partial / place).mkdir(parents=True, exist_ok=True)
        for position, cluster in enumerate(found.clusters.tolist()):
            parts = [part for part in Path(files.paths[position]).parts if part not in (os.sep, os.pardir)]
            destination = _place(partial / places[cluster], "__".join(parts), position + 1)
            if how == "link":
                destination.symlink_to(files.file(position).absolute())
            else:
                shutil.copyfile(files.file(position), destination)


def _folder_names(found: Predictions) -> dict[int, str]:
    """Return the folder of each cluster: its name or number, and an underscore where others have that."""
    digits = len(str(found.n_clusters - 1))
    owners: dict[str, tuple[bool, str]] = {}
    places = {}
    # Those without a name come first, and keep their numbers.
    clusters = sorted(range(found.n_clusters), key=lambda cluster: bool(found.names.get(cluster)))
    if found.unsorted:
        clusters.append(UNSORTED)
    for cluster in clusters:
        name = found.names.get(cluster, "")
        numbered = UNSORTED_FOLDER if cluster == UNSORTED else f"cluster_{cluster:0{digits}d}"
        # Without what a file system or a shell may take for something else.
        usable = re.sub(r"[^\w ().,+-]", "_", name).encode()[:_LONGEST_NAME].decode(errors="ignore")
        owner = (bool(name), name or numbered)
        place = usable.strip(" .") or numbered
        while owners.setdefault(place, owner) != owner:
            place += "_"
        places[cluster] = place
    return places


def _place(folder: Path, name: str, number: int) -> Path:
    """Return the path of a sample's file; if its name is too long or taken, by the sample's number."""
    path = folder / name
    if len(os.fsencode(name)) > _LONGEST_NAME or os.path.lexists(path):
        path = folder / f"sample {number}{path.suffix}"
    while os.path.lexists(path):  # by a file of just this name
        path = path.with_name(f"_{path.name}")
    return path
