"""Finds the samples in any input of a user: folders, files, tables, arrays, lists, data sets.

Every command and every function opens its samples through :func:`find_samples`. The result is one of three
things: image files, vectors, or pictures in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set, Sized
from pathlib import Path
from typing import Any, cast

import numpy as np

from ucds.data.columns import WORD_NAMES, Pictures, plain_values, samples_in_columns, samples_in_items
from ucds.data.features import FeatureFolder
from ucds.data.folders import FEATURES_FILE, Scan, require_domains, scan_domains, scan_files, scan_folder
from ucds.data.samples import Samples, subset
from ucds.data.tables import READ_SUFFIXES, read_table, texts_of_names
from ucds.data.vectors import load_vectors
from ucds.errors import InputError, brief
from ucds.extras import require_extra

Source = str | Path | Sized
"""Samples as a user gives them; see :func:`find_samples`."""


def is_address(path: str) -> bool:
    """Return whether a path is an address such as ``s3://bucket/folder``, and not a path on this machine."""
    return "://" in path


def place_of(source: Source) -> Path | None:
    """Return the path of samples on this machine, ``None`` for samples in memory or in an object store."""
    if not isinstance(source, str | Path) or is_address(str(source)):
        return None
    return Path(source)


def find_samples(
    source: Source | Scan | Samples | Pictures, *, by_domain: bool, domains: Sequence[str] | None = None
) -> Scan | Samples | Pictures:
    """Find samples; image files are listed and not opened yet.

    Args:
        source: a path or samples in memory. Paths: folder of images or of features
            (:mod:`ucds.data.features`); ``.txt`` with a path a line; ``.csv`` or ``.parquet`` (see
            :func:`samples_in_columns`); ``.npy`` or ``.npz`` of embeddings; folder that ``datasets`` saved.
            In memory: array ``(n, d)`` of embeddings or ``(n, h, w, 3)`` of uint8 pixels; data frame; list or
            data set of paths, PIL images, arrays, contents of image files, or rows by name; if it holds
            tuples, their first entries count. A result of this function is returned as it is.
        by_domain: whether a folder holds one folder per domain. If not, all samples must be of one domain.
        domains: names of the domains to take; all if ``None``.

    Raises:
        InputError: the source cannot be used, has no such domains, or holds more than one if one is wanted.
    """
    if hasattr(source, "domain_names"):
        return cast("Scan | Samples | Pictures", source)
    if not isinstance(source, str | Path):
        found, what = _in_memory(source), "the input"
    elif is_address(str(source)):
        raise InputError(f"{source} is not on this machine: compute its features first with `ucds features`")
    elif is_feature_folder(Path(source)):
        return FeatureFolder(Path(source), by_domain=by_domain, domains=domains)
    elif is_plain_folder(Path(source)):
        return scan_domains(source, domains) if by_domain else scan_folder(source)
    else:
        found, what = _in_path(Path(source)), str(source)
    if by_domain:
        return found if domains is None else _of_domains(found, domains, what)
    if (several := len(found.domain_names)) > 1:
        raise InputError(f"{what} holds {several} domains, but a target is one domain: give one domain")
    return found


def require_there(source: Source) -> None:
    """Make sure, before anything heavy is loaded, that samples given by a path exist."""
    place = place_of(source)
    if place is not None and not place.exists():
        find_samples(source, by_domain=False)


def is_feature_folder(path: Path) -> bool:
    """Return whether a path is a folder of features, as ``ucds features`` writes it."""
    return (path / FEATURES_FILE).is_file()


def is_plain_folder(path: Path) -> bool:
    """Return whether a path is to be read as a folder of images, or of folders of images."""
    return path.suffix.lower() not in _READERS and not (_is_saved_dataset(path) or is_feature_folder(path))


def _is_saved_dataset(path: Path) -> bool:
    one = (path / "state.json").is_file() and (path / "dataset_info.json").is_file()
    return one or (path / "dataset_dict.json").is_file()


def _in_path(path: Path) -> Scan | Samples | Pictures:
    if _is_saved_dataset(path):
        require_extra("datasets", str(path))
        from datasets import load_from_disk

        return _in_memory(load_from_disk(str(path)))
    if path.is_dir():
        raise InputError(f"{path} is a folder with the name of a file: rename it")
    return _READERS[path.suffix.lower()](path)


def _listed_files(path: Path) -> Scan:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # names may hold other separators of lines
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as a list of paths in UTF-8 ({error})") from None
    return scan_files([line.strip() for line in lines if line.strip()], path.parent)


def _table(path: Path) -> Scan | Samples | Pictures:
    return samples_in_columns(read_table(path, WORD_NAMES), str(path), path.parent)


_READERS: dict[str, Callable[[Path], Scan | Samples | Pictures]] = {
    ".txt": _listed_files,
    **dict.fromkeys(READ_SUFFIXES, _table),
    **dict.fromkeys((".npy", ".npz"), load_vectors),
}


def _in_memory(source: Any) -> Scan | Samples | Pictures:
    try:
        n = len(source)
    except TypeError:
        raise InputError(
            f"a model takes several samples at a time, not one {type(source).__name__}: "
            "give a list, an array or a table"
        ) from None
    if n == 0:
        raise InputError("there are no samples")
    source = plain_values(source)
    if (columns := _columns_of(source)) is not None:
        return samples_in_columns(columns, "the table", Path())
    if _is_of_arrow(source):
        from ucds.data.table_files import plain_array

        source = plain_array(source)
    if hasattr(source, "to_numpy"):  # a column of pandas or polars, whose index may begin anywhere
        source = source.to_numpy()
    if isinstance(source, Set):
        raise InputError("samples need an order, which a set does not have: give a list")
    if isinstance(source, Mapping):
        names = brief([*source])[1:-1]
        raise InputError(f"the input is a mapping of {names}: give one data set, or a data frame of columns")
    if not hasattr(source, "__getitem__"):
        raise InputError(
            f"samples need positions, which a {type(source).__name__} does not have: give a list"
        )
    return samples_in_items(source, n)


def _is_of_arrow(source: Any) -> bool:
    """Return whether an object belongs to pyarrow, without loading pyarrow, which takes a while."""
    return type(source).__module__.partition(".")[0] == "pyarrow"


def _columns_of(source: Any) -> dict[str, Any] | None:
    """Return the columns of a data frame, of a table of pyarrow, or of a structured array of NumPy."""
    if _is_of_arrow(source) and hasattr(source, "schema"):
        from ucds.data.table_files import plain_array

        return dict(zip(texts_of_names(source.schema.names), map(plain_array, source.columns), strict=True))
    if hasattr(source, "columns") and hasattr(source, "to_numpy"):  # of pandas or polars
        values = [source[name].to_numpy() for name in source.columns]
        return dict(zip(texts_of_names(source.columns), values, strict=True))
    names = source.dtype.names if isinstance(source, np.ndarray) else None
    return {name: source[name] for name in names} if names else None


def _of_domains(
    found: Scan | Samples | Pictures, domains: Sequence[str], what: str
) -> Scan | Samples | Pictures:
    numbers = [found.domain_names.index(name) for name in require_domains(what, found.domain_names, domains)]
    index = np.flatnonzero(np.isin(found.domain, numbers))
    return found.take(index) if isinstance(found, Scan | Pictures) else subset(found, index)
