"""Colours, style and file formats that all figures share."""

from __future__ import annotations

import contextlib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ucds.errors import InputError
from ucds.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# P. Tol's "muted" scheme, made to be told apart under all common colour-vision deficiencies, and a grey.
COLOURS = (
    *("#332288", "#CC6677", "#117733", "#DDCC77", "#88CCEE"),
    *("#AA4499", "#44AA99", "#882255", "#999933", "#666666"),
)
# P. Tol's "light" scheme, for dark backgrounds, on which several of the above can hardly be seen.
DARK_COLOURS = (
    *("#77AADD", "#EE8866", "#EEDD88", "#FFAABB", "#99DDFF"),
    *("#44BB99", "#BBCC33", "#AAAA00", "#DDDDDD"),
)
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
    """Files of a figure."""

    png: Path
    svg: Path


def style() -> contextlib.AbstractContextManager[None]:
    """Apply this package's style within a ``with`` block; the caller's own stays as it was.

    Raises:
        InputError: matplotlib is not installed.
    """
    require_matplotlib()
    import matplotlib

    return matplotlib.rc_context(STYLE)


def require_matplotlib() -> None:
    """Make sure that figures can be drawn.

    Raises:
        InputError: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise InputError("figures need matplotlib: pip install 'ucds[figures]'")


def blank_figure(width: float, height: float) -> Figure:
    """Make an empty figure, sizes in inches, without pyplot: no window, no global list of figures."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path) -> FigureFiles:
    """Write both formats, free of dates and versions, so that equal figures are equal files."""
    files = FigureFiles(path.with_suffix(".png"), path.with_suffix(".svg"))
    no_software, no_date = {"Software": None}, {"Date": None}
    write_atomically(
        files.png, lambda file: figure.savefig(file, format="png", dpi=DOTS_PER_INCH, metadata=no_software)
    )
    write_atomically(files.svg, lambda file: figure.savefig(file, format="svg", metadata=no_date))
    return files


def colour_and_marker(klass: int) -> tuple[str, str]:
    """Choose the colour and the marker of a class."""
    return COLOURS[klass % len(COLOURS)], MARKERS[klass % len(MARKERS)]
