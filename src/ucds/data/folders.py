"""Finds the images of domain folders, or of one folder, in an order that never varies.

Class folders are searched like any other folder, and appear only in a sample's id.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ucds.data.content import Column, domains_by_name, present_domains, require_ids, texts_of
from ucds.data.decode import IMAGE_SUFFIXES, describe_unreadable
from ucds.errors import InputError, brief, warn
from ucds.math.arrays import IntArray

FEATURES_FILE = "features.json"
"""File that describes a folder of features, and marks it as one."""

_EMPTY = frozenset({"", "none", "nan", "nat", "<na>", "null"})  # as libraries write an empty cell
_ACCEPTED = f"(accepted: {' '.join(sorted(IMAGE_SUFFIXES))})"


@dataclass(frozen=True, eq=False)
class Scan:
    """Image files below a root, not opened yet."""

    root: Path  # folder that was scanned
    paths: Column[str]  # file paths relative to the root
    domain: IntArray  # `(n,)` int64 positions in the names of the domains
    domain_names: tuple[str, ...]  # names of the domain folders, sorted
    given_ids: Column[str] | None = None  # ids of the images; `None` if their paths are their ids

    def __post_init__(self) -> None:
        if self.ids is not self.paths:  # paths themselves differ; what their escapes look like may not
            require_ids(self.ids)

    @property
    def ids(self) -> Column[str]:
        """Ids of the images: the paths, unless others are given."""
        return self.readable_paths if self.given_ids is None else self.given_ids

    @cached_property
    def readable_paths(self) -> Column[str]:
        """Paths with forward slashes; bytes that are not UTF-8 are written as escapes."""
        readable = self.paths.array.dtype != object
        return self.paths if readable else texts_of(list(map(_readable, self.paths)))

    def __len__(self) -> int:
        return len(self.paths)

    def file(self, position: int) -> Path:
        """Return the path of an image."""
        return self.root / self.paths[position]

    def take(self, positions: IntArray) -> Scan:
        """Choose images by position, in the order given, and renumber the domains that remain."""
        remaining = present_domains(self.domain[positions], self.domain_names)
        ids = None if self.given_ids is None else self.given_ids.take(positions)
        return Scan(self.root, self.paths.take(positions), *remaining, ids)


def scan_domains(root: str | Path, domains: Sequence[str] | None = None) -> Scan:
    """Find the images of ``root/<domain>/**``.

    If the root's only sub-folder is a wrapper (``PACS/kfold/<domain>/<class>/..``), the domains are the
    folders in the wrapper. Hidden files and folders are skipped. Links are followed, but not in loops.
    """
    root = _folder(root)
    base = _unwrap(root, domains)
    folders, loose = _listing(base)
    if not folders:
        raise InputError(f"{root} has no domain folders; give a folder with one folder of images per domain.")
    if loose:
        warn(f"Images that lie directly in {base} have no domain: {len(loose):,} left out.")
    chosen = folders if domains is None else require_domains(root, folders, domains)
    found = _images(root, {name: base / name for name in chosen})
    empty = [name for name, paths in found.items() if not paths]
    if empty and (domains is not None or len(empty) == len(found)):
        raise InputError(f"There are no images in {_quoted(empty)} of {root} {_ACCEPTED}.")
    for name in empty:
        warn(f"{base / name} holds no images and is not used as a domain.")
    return _scan(root, {name: paths for name, paths in found.items() if paths})


def scan_folder(root: str | Path) -> Scan:
    """Find the images of ``root/**`` as one domain, named after the folder."""
    root = _folder(root)
    found = _images(root, {root.resolve().name or "images": root})
    if not any(found.values()):
        raise InputError(f"There are no images in {root} {_ACCEPTED}.")
    return _scan(root, found)


def scan_files(
    paths: Sequence[str | Path],
    root: Path = Path(),
    domains: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
) -> Scan:
    """List image files in the order given.

    Relative paths start from the root. Without ids, the paths as given are the ids. Blanks around a path do
    not count, unless there is a file with them. An empty path counts as a file that is not there, which has
    the number of its row for a name.
    """
    listed = [_meant(str(path), row, root) for row, path in enumerate(paths)]
    if not listed:
        raise InputError("there are no image files")
    given = None if ids is None else texts_of(ids)
    found = Scan(root, texts_of(listed), *domains_by_name(domains, len(listed), "images"), given)
    if found.ids is found.paths:
        require_ids(found.ids)
    return found


def require_domains(what: object, known: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return the wanted domains, sorted."""
    unknown = sorted(set(wanted) - set(known))
    if unknown or not wanted:
        raise InputError(f"{what} has no domain {_quoted(unknown)}; it has {_quoted(known)}.")
    return sorted(set(wanted))


def _scan(root: Path, found: Mapping[str, Sequence[str]]) -> Scan:
    names = sorted(found)
    paths = texts_of([path for name in names for path in found[name]])
    domain = np.repeat(np.arange(len(names)), [len(found[name]) for name in names])
    return Scan(root, paths, domain, tuple(map(_readable, names)))


def _folder(root: str | Path) -> Path:
    root = Path(root)
    if not root.exists():
        raise InputError(f"There is no folder {root}.")
    if not root.is_dir():
        raise InputError(
            f"{root} is neither a folder of images nor a .csv, .parquet, .npy, .npz or .txt file."
        )
    return root


def _unwrap(root: Path, domains: Sequence[str] | None) -> Path:
    """Return the root's only folder if it holds the domains, else the root.

    Depth distinguishes a wrapper from a lone domain: folders of a wrapper hold class folders, and folders of
    a domain hold images. Names of wanted domains decide it.
    """
    inner, _ = _listing(root)
    if len(inner) != 1 or (domains is not None and inner[0] in domains):
        return root
    wrapper = root / inner[0]
    candidates, _ = _listing(wrapper)
    if domains is not None:
        return wrapper if set(domains) <= set(candidates) else root
    contents = [_listing(wrapper / name) for name in candidates]
    holds_domains = all(classes and not images for classes, images in contents)
    return wrapper if len(candidates) > 1 and holds_domains else root


def _images(root: Path, folders: Mapping[str, Path]) -> dict[str, list[str]]:
    """Return the sorted paths of all images below each folder."""
    files = {name: _files(root, folder) for name, folder in folders.items()}
    unread = Counter(_suffix(path) for paths in files.values() for path in paths if not _is_image(path))
    if (message := describe_unreadable(unread)) is not None:
        warn(message)
    return {name: list(filter(_is_image, paths)) for name, paths in files.items()}


def _files(root: Path, folder: Path) -> list[str]:
    """Return the sorted paths of all visible files below a folder, relative to the root.

    Each real folder is entered once, by its first path in the order of names, so that loops of links end.
    """
    found: list[str] = []
    seen: set[tuple[int, int]] = set()
    for place, folders, files in os.walk(folder, onerror=_warn_of_unreadable, followlinks=True):
        status = os.stat(place)  # noqa: PTH116  (strings: much faster than paths on large trees)
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = _visible(folders)
        found += [os.path.relpath(os.path.join(place, name), root) for name in _visible(files)]  # noqa: PTH118
    return sorted(found)


def _listing(folder: Path) -> tuple[list[str], list[str]]:
    """Return the names of the sub-folders and of the image files that lie directly in a folder, sorted."""
    _, folders, files = next(os.walk(folder, onerror=_warn_of_unreadable), ("", [], []))
    return _visible(folders), _visible(filter(_is_image, files))


def _visible(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if not name.startswith("."))


def _is_image(name: str) -> bool:
    return _suffix(name) in IMAGE_SUFFIXES


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()  # noqa: PTH122


def _warn_of_unreadable(error: OSError) -> None:
    warn(f"The folder {error.filename} cannot be read ({error.strerror}) and is left out.")


def _readable(text: str) -> str:
    """Write bytes that are not UTF-8 as escapes."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def is_empty(text: str) -> bool:
    """Return whether a text stands for an empty cell of a table."""
    return text.strip().lower() in _EMPTY


def _meant(path: str, row: int, root: Path) -> str:
    if is_empty(path):
        return f"row {row} (no path)"
    return path if path == path.strip() or (root / path).exists() else path.strip()


def _quoted(names: Sequence[str]) -> str:
    return brief([*names])[1:-1] or "of that name"
