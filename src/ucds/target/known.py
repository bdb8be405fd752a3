"""Opens the samples of a run where they lie: where its training found them, and each update of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ucds.data.columns import read_texts
from ucds.data.content import Column, find_places, keys_of, texts_of
from ucds.data.dataset import Dataset
from ucds.data.features import Pictures
from ucds.data.folders import Scan
from ucds.data.samples import Samples
from ucds.data.sources import Source, place_of
from ucds.errors import InputError, UserError
from ucds.math.arrays import IntArray
from ucds.target.remembered import Remembered
from ucds.training.loaded import Model


@dataclass(frozen=True, eq=False)
class Gathered:
    """Rows ``(n,)`` of several collections of samples, or of their pictures."""

    parts: Sequence[Samples | Pictures | Gathered]
    part: IntArray  # collection of each row
    row: IntArray  # its position there

    @property
    def origins(self) -> list[tuple[int, int]]:
        """Collection of each row, and its position there."""
        return list(zip(self.part.tolist(), self.row.tolist(), strict=True))

    def read(self, index: IntArray) -> NDArray[Any]:
        """Read the rows at positions ``index``."""
        part, row = self.part[index], self.row[index]
        order = np.argsort(part, kind="stable")
        rows = np.concatenate([self.parts[number].read(row[part == number]) for number in np.unique(part)])
        return rows[np.argsort(order)]

    def is_there(self, position: int) -> bool:
        """Return whether a row can be read; pictures of a folder of features may be gone."""
        part = self.parts[self.part[position]]
        return not isinstance(part, Pictures) or part.is_there(int(self.row[position]))


class KnownSamples(Samples):
    """Samples that a run remembers, found by their content, under the ids that they have in the run."""

    def __init__(self, remembered: Remembered, parts: Sequence[Samples]) -> None:
        part, row = np.full((2, len(remembered.ids)), -1)
        for number, samples in reversed(list(enumerate(parts))):
            places = find_places(*(Column(keys_of(each.keys).array) for each in (remembered, samples)))
            part[places >= 0], row[places >= 0] = number, places[places >= 0]
        here, self.parts = np.flatnonzero(part >= 0), parts
        self.rows = Gathered(parts, part[here], row[here])
        paths = [parts[number].readable_paths[place] for number, place in self.rows.origins]
        ids, domain = texts_of(remembered.ids).take(here), np.zeros(len(here), np.int64)
        super().__init__(ids, domain, parts[0].domain_names, paths=paths)
        self.kind, self.columns = parts[0].kind, parts[0].columns
        self.keys = keys_of(remembered.keys).take(here)
        self.skipped = sum(samples.skipped for samples in parts)
        if all(samples.files is not None for samples in parts):
            scans = [samples.files for samples in parts if samples.files is not None]
            root = scans[0].root.resolve()
            files = [
                os.path.relpath(scans[p].root.resolve() / scans[p].paths[i], root)
                for p, i in self.rows.origins
            ]
            self.files = Scan(root, texts_of(files), domain, self.domain_names, ids)

    def read(self, index: IntArray) -> NDArray[Any]:
        """Read the samples at positions ``index``, each from its place."""
        return self.rows.read(np.asarray(index, np.int64))


class Opened(NamedTuple):
    """Samples that were opened, texts of some by their ids, and what a person should know of the others."""

    data: Dataset
    texts: Mapping[str, str]
    told: Sequence[str] = ()


def places_in(described: Mapping[str, Any]) -> list[Path]:
    """Return where the samples of a run lay, by its description: the latest place first."""
    places = [described.get("images"), *(described.get("earlier") or ())]
    return [Path(place) for place in dict.fromkeys(each for each in places if isinstance(each, str))]


def open_samples(model: Model, source: Source) -> Opened:
    """Open samples that a user has named."""
    place = place_of(source)
    return Opened(model.open(source), {} if place is None else read_texts(place))


def open_known(
    model: Model, described: Mapping[str, Any], remembered: Remembered | None, moved: Source | None = None
) -> Opened:
    """Open the samples of a run where they lie now.

    Where they are no longer as the training found them, or lie in several places, those are opened that the
    run remembers, and no others: a run that somebody else made may name any place.
    """
    places: list[Any] = [*places_in(described)] if moved is None else [moved]
    if not places:
        raise InputError("the run does not say where its samples lie: name their folder as `images`")
    opened, problems = list[Opened](), list[UserError]()
    for place in places:
        try:
            if moved is None and not Path(place).exists():
                there = f"the samples of the run were in {place}"
                raise InputError(f"{there}, which is gone: give their new folder as `images`")
            opened.append(open_samples(model, place))
        except UserError as error:
            problems.append(error)
    if not opened:
        raise problems[0]
    first = opened[0]
    same = first.data.samples.fingerprint == described.get("data")
    if len(places) == 1 and (same or (remembered is None and moved is not None)):
        return first
    found = None if remembered is None else KnownSamples(remembered, [each.data.samples for each in opened])
    if found is None or remembered is None or not len(found):
        raise InputError(
            f"{places[0]} does not hold the run's samples: give the folder that holds them as `images`"
        )
    names = [opened[number].data.samples.ids[row] for number, row in found.rows.origins]
    rows = zip(found.ids, names, found.rows.part.tolist(), strict=True)
    texts = {own: opened[number].texts.get(name, "") for own, name, number in rows}
    known = keys_of(remembered.keys).array
    gone, told = len(known) - len(found), list[str]()
    new = sum(int((~np.isin(keys_of(each.data.samples.keys).array, known)).sum()) for each in opened)
    if gone:
        lost = f"{gone:,} of {len(known):,} samples of the run are no longer where it found them"
        told.append(f"{lost}: name a folder that holds all as `images`")
    if new:
        told.append(f"{new:,} samples there are new to the run, and left out: `ucds update` takes them in")
    return Opened(Dataset(found, first.data.view), {own: text for own, text in texts.items() if text}, told)
