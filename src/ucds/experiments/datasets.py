"""The data sets of the paper: where benchmarks find them below ``--data``, their counts, and their subsets.

No training command uses the subsets, because some are made from labels that users do not have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ucds.data.ground_truth import GroundTruth
from ucds.data.samples import Listing
from ucds.errors import InputError, warn
from ucds.math.arrays import IntArray

_RARE_SHARE = 0.3  # of the samples of a rare class is kept
_TAIL = 10.0  # quotient of the largest share of a class and the smallest
_SMALL = 100  # samples of a small target


@dataclass(frozen=True)
class Known:
    """A data set of the paper."""

    title: str
    folders: tuple[str, ...]  # usual names of its folder
    form: str  # of the paths in it
    counts: Mapping[str, int]  # number of images of each domain, under the usual folder name
    n_classes: int
    same_objects: Mapping[str, str] = field(default_factory=dict)  # name of the objects, by domain


KNOWN = {
    "office31": Known(
        "Office-31 (common release)",
        ("office31", "Office-31"),
        "<domain>[/images]/<class>/*",
        {"amazon": 2817, "dslr": 498, "webcam": 795},
        31,
        {"dslr": "office", "webcam": "office"},
    ),
    "officehome": Known(
        "Office-Home",
        ("OfficeHome", "OfficeHomeDataset_10072016"),
        "<domain>/<class>/*",
        {"Art": 2427, "Clipart": 4365, "Product": 4439, "Real World": 4357},
        65,
    ),
    "pacs": Known(
        "PACS",
        ("PACS",),
        "[kfold/]<domain>/<class>/*",
        {"photo": 1670, "art_painting": 2048, "cartoon": 2344, "sketch": 3929},
        7,
    ),
}
"""Data sets by the name that benchmarks give them."""


def objects_in(dataset: str, domain: str) -> str:
    """Return a name for the objects that a domain shows; it is equal for domains with the same objects."""
    known = KNOWN.get(dataset)
    return domain if known is None else known.same_objects.get(domain, domain)


def check_counts(dataset: str, samples: Listing, n_classes: int) -> None:
    """Compare a copy of a known data set with the published counts, and warn if they differ."""
    known = KNOWN.get(dataset)
    if known is None:
        return
    expected = {plain_name(name): count for name, count in known.counts.items()}
    counts = np.bincount(samples.domain, minlength=len(samples.domain_names))
    found = zip(samples.domain_names, counts.tolist(), strict=True)
    compared = [(f"images of {name}", count, expected[plain_name(name)]) for name, count in found]
    compared.append(("classes", n_classes, known.n_classes))
    differ = [f"{count:,} {what}, {wanted:,} expected" for what, count, wanted in compared if count != wanted]
    if differ:
        reason = "The copy may be incomplete or another release."
        warn(f"{known.title}: {'; '.join(differ)}. {reason}")


def plain_name(name: str) -> str:
    """Return a folder name in the form that is compared: lower case, no separators."""
    return "".join(character for character in name.lower() if character not in " _-")


@dataclass(frozen=True)
class Located:
    """A data set on this machine."""

    path: Path
    folders: dict[str, str]  # of each domain, by the name that the benchmark uses
    domains: list[str] | None  # folders that take part; None stands for all, as of an unknown data set


def locate(data: Path, name: str, targets: Sequence[str]) -> Located:
    """Find a data set: ``data`` itself, the folder in it of this name, or the only folder in either.

    Case, spaces, hyphens and underscores in folder names do not matter. All domains of
    a known data set must be there, because all take part; of others, the ``targets``. Folders of other names
    are left alone. The name ``""`` stands for the data set that ``data`` is.
    """
    known = KNOWN.get(name)
    wanted = tuple(known.counts) if known is not None else tuple(targets)
    names = {plain_name(given) for given in (name, *(known.folders if known is not None else ())) if given}
    places = [data, *(data / folder for folder in _folders(data) if plain_name(folder) in names)]
    for place in tuple(places):
        if len(inner := _folders(place)) == 1:  # as in PACS/kfold
            places.append(place / inner[0])
    best = max(places, key=lambda place: len(_matching(place, wanted)))
    found = _matching(best, wanted)
    missing = [domain for domain in wanted if domain not in found]
    if missing and known is not None:
        folder = known.folders[0]
        raise InputError(
            f"{known.title} is incomplete below {data}: it has no domain {', '.join(missing)}; put it at "
            f"{data / folder}/{known.form}"
        )
    if missing and not found:
        raise InputError(f"{data} has no domain {', '.join(missing)}: it needs one folder per domain")
    return Located(best, found, None if known is None else sorted(found.values()))


def _matching(place: Path, wanted: Sequence[str]) -> dict[str, str]:
    folders = {plain_name(folder): folder for folder in _folders(place)}
    return {domain: folders[plain_name(domain)] for domain in wanted if plain_name(domain) in folders}


def _folders(place: Path) -> list[str]:
    if not place.is_dir():
        return []
    return sorted(
        entry.name for entry in place.iterdir() if entry.is_dir() and not entry.name.startswith(".")
    )


def imbalanced_subset(truth: GroundTruth, domain: IntArray) -> IntArray:
    """Choose the ascending positions of the samples that are left when half of the classes become rare.

    Of K classes in alphabetical order, the first ``K // 2`` keep ``int(0.3 * n)`` of their n samples in
    each domain, chosen at random with seed 0, as in the authors' earlier code; the others keep all. The
    same subset serves for training and testing. Each domain's choice depends on that domain alone, so that
    it does not matter which other domains are loaded. ``domain`` holds that of each of the ``(n,)`` samples.
    """
    kept = np.ones(len(domain), dtype=bool)
    for d in np.unique(domain):
        generator = np.random.default_rng(0)
        for k in range(truth.n_classes // 2):
            members = np.flatnonzero((domain == d) & (truth.classes == k))
            kept[generator.permutation(members)[int(_RARE_SHARE * len(members)) :]] = False
    return np.flatnonzero(kept)


def long_tail_subset(truth: GroundTruth, domain: IntArray, seed: int = 0) -> IntArray:
    """Choose the ascending positions of the samples that are left when class sizes fall geometrically.

    The classes come in an order that the seed decides; the r-th of K keeps the share ``10 ** (-r / (K - 1))``
    of its samples in each domain, chosen at random, but at least two samples if it has them.
    """
    kept = []
    for d in np.unique(domain):
        generator = np.random.default_rng(seed)
        for rank, k in enumerate(generator.permutation(truth.n_classes)):
            members = generator.permutation(np.flatnonzero((domain == d) & (truth.classes == k)))
            share = _TAIL ** (-rank / max(truth.n_classes - 1, 1))
            kept.append(members[: max(2, int(share * len(members)))])
    return np.sort(np.concatenate(kept))


def small_subset(positions: IntArray, seed: int = 0) -> IntArray:
    """Choose 100 of some positions at random, ascending; all of them if there are no more."""
    return np.sort(np.random.default_rng(seed).permutation(positions)[:_SMALL])
