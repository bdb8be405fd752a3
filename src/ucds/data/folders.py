"""Find the images of domain folders, or of one folder, in an order that never varies.

Class folders are walked through like any other folder and leave no trace but the sample's id.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ucds.data.content import IntArray
from ucds.data.extra_formats import describe_unreadable, readable_suffixes
from ucds.errors import InputError, UcdsWarning

_JPEG = (".jpg", ".jpeg", ".jpe", ".jfif")
_OTHER = (".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".jp2", ".ppm", ".pgm", ".pbm", ".pnm")
IMAGE_SUFFIXES = frozenset((*_JPEG, *_OTHER)) | readable_suffixes()
_ACCEPTED = f"(accepted: {' '.join(sorted(IMAGE_SUFFIXES))})"


@dataclass(frozen=True, eq=False)
class Scan:
    """The image files found below a root, not opened yet.

    Attributes:
        root: folder that was scanned.
        paths: file paths relative to the root, sorted within each domain.
        domain: ``(n,)`` int64 positions in ``domain_names``.
        domain_names: names of the domain folders, sorted.
    """

    root: Path
    paths: tuple[str, ...]
    domain: IntArray
    domain_names: tuple[str, ...]

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Paths with forward slashes; bytes that are not UTF-8 are written as escapes."""
        return tuple(_readable(path.replace(os.sep, "/")) for path in self.paths)

    def __len__(self) -> int:
        return len(self.paths)


def scan_domains(root: str | Path, domains: Sequence[str] | None = None) -> Scan:
    """Find the images of ``root/<domain>/**``.

    If the root's only sub-folder is a wrapper (``PACS/kfold/<domain>/<class>/..``), the domains are the
    folders in the wrapper. Hidden files and folders are skipped, links are followed, loops end.

    Args:
        root: folder that has one folder per domain.
        domains: names of the domains to take, in any order; all when omitted.

    Raises:
        InputError: there is no such folder, no domain folder, an unknown domain, or a domain without images.
    """
    root = _folder(root)
    base = _unwrap(root, domains)
    folders, loose = _listing(base)
    if not folders:
        raise InputError(f"{root} has no domain folders; give a folder with one folder of images per domain.")
    if loose:
        message = f"{len(loose)} images lie directly in {base}, in no domain folder, and are left out."
        warnings.warn(message, UcdsWarning, stacklevel=2)
    unread: Counter[str] = Counter()
    found = {name: _images(root, base / name, unread) for name in _selected(root, folders, domains)}
    _warn_of_unread(unread)
    empty = [name for name, paths in found.items() if not paths]
    if empty and (domains is not None or len(empty) == len(found)):
        raise InputError(f"No images in {_quoted(empty)} of {root} {_ACCEPTED}.")
    for name in empty:
        message = f"{base / name} holds no images and is not used as a domain."
        warnings.warn(message, UcdsWarning, stacklevel=2)
    return _scan(root, {name: paths for name, paths in found.items() if paths})


def scan_folder(root: str | Path) -> Scan:
    """Find the images of ``root/**`` as one domain, named after the folder.

    Raises:
        InputError: there is no such folder, or no image in it.
    """
    root = _folder(root)
    unread: Counter[str] = Counter()
    paths = _images(root, root, unread)
    _warn_of_unread(unread)
    if not paths:
        raise InputError(f"No images in {root} {_ACCEPTED}.")
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
        raise InputError(f"{root} has no domain {_quoted(unknown)}; it has {_quoted(folders)}.")
    return sorted(set(domains))


def _unwrap(root: Path, domains: Sequence[str] | None) -> Path:
    """Step into the root's only folder if that one holds the domains.

    A wrapper is told from a lone domain by its depth: folders of a wrapper hold class folders,
    folders of a domain hold images. Domains asked for by name settle it.
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


def _images(root: Path, folder: Path, others: Counter[str]) -> list[str]:
    """Return the sorted paths of all images below a folder, relative to the root; count other suffixes.

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
        images = _visible(filter(_is_image, files))
        others.update(_suffix(name) for name in _visible(files) if not _is_image(name))
        found += [os.path.relpath(os.path.join(place, name), root) for name in images]  # noqa: PTH118
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


def _warn_of_unread(suffixes: Counter[str]) -> None:
    if (message := describe_unreadable(suffixes)) is not None:
        warnings.warn(message, UcdsWarning, stacklevel=3)


def _warn_of_unreadable(error: OSError) -> None:
    message = f"The folder {error.filename} cannot be read ({error.strerror}) and is left out."
    warnings.warn(message, UcdsWarning, stacklevel=2)


def _readable(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names) or "of that name"
