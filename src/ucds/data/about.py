"""What is known about samples besides their pixels, from a table or image files, and what a run keeps."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ucds.data.columns import ID_NAMES, PATH_NAMES, WORD_NAMES, Pictures, first_present, texts_in
from ucds.data.content import KEY_BYTES, KEY_TYPE, Column, find_places, first_repeated, keys_of
from ucds.data.decode import read_header
from ucds.data.folders import Scan
from ucds.data.samples import Samples
from ucds.data.tables import read_table
from ucds.data.vectors import read_arrays
from ucds.errors import DamagedFileError, InputError, brief, shown, warn
from ucds.files import parse_json, write_atomically
from ucds.math.arrays import DoubleArray, IntArray, processors
from ucds.received import require_few

About = dict[str, list[str]]
"""Text of each sample in each column, by the column's name; empty where nothing is known."""

FOLDERS = ("folder", "folder of the file")
"""Columns that may be classes."""

_UNKNOWN = frozenset({"", "nan", "none", "null", "nat", "na", "n/a", "unknown", "0000:00:00 00:00:00"})
_MOST_CODES = 12  # different numbers up to which they are names of groups


def find_about(
    samples: Scan | Samples | Pictures, table: str | Path | None, rows: IntArray | None = None
) -> About:
    """Find what is known about samples: in a table, or else in their paths and the headers of image files.

    Args:
        samples: samples.
        table: CSV or parquet file. A column of :data:`ucds.data.columns.ID_NAMES` or of
            :data:`ucds.data.columns.PATH_NAMES` tells which sample a row is about: by its id, or by the name
            of its file if no two samples share this name. ``None`` reads paths and headers.
        rows: ``(m,)`` positions of the samples that are wanted; all if ``None``.

    Raises:
        InputError: the table cannot be read, does not say what its rows are about, or has none about the
            samples.

    Warns:
        UcdsWarning: the table has no row about some of the samples.
    """
    rows = np.arange(len(samples.ids)) if rows is None else rows
    if table is None:
        return read_own(samples, rows)
    columns = read_table(table := Path(table), WORD_NAMES)
    name = first_present((*ID_NAMES, *PATH_NAMES), columns)
    if name is None:
        raise InputError(f"{table} does not say what its rows are about: name a column 'id' or 'path'")
    named, ids = texts_in(columns.pop(name)), [samples.ids[i] for i in rows.tolist()]
    places = find_places(ids, named)
    files, others = ([text.rpartition("/")[2] for text in each] for each in (samples.ids, named))
    if not (places >= 0).any() and first_repeated(files) is None:
        named = others
        places = find_places([files[i] for i in rows.tolist()], named)
    if (twice := first_repeated(list(filter(_known, named)))) is not None:
        raise InputError(f"{table} has two rows about {brief(twice)}: remove one of them")
    if missing := int((places < 0).sum()):
        told = f"{table} has no row about {missing:,} of {len(ids):,} samples"
        if missing == len(ids):
            raise InputError(f"{told}: its column {brief(name)} must hold ids such as {brief(ids[0])}")
        warn(told)
    return choose_rows({column: [*map(_known, texts_in(v)), ""] for column, v in columns.items()}, places)


def read_own(samples: Scan | Samples | Pictures, rows: IntArray) -> About:
    """Collect facts from the samples at some positions: folders, kinds of files, headers of image files."""
    chosen, all_paths = rows.tolist(), getattr(samples, "readable_paths", samples.ids)
    paths = [all_paths[i] for i in chosen]
    folders = [path.split("/")[:-1] for path in paths]
    shared = len(os.path.commonprefix(folders))  # noqa: RUF071  (of lists, not of letters)
    found = {
        name: ["/".join(parts[shared:end]) for parts in folders]
        for name, end in zip(FOLDERS, (shared + 1, None), strict=True)
    }
    if found[FOLDERS[0]] == found[FOLDERS[1]]:
        del found[FOLDERS[1]]
    if isinstance(files := getattr(samples, "files", samples), Scan):
        found["file type"] = [os.path.splitext(path)[1].lower() for path in paths]  # noqa: PTH122
        with ThreadPoolExecutor(processors()) as pool, warnings.catch_warnings(action="ignore"):
            headers = list(pool.map(lambda i: read_header(files.file(i)), chosen))
        for name in ("width", "height", "device", "date"):
            found[name] = [_known(header.get(name, "")) for header in headers]
    return found


def choose_rows(about: About, rows: IntArray) -> About:
    """Select what is known about the samples at the positions ``(m,)``, in the order given."""
    return {name: [texts[row] for row in rows.tolist()] for name, texts in about.items()}


def column_of(about: About, name: str) -> list[str]:
    """Return the texts of a column."""
    if name not in about:
        known = ", ".join(brief(other) for other in about)
        raise InputError(f"there is no column {brief(name)} about the samples: name one of {known}")
    return about[name]


def read_values(texts: Sequence[str]) -> IntArray | DoubleArray:
    """Read texts ``(n,)`` as numbers, dates or categories, see :func:`ucds.math.followed.find_following`.

    Up to twelve different numbers are categories, such as those of sites.
    """
    names, numbers = np.unique(np.array(texts, object), return_inverse=True)
    if len(names) > _MOST_CODES:
        for read in (float, _seconds):
            with suppress(ValueError, OverflowError):
                values = np.array([read(name) if name else np.nan for name in names.tolist()])
                return np.asarray(np.where(np.isfinite(values), values, np.nan)[numbers])
    return numbers.astype(np.int64)


def _seconds(text: str) -> float:
    """Read a date, as ISO 8601 or EXIF writes it."""
    found = datetime.fromisoformat(text[:10].replace(":", "-") + text[10:])
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _known(text: str) -> str:
    return "" if text.strip().lower() in _UNKNOWN else text.strip()


@dataclass(frozen=True, eq=False)
class KeptAbout:
    """Table about the samples of a run, kept by their content."""

    keys: Sequence[bytes]  # content keys of the samples
    columns: About  # text of each sample in each column
    group: str | None = None  # column of what belongs together; `None` if none was named

    def places(self, keys: Sequence[bytes]) -> IntArray:
        """Find samples by their content keys: ``(n,)`` positions, -1 for those that the run does not know."""
        return find_places(*(Column(keys_of(each).array) for each in (keys, self.keys)))

    def of(self, samples: Samples, rows: IntArray | None = None) -> About:
        """Return the texts of samples, or of those at ``rows``; of new ones, those that image files tell."""
        rows = np.arange(len(samples)) if rows is None else rows
        places = self.places(keys_of(samples.keys).take(rows))
        new, found = np.flatnonzero(places < 0), self.columns
        if len(new):
            own = read_own(samples, rows[new])
            if silent := [name for name in found if name not in own]:
                names = ", ".join(shown(name, 40) for name in silent[:3])
                told = f"{len(new):,} new samples lack values of {names}"
                warn(f"{told}: give a table with such columns, `about`")
            places[new] = len(self.keys) + np.arange(len(new))
            found = {name: [*texts, *own.get(name, [""] * len(new))] for name, texts in found.items()}
        return choose_rows(found, places)

    def save(self, path: Path) -> None:
        """Write a file that :meth:`load` reads."""
        keys = keys_of(self.keys).array.view(np.uint8).reshape(-1, KEY_BYTES)
        words = [[*self.columns, self.group], *self.columns.values()]
        texts = [np.frombuffer(json.dumps(each).encode(), np.uint8) for each in words]
        write_atomically(path, lambda file: np.savez(file, *texts, keys=keys))

    @classmethod
    def load(cls, path: Path) -> KeptAbout | None:
        """Read the table that a run keeps; ``None`` if it keeps none."""
        try:
            found = read_arrays(path)
            keys = Column[bytes](found.pop("keys").view(KEY_TYPE).ravel())
            words: list[Any] = [
                parse_json(require_few(found[f"arr_{place}"].tobytes(), path)) for place in range(len(found))
            ]
            (*names, group), *columns = words
            for texts in ([*names, group or ""], *columns):
                if not all(isinstance(text, str) for text in texts):
                    raise TypeError("a text is none")
            if any(len(texts) != len(keys) for texts in columns):
                raise ValueError("its columns do not fit together")
            return cls(keys, dict(zip(names, columns, strict=True)), group)
        except FileNotFoundError:
            return None
        except (OSError, DamagedFileError, ValueError, KeyError, TypeError) as error:
            remedy = "delete it, and give its table again as `about` where its columns are needed"
            raise DamagedFileError(f"{path} is damaged ({error}): {remedy}") from None


def join_about(
    kept: KeptAbout | None,
    samples: Samples,  # that were given
    about: str | Path | None,  # table about them; see `KeptAbout.of` for what is known without
    group: str | None,  # column of what belongs together; that of the run if there is none
    keys: Sequence[bytes],  # of the samples that are wanted
) -> KeptAbout | None:
    """Join the table that a run keeps and one about other samples; ``None`` if there is neither."""
    if about is None and group is None and kept is None:
        return None
    old = KeptAbout([], {}) if kept is None else kept
    new, columns = np.flatnonzero(old.places(samples.keys) < 0), About()
    if len(new):
        columns = old.of(samples, new) if about is None and old.columns else find_about(samples, about, new)
    both = (old, KeptAbout(keys_of(samples.keys).take(new), columns))
    found = {name: [""] * len(keys) for each in both for name in each.columns}
    for each in both:
        places = each.places(keys)
        here = np.flatnonzero(places >= 0)
        for name, texts in choose_rows(each.columns, places[here]).items():
            for row, text in zip(here.tolist(), texts, strict=True):
                found[name][row] = text
    if (group := group or old.group) is not None:
        column_of(found, group)
    return KeptAbout(keys, found, group)
