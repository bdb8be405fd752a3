"""Figures for papers and reports, each as PNG and SVG: samples, proportions, features before and after."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ucds.files import write_atomically
from ucds.metrics import proportions_l1

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

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

TRUE_COLOUR, ESTIMATED_COLOUR = "#332288", "#DDCC77"
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

# t-SNE takes a minute for ten thousand points, which no figure of this size can show.
MAX_POINTS = 2000
MAX_LEGEND = 40


class FigureFiles(NamedTuple):
    """Where a figure was written."""

    png: Path
    svg: Path


def samples_per_domain(images: Mapping[str, ArrayLike], path: Path) -> FigureFiles:
    """Shows what the domains look like: one row of images each.

    Args:
        images: Name of each domain and its images, ``(m, H, W, 3)`` uint8, in the order of the rows.
        path: Where to write; its suffix is replaced by ``.png`` and ``.svg``.

    Raises:
        ValueError: If there is no domain, or an array is not of that form.
    """
    rows = {name: _images(name, stack) for name, stack in images.items()}
    if not rows:
        raise ValueError("no domains to draw")
    cell = min(0.8, PAGE_WIDTH / max(len(stack) for stack in rows.values()))
    heights = [cell * stack.shape[1] / stack.shape[2] for stack in rows.values()]
    with _style():
        # A row of square cells, and room for the domain's name above it.
        figure = _figure(PAGE_WIDTH, sum(heights) + 0.34 * len(heights))
        columns = max(len(stack) for stack in rows.values())
        axes = figure.subplots(len(rows), 1, squeeze=False, height_ratios=heights)[:, 0]
        for ax, (name, stack) in zip(axes, rows.items(), strict=True):
            _image_row(ax, name, stack, columns)
        return _save(figure, path)


def proportions(true: ArrayLike, estimated: ArrayLike, names: Sequence[str], path: Path) -> FigureFiles:
    """Compares estimated cluster proportions with the true class proportions, class by class.

    The title gives the L1 distance of the estimate, and of the uniform guess it started from.

    Args:
        true: Proportions of the classes, ``(C,)``.
        estimated: Proportions of the clusters in the order of the classes; clusters without a class
            after them (see ``ucds.metrics.proportions_by_class``).
        names: Names of the classes.
        path: Where to write; its suffix is replaced by ``.png`` and ``.svg``.

    Raises:
        ValueError: If the lengths do not fit, or these are no proportions.
    """
    truth, found = np.asarray(true, dtype=np.float64), np.asarray(estimated, dtype=np.float64)
    if len(names) != len(truth):
        raise ValueError(f"{len(names)} names cannot label {len(truth)} classes")
    uniform = np.full(len(found), 1 / len(found))
    distance, of_uniform = proportions_l1(found, truth), proportions_l1(uniform, truth)
    labels = [*names, *("no class" for _ in range(len(found) - len(truth)))]
    with _style():
        figure = _figure(PAGE_WIDTH, 2.9)
        ax = figure.subplots()
        _proportion_bars(ax, np.pad(truth, (0, len(found) - len(truth))), found)
        ax.axhline(uniform[0], color=INK, linestyle="--", linewidth=0.9, label="uniform")
        _name_ticks(ax, labels)
        ax.set_ylabel("share of samples (%)")
        handles, texts = ax.get_legend_handles_labels()
        order = sorted(range(3), key=lambda i: ("true", "estimated", "uniform").index(texts[i]))
        ax.legend(
            [handles[i] for i in order],
            [texts[i] for i in order],
            frameon=False,
            ncols=3,
            loc="lower left",
            bbox_to_anchor=(0, 1),
            borderaxespad=0,
            borderpad=0.2,
        )
        title = f"L1 distance to the true proportions: estimated {distance:.3f}, uniform {of_uniform:.3f}"
        ax.set_title(title, loc="left", pad=22)
        return _save(figure, path)


def tsne_before_after(
    before_features: ArrayLike,
    after_features: ArrayLike,
    prototypes_after: ArrayLike,
    classes: ArrayLike,
    path: Path,
    seed: int,
    *,
    names: Sequence[str] | None = None,
    titles: tuple[str, str] = ("before", "after"),
) -> FigureFiles:
    """Shows features before and after training in the plane, coloured by class, prototypes as stars.

    Directions are embedded, not lengths, as the transport cost compares them: features and prototypes
    are brought to length 1, and embedded together. A random 2,000 samples are drawn if there are more.

    Args:
        before_features: Features before training, ``(n, d)``.
        after_features: Features after training, ``(n, d_f)``.
        prototypes_after: Prototypes after training, ``(d_f, K)``, as the model holds them.
        classes: Class of each sample, ``(n,)`` integers from 0; they give colours and markers only.
        path: Where to write; its suffix is replaced by ``.png`` and ``.svg``.
        seed: Seed of the embedding and of the choice of samples.
        names: Names of the classes, for a legend.
        titles: Titles of the two panels.

    Raises:
        ValueError: If the shapes do not fit together, or there are fewer than 5 samples.

    Source:
        L. van der Maaten and G. Hinton, Visualizing data using t-SNE, 2008.
    """
    before, after, stars, truth = _features(before_features, after_features, prototypes_after, classes)
    n = len(truth)
    shown = np.sort(np.random.default_rng(seed).permutation(n)[:MAX_POINTS])
    points_before = _embed(before[shown], seed)
    points_after = _embed(np.concatenate([after[shown], stars.T]), seed)
    if n > len(shown):
        titles = (f"{titles[0]} ({len(shown):,} of {n:,} samples)", titles[1])
    with _style():
        legend = _legend_entries(truth, names)
        figure = _figure(PAGE_WIDTH, PAGE_WIDTH / 2 + 0.3 + 0.19 * legend.rows)
        left, right = figure.subplots(1, 2)
        _scatter(left, points_before, points_before, truth[shown], titles[0])
        _scatter(right, points_after[: len(shown)], points_after, truth[shown], titles[1])
        _stars(right, points_after[len(shown) :])
        figure.legend(
            handles=legend.handles,
            loc="outside lower center",
            ncols=legend.columns,
            fontsize=8,
            frameon=False,
            handletextpad=0.1,
            borderpad=0.1,
        )
        return _save(figure, path)


def _style() -> contextlib.AbstractContextManager[None]:
    """Our settings for the time of one figure; the caller's own stay as they were."""
    import matplotlib

    return matplotlib.rc_context(STYLE)


def _figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, without pyplot: no window, no global list of figures."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Figure, path: Path) -> FigureFiles:
    """Writes both formats, free of dates and versions, so that equal figures are equal files."""
    files = FigureFiles(path.with_suffix(".png"), path.with_suffix(".svg"))
    no_software, no_date = {"Software": None}, {"Date": None}
    write_atomically(
        files.png, lambda file: figure.savefig(file, format="png", dpi=DOTS_PER_INCH, metadata=no_software)
    )
    write_atomically(files.svg, lambda file: figure.savefig(file, format="svg", metadata=no_date))
    return files


def _images(name: str, stack: ArrayLike) -> NDArray[np.uint8]:
    array = np.asarray(stack)
    if array.ndim != 4 or array.shape[-1] != 3 or array.dtype != np.uint8 or 0 in array.shape:
        raise ValueError(f"images of '{name}' must be (m, H, W, 3) uint8, not {array.shape} {array.dtype}")
    return array


def _image_row(ax: Axes, name: str, stack: NDArray[np.uint8], columns: int) -> None:
    """Draws images side by side, one unit each, with a small gap."""
    gap, ratio = 0.05, stack.shape[1] / stack.shape[2]
    for position, image in enumerate(stack):
        extent = (position, position + 1 - gap, ratio * (1 - gap), 0)
        ax.imshow(image, extent=extent, interpolation="nearest" if max(image.shape) < 64 else "antialiased")
    ax.set(xlim=(0, columns - gap), ylim=(ratio * (1 - gap), 0), aspect="equal", anchor="W")
    ax.set_title(name, loc="left", pad=3)
    ax.set_axis_off()


def _proportion_bars(ax: Axes, truth: NDArray[np.float64], found: NDArray[np.float64]) -> None:
    from matplotlib.ticker import MaxNLocator

    positions = np.arange(len(found))
    ax.bar(positions - 0.2, truth, 0.4, color=TRUE_COLOUR, label="true")
    ax.bar(
        positions + 0.2, found, 0.4, color=ESTIMATED_COLOUR, edgecolor=INK, linewidth=0.5, label="estimated"
    )
    ax.set_xlim(-0.7, len(found) - 0.3)
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g}")


def _name_ticks(ax: Axes, labels: Sequence[str]) -> None:
    """Names below the bars; upright once they would overlap, smaller once there are many."""
    room = 75 // max(len(labels), 1)  # characters a page width holds, by class
    rotation = 0 if max(map(len, labels)) < room else 90
    size = 9 if len(labels) <= 12 else 8 if len(labels) <= 35 else 5.5
    ax.set_xticks(range(len(labels)), labels, rotation=rotation, fontsize=size)
    ax.tick_params(axis="x", length=0)


def _features(
    before: ArrayLike, after: ArrayLike, prototypes: ArrayLike, classes: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    first, second, stars = (np.asarray(a, dtype=np.float64) for a in (before, after, prototypes))
    truth = np.asarray(classes)
    if first.ndim != 2 or second.ndim != 2 or not len(first) == len(second) == len(truth):
        raise ValueError(
            "features must be (n, d) for the same n samples as the classes, "
            f"not {first.shape}, {second.shape} and {truth.shape}"
        )
    if stars.ndim != 2 or stars.shape[0] != second.shape[1]:
        raise ValueError(f"prototypes must be ({second.shape[1]}, K), not {stars.shape}")
    if not all(np.isfinite(array).all() for array in (first, second, stars)):
        raise ValueError("features and prototypes must be finite to be embedded")
    if len(truth) < 5:
        raise ValueError(f"{len(truth)} samples are too few to embed")
    return first, second, stars, truth.astype(np.int64)


def _embed(vectors: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Directions of vectors ``(n, d)`` in the plane ``(n, 2)``."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    directions = vectors / np.maximum(lengths, np.finfo(np.float64).tiny)
    # scikit-learn divides by the spread, and would crash on features that are all equal, as after a collapse.
    spread = directions.shape[1] > 1 and np.ptp(directions, axis=0).max() > 1e-6
    if spread:
        # The first fifty principal components keep the neighbours, at a fraction of the time.
        components = min(50, *directions.shape)
        directions = PCA(components, svd_solver="full").fit_transform(directions)
    tsne = TSNE(
        perplexity=min(30.0, (len(vectors) - 1) / 3),
        init="pca" if spread else "random",
        learning_rate="auto",
        random_state=seed,
    )
    # One thread: the order of sums, and with it the figure, must not depend on the number of cores.
    with threadpool_limits(1):
        points: NDArray[np.float64] = tsne.fit_transform(directions)
    return points


def _scatter(
    ax: Axes,
    points: NDArray[np.float64],
    extent: NDArray[np.float64],
    classes: NDArray[np.int64],
    title: str,
) -> None:
    """Draws samples in a square that holds all points of ``extent``."""
    size = float(np.clip(6000 / len(points), 5, 20))
    for klass in np.unique(classes):
        x, y = points[classes == klass].T
        colour, marker = _look(klass)
        ax.scatter(x, y, size, color=colour, marker=marker, alpha=0.8, linewidths=0)
    centre = (extent.max(axis=0) + extent.min(axis=0)) / 2
    half = 1.06 * float(np.ptp(extent, axis=0).max()) / 2
    ax.set(xlim=(centre[0] - half, centre[0] + half), ylim=(centre[1] - half, centre[1] + half))
    ax.set(xticks=[], yticks=[], aspect="equal")
    ax.set_title(title)
    ax.spines[:].set_visible(True)
    ax.spines[:].set_color("#BBBBBB")


def _stars(ax: Axes, points: NDArray[np.float64]) -> None:
    size = float(np.clip(1500 / len(points), 35, 130))  # many stars must not hide the samples
    x, y = points.T
    ax.scatter(x, y, size, marker="*", color="black", edgecolors="white", linewidths=0.7, zorder=3)


def _look(klass: int) -> tuple[str, str]:
    return COLOURS[klass % len(COLOURS)], MARKERS[klass % len(MARKERS)]


class _Legend(NamedTuple):
    handles: list[Line2D]
    columns: int
    rows: int


def _legend_entries(classes: NDArray[np.int64], names: Sequence[str] | None) -> _Legend:
    """One entry for each class, if they have names and are not too many, and one for the prototypes."""
    from matplotlib.lines import Line2D

    present = np.unique(classes).tolist()
    named = present if names is not None and len(present) <= MAX_LEGEND else []
    handles = []
    for klass in named:
        colour, marker = _look(klass)
        label = names[klass] if names is not None and klass < len(names) else str(klass)
        handles.append(Line2D([], [], linestyle="", color=colour, marker=marker, markersize=5, label=label))
    handles.append(Line2D([], [], linestyle="", color="black", marker="*", markersize=8, label="prototype"))
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(len(handles), 110 // (longest + 6)))  # 110 characters of this size fill a line
    return _Legend(handles, columns, -(-len(handles) // columns))
