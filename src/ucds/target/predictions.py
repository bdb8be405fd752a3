"""Clusters found for samples: their names, the table of them, and images sorted into a folder a cluster."""

from __future__ import annotations

import os
import re
import shutil
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from ucds.choices import Sorting
from ucds.data.content import content_key
from ucds.data.decode import UnusableImageError
from ucds.data.folders import Scan
from ucds.data.image_files import read_image_bytes
from ucds.data.tables import READ_SUFFIXES, write_table
from ucds.errors import InputError
from ucds.files import making, read_json, require_space, require_writable, write_text_atomically, writing
from ucds.math.arrays import Watch, counted
from ucds.showing import shows
from ucds.training.run_folder import read_run

if TYPE_CHECKING:
    from ucds.training.model_file import StoredModel

MOST_LETTERS = 80
"""Characters of a cluster's name at most."""

UNSORTED = -1
"""Number in place of a cluster, for a sample whose confidence is below ``min_confidence``."""

UNSORTED_FOLDER = "unsorted"
"""Folder of the images that are left without a cluster, beside those of the clusters."""

NAMES_FILE = "names.json"
"""Name of the file of names in the folder of a run."""

SORTING_FILE = ".ucds-sorting.json"
"""Name of the record, in a folder of sorted images, of what was sorted into it."""

_LONGEST_NAME = 240  # bytes, of the 255 that file systems take; the rest is for underscores
_FORBIDDEN = re.compile(r'[<>:"/\\|?*]')  # by Windows
_DEVICES = re.compile(r"(con|prn|aux|nul|(com|lpt)[0-9¹²³]) *(\.|$)", re.IGNORECASE)  # of Windows
_CONTROL = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")  # categories of what is not to be seen
_JOINERS = "\u200c\u200d"  # parts of words in some scripts


class ClusterNames(BaseModel):
    """Names that a person gave to the clusters of the model that has a fingerprint."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["ucds-names/1"]
    model: str
    names: dict[Annotated[int, Field(ge=0)], Annotated[str, Field(min_length=1, max_length=MOST_LETTERS)]]


def read_names(run: Path, stored: StoredModel | None = None) -> dict[int, str]:
    """Read the names of a run's clusters, those of its ``stored`` model alone; none if the run has none."""
    path = run / NAMES_FILE
    if not path.exists():
        return {}
    found = read_json(path, ClusterNames, "file of names")
    if stored is not None:
        foreign = found.model != stored.fingerprint or max(found.names, default=0) >= stored.card.n_clusters
        if foreign:
            told = f"the names in {path} belong to another model"
            raise InputError(f"{told}: delete the file, and name the clusters in `ucds review`")
    return found.names


@shows("ids", "clusters", "confidence", "fits", "source", "names", "n_clusters")
@dataclass(frozen=True, eq=False)
class Predictions:
    """Clusters of samples.

    Attributes:
        ids: id of each sample.
        clusters: ``(n,)`` most probable cluster of each sample; :data:`UNSORTED` where the confidence is
            below ``min_confidence``.
        confidence: ``(n,)`` confidence in the most probable cluster, see ``docs/consensus.md``.
        names: name of each named cluster by its number.
        n_clusters: number of clusters, K.
        files: image files of the samples; ``None`` for other samples.
        source: origin of each cluster, one of :data:`ucds.target.remembered.SOURCES`; ``None`` if nobody has
            reviewed the run.
        fits: ``(n,)`` p-value of each sample that the run does not know, see :func:`ucds.math.novelty.fit`;
            NaN for those that it knows. ``None`` if the run remembers nothing to compare with.
        unused: numbers of clusters that exist no longer; they get no folder.
    """

    ids: Sequence[str]
    clusters: NDArray[np.int64]
    confidence: NDArray[np.float32]
    names: Mapping[int, str] = field(default_factory=dict)
    n_clusters: int = 0
    files: Scan | None = None
    source: Sequence[str] | None = None
    unused: Collection[int] = ()
    fits: NDArray[np.float64] | None = None

    @property
    def unsorted(self) -> int:
        """Number of samples that are left without a cluster."""
        return int((self.clusters == UNSORTED).sum())

    @property
    def strangers(self) -> int:
        """Number of samples that fit no cluster; on average, at most 5 % of them are false alarms."""
        from ucds.math.novelty import reject

        return 0 if self.fits is None else int(reject(self.fits).sum())

    def save(self, path: str | Path, *, marked: bool = False) -> Path:
        """Write a table: sample, cluster and confidence; fits, source and name if there are any.

        Args:
            path: file to write; its name ends in .csv or .parquet.
            marked: whether a CSV file always begins with a byte order mark.

        Returns:
            Path of the file.

        Raises:
            InputError: the name has another suffix.
            NoSpaceError: the disk is full, or the folder is not writable.
        """
        columns = ["sample", "cluster", "confidence"]
        columns += ["fits"] * (self.fits is not None)
        columns += ["source"] * (self.source is not None) + ["name"] * bool(self.names)
        place = require_writable(Path(path), *READ_SUFFIXES)
        write_table(place, columns, self._rows, marked=marked)
        return place

    def _rows(self) -> Iterator[list[object]]:
        for place, (name, cluster) in enumerate(zip(self.ids, self.clusters.tolist(), strict=True)):
            row = [name, cluster, Decimal(f"{self.confidence[place]:.4f}")]
            if self.fits is not None:
                row.append(None if np.isnan(self.fits[place]) else Decimal(f"{self.fits[place]:.4f}"))
            row += [] if self.source is None else [self.source[place]]
            yield row + ([self.names.get(cluster, "")] if self.names else [])


class SortingRecord(BaseModel):
    """What was sorted into a folder: content key of each picture, in hexadecimal, by its path below it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["ucds-sorting/1"] = "ucds-sorting/1"
    model: str
    pictures: dict[Annotated[str, Field(pattern=r"^[^./][^/]*/[^./][^/]*$")], str] = {}

    def require_of(self, folder: Path, run: Path, model: str) -> None:
        """Refuse a folder that neither the model of a run has sorted nor one that the run is a review of."""
        if self.model not in (model, *(read_run(run).get("reviewed") or [])):
            raise InputError(f"another model sorted into {folder}: choose another `sort_into`")

    def save(self, folder: Path) -> None:
        """Write the record into a folder of sorted images."""
        write_text_atomically(folder / SORTING_FILE, self.model_dump_json(indent=1) + "\n")


def read_sorting(folder: Path) -> SortingRecord | None:
    """Read what was sorted into a folder before; ``None`` if it is new or empty. Others are refused."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: choose another `sort_into`")
    require_writable(record := folder / SORTING_FILE)
    if record.exists():
        return read_json(record, SortingRecord, "record of a sorting")
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    if any(name[0] != "." and name != "lost+found" for name in names):
        raise InputError(f"{folder} is not empty, but holds no sorted images: choose another `sort_into`")
    return None


def require_room(folder: Path, files: Scan) -> None:
    """Make sure that the disk has space for copies of images, less those that an earlier call made."""
    new = sum(path.stat().st_size for path in map(files.file, range(len(files))) if path.exists())
    earlier = [path.lstat().st_size for path in folder.glob("[!.]*/*")]
    remedy = "or choose another `sort_into`"
    require_space(folder, new - sum(earlier), remedy, files=len(files) - len(earlier))


def sort_into_folders(
    folder: Path,
    found: Predictions,  # with their files
    keys: Sequence[bytes],  # of the contents of the images
    how: Sorting = "copy",
    model: str = "",  # its fingerprint
    watch: Watch | None = None,
    others: Sequence[tuple[int, bytes]] = (),  # clusters and keys of images that are not among these
) -> None:
    """Sort images into one folder per cluster, under names that differ and that every file system takes.

    The folder of a named cluster has this name; clusters with the same name share a folder. Images without a
    cluster have a folder of their own. A file in a sub-folder, ``a/b.jpg``, becomes ``a__b.jpg``; if that is
    too long or taken, ``sample 7.jpg``, where 7 is the sample's row in the table.

    In a folder of an earlier call, new images are added, and images whose cluster has changed are moved, also
    those of the ``others`` that were sorted then. What a person removed, renamed, changed or added there
    stays as it is. If an image cannot be sorted, none is. After a kill the same call completes the folder.
    """
    assert found.files is not None
    places, record = _folder_names(found, folder), read_sorting(folder)
    pictures = {} if record is None else dict(record.pictures)
    wanted = [*zip(found.clusters.tolist(), keys, strict=True), *others]
    placed, moved = _plan(folder, found.files.paths, wanted, places, pictures)
    with making(folder) as partial:
        for place in places.values():
            (partial / place).mkdir(exist_ok=True)
        for position, place in counted(watch, "sort the images", list(placed.items())):
            _place(found.files.file(position), partial / place, folder, how)
        if record is None and folder.is_dir():  # so that a call that is killed from here on can be repeated
            SortingRecord(model=model).save(folder)
        for before, place in moved.items():
            (folder / place).parent.mkdir(exist_ok=True)
            (folder / before).rename(folder / place)
        SortingRecord(model=model, pictures=pictures).save(partial)


def _plan(
    folder: Path,
    paths: Sequence[str],  # of the images, which come before those that may have been sorted earlier
    wanted: Sequence[tuple[int, bytes]],
    places: Mapping[int, str],
    pictures: dict[str, str],
) -> tuple[dict[int, str], dict[str, str]]:
    """Update a record; return the new places of images by position, and of files by their old place."""
    there = {str(path.relative_to(folder)) for path in folder.glob("[!.]*/*")}
    taken, known = {_alike(place) for place in (*there, *pictures)}, defaultdict[str, list[str]](list)
    placed, moved = dict[int, str](), dict[str, str]()
    for place, key in pictures.items():
        known[key].append(place)
    for position, (cluster, content) in enumerate(wanted):
        key, inside = content.hex(), f"{places.get(cluster, UNSORTED_FOLDER)}/"
        if before := min(known[key], key=lambda place: not place.startswith(inside), default=""):
            known[key].remove(before)
        is_given = position < len(paths)
        if before.startswith(inside) or not (is_given or before):
            continue
        for name in _names(paths[position] if is_given else before.partition("/")[2], position + 1):
            place = inside + name
            is_new, is_ours = _alike(place) not in taken, place in there and place not in pictures
            if is_new or (is_ours and _holds(folder / place, key)):  # by a call that was killed
                break
        if is_new and not before:
            placed[position] = place
        elif is_new and _holds(folder / before, key):
            moved[before] = place
        elif is_new:
            continue  # a person has removed, renamed or changed it
        pictures.pop(before, None)
        pictures[place] = key
        taken.add(_alike(place))
    return placed, moved


def _place(file: Path, destination: Path, folder: Path, how: Sorting) -> None:
    """Put an image, or a link to it, where it was sorted to; a copy keeps the times of the file."""
    if how == "link":
        with writing(folder):
            destination.symlink_to(file.absolute())
    else:
        content = file.read_bytes()  # an error here names the image, and below the folder
        with writing(folder):
            destination.write_bytes(content)
        with suppress(OSError):  # not every file system takes times and modes
            shutil.copystat(file, destination)


def _holds(path: Path, key: str) -> bool:
    """Return whether a file is there and has the content of a key."""
    try:
        return content_key(read_image_bytes(path)).hex() == key
    except UnusableImageError:
        return False


def portable_name(text: str) -> str:
    """Return a name that Linux, macOS and Windows take, without a path; letters of all scripts stay."""
    text = _FORBIDDEN.sub("_", unicodedata.normalize("NFC", text))
    kept = (c if c in _JOINERS or unicodedata.category(c) not in _CONTROL else "_" for c in text)
    name = "".join(kept).strip(" .")
    return f"_{name}" if _DEVICES.match(name) else name


def _alike(name: str) -> str:
    """Return a text that is equal for names that macOS or Windows take for the same."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _folder_names(found: Predictions, folder: Path) -> dict[int, str]:
    """Return the folder of each cluster: name or number, with an underscore if that is taken."""
    digits = len(str(found.n_clusters - 1))
    owners: dict[str, tuple[bool, str]] = {}
    places = {}
    # Those without a name come first, and keep their numbers.
    unused = set(found.unused) - set(found.clusters.tolist())
    there = (cluster for cluster in range(found.n_clusters) if cluster not in unused)
    clusters = sorted(there, key=lambda cluster: bool(found.names.get(cluster)))
    if found.unsorted:
        clusters.append(UNSORTED)
    for cluster in clusters:
        name = found.names.get(cluster, "")
        numbered = UNSORTED_FOLDER if cluster == UNSORTED else f"cluster_{cluster:0{digits}d}"
        usable = portable_name(name).encode()[:_LONGEST_NAME].decode(errors="ignore")
        owner = (bool(name), name or numbered)
        place = usable.strip(" .") or numbered
        while owners.setdefault(_alike(place), owner) != owner or _is_blocked(folder / place):
            place += "_"
        places[cluster] = place
    return places


def _is_blocked(path: Path) -> bool:
    return path.is_symlink() or path.is_file()


def _names(path: str, number: int) -> Iterator[str]:
    """Yield names for a sample's file: its own if it is not too long, then by the sample's number."""
    name = portable_name("__".join(part for part in Path(path).parts if part not in (os.sep, os.pardir)))
    if len(name.encode()) <= _LONGEST_NAME:
        yield name
    for more in count():
        yield f"{'_' * more}sample {number}{Path(name).suffix}"
