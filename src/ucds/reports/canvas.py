"""What all figures share: colours, style, and how they are written."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ucds.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# P. Tol's "muted" scheme, made to be told apart under all common colour-vision deficiencies, and a grey.
COLOURS = [
    "#332288",
    "#CC6677",
    "#117733",
    "#DDCC77",
    "#88CCEE",
    "#AA4499",
    "#44AA99",
    "#882255",
    "#999933",
    "#666666",
]
# No common factor with the number of colours: 70 classes differ in the pair, neighbours in both.
MARKERS = "o^sDvP<"

INK = "#222222"

STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "svg.hashsalt": "ucds",  # or element names, and with them the file, would differ at each run
}
DOTS_PER_INCH = 200
PAGE_WIDTH = 7.0  # inches


class FigureFiles(NamedTuple):
    """Where a figure was written."""

    png: Path
    svg: Path


def style() -> contextlib.AbstractContextManager[None]:
    """Our settings for the time of one figure; the caller's own stay as they were."""
    import matplotlib

    return matplotlib.rc_context(STYLE)


def blank_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, without pyplot: no window, no global list of figures."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path) -> FigureFiles:
    """Writes both formats, free of dates and versions, so that equal figures are equal files."""
    files = FigureFiles(path.with_suffix(".png"), path.with_suffix(".svg"))
    no_software, no_date = {"Software": None}, {"Date": None}
    write_atomically(
        files.png, lambda file: figure.savefig(file, format="png", dpi=DOTS_PER_INCH, metadata=no_software)
    )
    write_atomically(files.svg, lambda file: figure.savefig(file, format="svg", metadata=no_date))
    return files


def look(klass: int) -> tuple[str, str]:
    """Colour and marker of a class."""
    return COLOURS[klass % len(COLOURS)], MARKERS[klass % len(MARKERS)]
