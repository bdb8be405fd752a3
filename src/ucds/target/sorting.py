"""Sorts images into one folder a cluster: as copies, as links, or by moving them."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from ucds.choices import Sorting
from ucds.data.folders import Scan
from ucds.errors import InputError
from ucds.target.predictions import UNSORTED, Predictions

UNSORTED_FOLDER = "unsorted"
"""Folder of the images that are left without a cluster, beside those of the clusters."""


def check_unused(folder: Path) -> None:
    """Make sure that images can be sorted into a folder.

    Raises:
        InputError: the folder is not empty, is the current one, or is not a folder.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not an empty folder: choose another --sort-into")
    if folder.resolve() == Path.cwd():
        raise InputError("the current folder cannot be sorted into: name a new one")


def check_sortable(files: Scan | None, how: Sorting) -> Scan:
    """Return the image files of samples, if these can be sorted.

    Raises:
        InputError: the samples are not image files, or lie in tar files and are not to be copied.
    """
    if files is None:
        raise InputError("--sort-into needs image files, not embeddings or pictures in memory")
    if files.spans is not None and how != "copy":
        raise InputError(f"images inside tar files can be copied only: leave out --sort-how {how}")
    return files


def sort_into_folders(folder: Path, found: Predictions, how: Sorting = "copy") -> None:
    """Sort images into one folder a cluster, under names that differ.

    The folder of a named cluster has this name; clusters of one name share a folder. Images without a
    cluster have a folder of their own. A file in a sub-folder, ``a/b.jpg``, becomes ``a__b.jpg``. Everything
    is sorted into a temporary folder first, so that a crash leaves no half-sorted result; images to be moved
    are removed from their places last of all.

    Args:
        folder: folder to make; it must not exist, or be empty.
        found: clusters of images.
        how: ``"copy"``, ``"link"`` (symbolic links to the images where they are) or ``"move"``.

    Raises:
        InputError: ``folder`` is in use, or the samples cannot be sorted in this way.
    """
    check_unused(folder)
    files = check_sortable(found.files, how)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    places = {cluster: _folder_name(found, cluster) for cluster in range(found.n_clusters)}
    if found.unsorted:
        places[UNSORTED] = UNSORTED_FOLDER + "_" * (UNSORTED_FOLDER in places.values())
    for place in places.values():
        (partial / place).mkdir(parents=True, exist_ok=True)
    for position, cluster in enumerate(found.clusters.tolist()):
        parts = [part for part in Path(files.paths[position]).parts if part not in (os.sep, os.pardir)]
        _put(files, position, _unused(partial / places[cluster] / "__".join(parts)), how)
    if folder.exists():
        folder.rmdir()
    partial.rename(folder)
    if how == "move":
        for position in range(len(files)):
            _own(files, position).unlink()


def _put(files: Scan, position: int, destination: Path, how: Sorting) -> None:
    file = files.file(position)
    if file is None:
        destination.write_bytes(files.read(position))
    elif how == "link":
        destination.symlink_to(file.absolute())
    elif how == "copy" or not _linked(file, destination):
        shutil.copyfile(file, destination)


def _linked(file: Path, destination: Path) -> bool:
    """Give a file a second name, which needs no room; return whether the file system can."""
    try:
        os.link(file, destination)
    except OSError:
        return False
    return True


def _own(files: Scan, position: int) -> Path:
    file = files.file(position)
    assert file is not None
    return file


def _folder_name(found: Predictions, cluster: int) -> str:
    """Return the name of a cluster without what a file system or a shell may take for something else."""
    usable = re.sub(r"[^\w ().,+-]", "_", found.names.get(cluster, "")).strip(" .")
    return usable or found.number_of(cluster)


def _unused(path: Path) -> Path:
    """Add a number to a path that is taken (by `a__b.jpg`, when `a/b.jpg` is sorted)."""
    free, number = path, 1
    while free.exists() or free.is_symlink():
        number += 1
        free = path.with_stem(f"{path.stem} ({number})")
    return free
