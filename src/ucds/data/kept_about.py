"""The table about its samples that a run keeps, by their content."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ucds.data.about import About, choose_rows, column_of, find_about, read_own
from ucds.data.content import KEY_BYTES, KEY_TYPE, Column, find_places, keys_of
from ucds.data.samples import Samples
from ucds.data.vectors import read_arrays
from ucds.errors import DamagedFileError, shown, warn
from ucds.files import parse_json, write_atomically
from ucds.math.arrays import IntArray
from ucds.received import require_few


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
