"""What is known of the usual data sets, to tell a complete copy from a damaged one."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ucds.data.content import IntArray
from ucds.errors import UcdsWarning


@dataclass(frozen=True)
class Layout:
    """A published data set: images of each domain (under the usual folder name), and classes."""

    name: str
    counts: Mapping[str, int]
    n_classes: int


OFFICE_31 = Layout("Office-31 (common release)", {"amazon": 2817, "dslr": 498, "webcam": 795}, 31)
OFFICE_HOME = Layout("Office-Home", {"Art": 2427, "Clipart": 4365, "Product": 4439, "Real World": 4357}, 65)
PACS = Layout("PACS", {"photo": 1670, "art_painting": 2048, "cartoon": 2344, "sketch": 3929}, 7)
LAYOUTS = (OFFICE_31, OFFICE_HOME, PACS)


class Domains(Protocol):
    """What is needed of samples, or of a scan: which domain each one belongs to."""

    @property
    def domain(self) -> IntArray:
        """Positions in ``domain_names``, ``(n,)`` int64."""
        ...

    @property
    def domain_names(self) -> tuple[str, ...]:
        """Names of the domains."""
        ...


@dataclass(frozen=True)
class LayoutReport:
    """What was found in a known data set, against what is expected.

    Attributes:
        layout: the data set.
        lines: one per domain and one for the classes, to be printed.
        mismatches: those of the lines that tell of a difference.
    """

    layout: Layout
    lines: tuple[str, ...]
    mismatches: tuple[str, ...] = field(default=())


def recognise(domain_names: Sequence[str]) -> Layout | None:
    """The known data set whose domains these are, all of them or at least two; `None` otherwise.

    Case, spaces, hyphens and underscores in folder names do not matter.
    """
    names = {plain_name(name) for name in domain_names}
    for layout in LAYOUTS:
        if len(names) >= 2 and names <= {plain_name(name) for name in layout.counts}:
            return layout
    return None


def check_layout(samples: Domains, n_classes: int | None = None) -> LayoutReport | None:
    """Compare what was found with the published counts of the data set that it seems to be.

    Args:
        samples: samples, or the files of a scan.
        n_classes: number of class folders; ``None`` if nobody has looked at them.

    Returns:
        ``None`` if the domains are of no known data set.

    Warns:
        UcdsWarning: counts or classes differ; the copy may be incomplete, or another release.
    """
    layout = recognise(samples.domain_names)
    if layout is None:
        return None
    expected = {plain_name(name): count for name, count in layout.counts.items()}
    lines, mismatches = [], []
    for d, name in enumerate(samples.domain_names):
        found, wanted = int((samples.domain == d).sum()), expected[plain_name(name)]
        lines.append(f"{layout.name}: {name} {found:,} images, {_expected(found, wanted)}")
        mismatches += lines[-1:] if found != wanted else []
    if n_classes is not None:
        lines.append(f"{layout.name}: {n_classes} classes, {_expected(n_classes, layout.n_classes)}")
        mismatches += lines[-1:] if n_classes != layout.n_classes else []
    if mismatches:
        message = "; ".join(mismatches) + ". The copy may be incomplete or another release."
        warnings.warn(message, UcdsWarning, stacklevel=2)
    return LayoutReport(layout, tuple(lines), tuple(mismatches))


def _expected(found: int, wanted: int) -> str:
    return "as expected" if found == wanted else f"but {wanted:,} expected"


def plain_name(name: str) -> str:
    """Bring a folder name to the form in which names are compared: lower case, no separators."""
    return "".join(character for character in name.lower() if character not in " _-")
