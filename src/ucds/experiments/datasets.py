"""Finds the data sets of a benchmark below ``--data``, under the folder names that publishers gave them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ucds.errors import InputError
from ucds.experiments.layouts import OFFICE_31, OFFICE_HOME, PACS, Layout, plain_name


@dataclass(frozen=True)
class Known:
    """A data set of the paper: its domains, the usual names of its folder, and the form of its paths."""

    layout: Layout
    folders: tuple[str, ...]
    form: str


KNOWN = {
    "office31": Known(OFFICE_31, ("office31", "Office-31"), "<domain>[/images]/<class>/*"),
    "officehome": Known(OFFICE_HOME, ("OfficeHome", "OfficeHomeDataset_10072016"), "<domain>/<class>/*"),
    "pacs": Known(PACS, ("PACS",), "[kfold/]<domain>/<class>/*"),
}
"""Data sets by the name that benchmarks give them."""


def objects_in(dataset: str, domain: str) -> str:
    """Return a name of the objects that a domain shows, equal for domains that show the same objects.

    Args:
        dataset: name of the data set, as benchmarks give it.
        domain: name of the domain.
    """
    known = KNOWN.get(dataset)
    return domain if known is None else known.layout.same_objects.get(domain, domain)


@dataclass(frozen=True)
class Located:
    """A data set on this machine.

    Attributes:
        path: folder of the data set.
        folders: name of each domain's folder, by the name that the benchmark uses.
        whole: whether these domains alone take part; of an unknown data set all folders do.
    """

    path: Path
    folders: dict[str, str]
    whole: bool

    @property
    def domains(self) -> list[str] | None:
        """Folders of the domains that take part; ``None`` stands for all."""
        return sorted(self.folders.values()) if self.whole else None


def locate(data: Path, name: str, targets: Sequence[str]) -> Located:
    """Find a data set: ``data`` itself, or a folder of the data set's name in it.

    Case, spaces, hyphens and underscores in folder names do not matter. Of a known data set all domains
    must be there, for all take part; folders of other names are left alone.

    Args:
        data: folder of one data set or of several.
        name: name of the data set; ``""`` for the one that ``data`` is.
        targets: domains of the data set that the benchmark asks for.

    Raises:
        InputError: a domain is not there; the message says what to put where.
    """
    known = KNOWN.get(name)
    wanted = tuple(known.layout.counts) if known is not None else tuple(targets)
    places = [_unwrapped(place, wanted) for place in [data, *_named(data, name, known)]]
    best = max(places, key=lambda place: len(_matching(place, wanted)))
    found = _matching(best, wanted)
    missing = [domain for domain in wanted if domain not in found]
    if missing and known is not None:
        folder = known.folders[0]
        raise InputError(
            f"{known.layout.name} is not whole below {data}: no domain {', '.join(missing)}; put it at "
            f"{data / folder}/{known.form}"
        )
    if missing and not found:
        raise InputError(f"{data} has no domain {', '.join(missing)}: it needs one folder a domain")
    return Located(best, found, whole=known is not None)


def _named(data: Path, name: str, known: Known | None) -> list[Path]:
    names = {plain_name(folder) for folder in (name, *(known.folders if known is not None else ())) if folder}
    return [data / folder for folder in _folders(data) if plain_name(folder) in names]


def _unwrapped(place: Path, wanted: Sequence[str]) -> Path:
    """Return the folder that holds the domains: the place, or its only sub-folder (``PACS/kfold``)."""
    inner = _folders(place)
    if len(inner) == 1 and not _matching(place, wanted) and _matching(place / inner[0], wanted):
        return place / inner[0]
    return place


def _matching(place: Path, wanted: Sequence[str]) -> dict[str, str]:
    folders = {plain_name(folder): folder for folder in _folders(place)}
    return {domain: folders[plain_name(domain)] for domain in wanted if plain_name(domain) in folders}


def _folders(place: Path) -> list[str]:
    if not place.is_dir():
        return []
    return sorted(
        entry.name for entry in place.iterdir() if entry.is_dir() and not entry.name.startswith(".")
    )
