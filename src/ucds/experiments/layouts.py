"""Published counts of the usual data sets, to tell a complete copy from a damaged one."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ucds.data.samples import Listing
from ucds.errors import UcdsWarning


@dataclass(frozen=True)
class Layout:
    """A published data set.

    Attributes:
        name: name of the data set.
        counts: number of images of each domain, under the usual folder name.
        n_classes: number of classes.
        same_objects: domains that are photographs of the same objects, under one name of the objects.
    """

    name: str
    counts: Mapping[str, int]
    n_classes: int
    same_objects: Mapping[str, str] = field(default_factory=dict)


OFFICE_31 = Layout(
    "Office-31 (common release)",
    {"amazon": 2817, "dslr": 498, "webcam": 795},
    31,
    {"dslr": "office", "webcam": "office"},
)
OFFICE_HOME = Layout("Office-Home", {"Art": 2427, "Clipart": 4365, "Product": 4439, "Real World": 4357}, 65)
PACS = Layout("PACS", {"photo": 1670, "art_painting": 2048, "cartoon": 2344, "sketch": 3929}, 7)
LAYOUTS = (OFFICE_31, OFFICE_HOME, PACS)


def recognise(domain_names: Sequence[str]) -> Layout | None:
    """Return the published data set that has all these domains, two at least; ``None`` otherwise.

    Case, spaces, hyphens and underscores in folder names do not matter.
    """
    names = {plain_name(name) for name in domain_names}
    for layout in LAYOUTS:
        if len(names) >= 2 and names <= {plain_name(name) for name in layout.counts}:
            return layout
    return None


def check_layout(samples: Listing, n_classes: int | None = None) -> list[str]:
    """Compare a copy of a data set with the published counts.

    Args:
        samples: samples, or the files of a scan.
        n_classes: number of class folders; ``None`` if nobody has looked at them.

    Returns:
        One printable line per domain, and one for the classes if they were counted; none if the domains are
        of no known data set.

    Warns:
        UcdsWarning: counts or classes differ; the copy may be incomplete, or another release.
    """
    layout = recognise(samples.domain_names)
    if layout is None:
        return []
    expected = {plain_name(name): count for name, count in layout.counts.items()}
    compared = []
    for d, name in enumerate(samples.domain_names):
        found = int((samples.domain == d).sum())
        compared.append((f"{name} {found:,} images", found, expected[plain_name(name)]))
    if n_classes is not None:
        compared.append((f"{n_classes} classes", n_classes, layout.n_classes))
    lines, mismatches = [], []
    for words, found, wanted in compared:
        outcome = "as expected" if found == wanted else f"but {wanted:,} expected"
        lines.append(f"{layout.name}: {words}, {outcome}")
        if found != wanted:
            mismatches.append(lines[-1])
    if mismatches:
        message = "; ".join(mismatches) + ". The copy may be incomplete or another release."
        warnings.warn(message, UcdsWarning, stacklevel=2)
    return lines


def plain_name(name: str) -> str:
    """Bring a folder name to the form in which names are compared: lower case, no separators."""
    return "".join(character for character in name.lower() if character not in " _-")
