"""Find the images of domain folders, or of one folder, in an order that never varies.

Class folders are walked through like any other folder and leave no trace but the sample's id.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ucds.data.content import IntArray
from ucds.errors import InputError, UcdsWarning

_JPEG = (".jpg", ".jpeg", ".jpe", ".jfif")
_OTHER = (".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".jp2", ".ppm", ".pgm", ".pbm", ".pnm")
IMAGE_SUFFIXES = frozenset((*_JPEG, *_OTHER))


@dataclass(frozen=True, eq=False)
class Scan:
    """The image files found below a root, not opened yet.

    Attributes:
        root: the folder that was scanned.
        paths: file paths relative to the root, sorted within each domain.
        domain: `(n,)` int64, positions in `domain_names`.
        domain_names: the domain folders' names, sorted.
    """

    root: Path
    paths: tuple[str, ...]
    domain: IntArray
    domain_names: tuple[str, ...]

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The paths with forward slashes; bytes that are not UTF-8 are written as escapes."""
        return tuple(_readable(path.replace(os.sep, "/")) for path in self.paths)

    def __len__(self) -> int:
        return len(self.paths)


def scan_domains(root: str | Path, domains: Sequence[str] | None = None) -> Scan:
    """Find the images of `root/<domain>/**`.

    If the root's only sub-folder is a wrapper (`PACS/kfold/<domain>/<class>/..`), the domains are the
    folders in the wrapper. Hidden files and folders are skipped, links are followed, loops end.

    Args:
        root: the folder that has one folder per domain.
        domains: names of the domains to take, in any order; all when omitted.

    Raises:
        UserError: no such folder, no domain folder, an unknown domain, or a domain without images.
    """
    root = _folder(root)
    base = _unwrap(root, domains)
    folders = _subfolders(base)
    if not folders:
        raise InputError(f"{root} has no domain folders; give a folder with one folder of images per domain.")
    _warn_of_loose_images(base)
    found = {name: _images(root, base / name) for name in _selected(root, folders, domains)}
    empty = [name for name, paths in found.items() if not paths]
    if empty and (domains is not None or len(empty) == len(found)):
        raise InputError(f"No images in {_listed(empty)} of {root} (accepted: {_suffixes()}).")
    for name in empty:
        message = f"{base / name} holds no images and is not used as a domain."
        warnings.warn(message, UcdsWarning, stacklevel=2)
    return _scan(root, {name: paths for name, paths in found.items() if paths})


def scan_folder(root: str | Path) -> Scan:
    """Find the images of `root/**` as one domain, named after the folder.

    Raises:
        UserError: no such folder, or no image in it.
    """
    root = _folder(root)
    paths = _images(root, root)
    if not paths:
        raise InputError(f"No images in {root} (accepted: {_suffixes()}).")
    return _scan(root, {root.resolve().name or "images": paths})


def scan_files(paths: Sequence[str | Path]) -> Scan:
    """List image files as one domain, in the order given; their ids are the paths as given.

    Raises:
        InputError: there is no path, or one is given twice.
    """
    names = tuple(str(path) for path in paths)
    if not names:
        raise InputError("there are no image files")
    if len(set(names)) < len(names):
        raise InputError("an image file is given twice")
    return Scan(Path(), names, np.zeros(len(names), dtype=np.int64), ("images",))


def _scan(root: Path, found: dict[str, list[str]]) -> Scan:
    names = tuple(sorted(found))
    paths = tuple(path for name in names for path in found[name])
    domain = np.repeat(np.arange(len(names), dtype=np.int64), [len(found[name]) for name in names])
    return Scan(root, paths, domain, tuple(_readable(name) for name in names))


def _folder(root: str | Path) -> Path:
    root = Path(root)
    if not root.exists():
        raise InputError(f"There is no folder {root}.")
    if not root.is_dir():
        raise InputError(f"{root} is a file; give a folder of images.")
    return root


def _selected(root: Path, folders: list[str], domains: Sequence[str] | None) -> list[str]:
    if domains is None:
        return folders
    unknown = sorted(set(domains) - set(folders))
    if unknown or not domains:
        raise InputError(f"{root} has no domain {_listed(unknown)}; it has {_listed(folders)}.")
    return sorted(set(domains))


def _unwrap(root: Path, domains: Sequence[str] | None) -> Path:
    """Step into the root's only folder if that one holds the domains.

    A wrapper is told from a lone domain by its depth: folders of a wrapper hold class folders,
    folders of a domain hold images. Domains asked for by name settle it.
    """
    inner = _subfolders(root)
    if len(inner) != 1 or (domains is not None and inner[0] in domains):
        return root
    wrapper = root / inner[0]
    candidates = _subfolders(wrapper)
    if domains is not None:
        return wrapper if set(domains) <= set(candidates) else root
    holds_classes = [_subfolders(wrapper / name) and not _has_images(wrapper / name) for name in candidates]
    return wrapper if len(candidates) > 1 and all(holds_classes) else root


def _warn_of_loose_images(base: Path) -> None:
    loose = sum(1 for entry in _entries(base) if _is_image(entry) and not _is_dir(entry))
    if loose:
        message = f"{loose} images lie directly in {base}, in no domain folder, and are left out."
        warnings.warn(message, UcdsWarning, stacklevel=3)


def _images(root: Path, folder: Path) -> list[str]:
    return sorted(os.path.relpath(path, root) for path in _walk(folder))


def _walk(folder: Path) -> Iterator[str]:
    """Paths of all images below `folder`; each real folder is entered once, so that loops end."""
    seen: set[tuple[int, int]] = set()
    waiting = [str(folder)]
    while waiting:
        current = waiting.pop()
        try:
            status = os.stat(current)  # noqa: PTH116  (os.scandir's strings: much faster on large trees)
        except OSError:
            continue
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        inner = []
        for entry in _entries(current):
            if _is_dir(entry):
                inner.append(entry.path)
            elif _is_image(entry):
                yield entry.path
        waiting.extend(sorted(inner, reverse=True))


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted((e for e in entries if not e.name.startswith(".")), key=lambda e: e.name)
    except OSError as error:
        message = f"The folder {folder} cannot be read ({error.strerror}) and is left out."
        warnings.warn(message, UcdsWarning, stacklevel=2)
        return []


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads round in a circle
        return False


def _is_image(entry: os.DirEntry[str]) -> bool:
    return os.path.splitext(entry.name)[1].lower() in IMAGE_SUFFIXES  # noqa: PTH122


def _subfolders(folder: Path) -> list[str]:
    return [entry.name for entry in _entries(folder) if _is_dir(entry)]


def _has_images(folder: Path) -> bool:
    return any(_is_image(entry) and not _is_dir(entry) for entry in _entries(folder))


def _readable(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names) or "of that name"


def _suffixes() -> str:
    return " ".join(sorted(IMAGE_SUFFIXES))
