"""What is known of the usual data sets, to tell a complete copy from a damaged one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ucds.data.folders import Scan, scan_domains
from ucds.data.ground_truth import read_ground_truth
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
    names = {_plain(name) for name in domain_names}
    for layout in LAYOUTS:
        if len(names) >= 2 and names <= {_plain(name) for name in layout.counts}:
            return layout
    return None


def check_layout(scan: Scan, *, with_classes: bool = True) -> LayoutReport | None:
    """Compare the files found with the published counts of the data set they seem to be.

    Args:
        scan: the files.
        with_classes: whether to count class folders too; who trains does not look at them.

    Returns:
        `None` if the domains are of no known data set.

    Warns:
        UcdsWarning: counts or classes differ; the copy may be incomplete, or another release.
    """
    layout = recognise(scan.domain_names)
    if layout is None:
        return None
    expected = {_plain(name): count for name, count in layout.counts.items()}
    lines, mismatches = [], []
    for d, name in enumerate(scan.domain_names):
        found, wanted = int((scan.domain == d).sum()), expected[_plain(name)]
        lines.append(f"{layout.name}: {name} {found:,} images, {_expected(found, wanted)}")
        mismatches += lines[-1:] if found != wanted else []
    if with_classes:
        truth = read_ground_truth(scan)
        n_classes = truth.n_classes if truth is not None else 0
        lines.append(f"{layout.name}: {n_classes} classes, {_expected(n_classes, layout.n_classes)}")
        mismatches += lines[-1:] if n_classes != layout.n_classes else []
    if mismatches:
        message = "; ".join(mismatches) + ". The copy may be incomplete or another release."
        warnings.warn(message, UcdsWarning, stacklevel=2)
    return LayoutReport(layout, tuple(lines), tuple(mismatches))


def tell_layout(
    path: Path, domains: Sequence[str] | None, say: Callable[[str], None], *, with_classes: bool
) -> None:
    """Say what was found in a folder, line by line, if it is a known data set; see :func:`check_layout`."""
    scan = scan_domains(path, domains) if path.is_dir() else None
    report = check_layout(scan, with_classes=with_classes) if scan is not None else None
    for line in report.lines if report is not None else ():
        say(line)


def _expected(found: int, wanted: int) -> str:
    return "as expected" if found == wanted else f"but {wanted:,} expected"


def _plain(name: str) -> str:
    return "".join(character for character in name.lower() if character not in " _-")
