"""Attacks that find out whether a sample, or a domain, was in the training data, and the price of a copy.

They see labels alone.

Source:
    C. Choquette-Choo, F. Tramèr, N. Carlini and N. Papernot, Label-only membership inference attacks, 2021;
    Z. Li and Y. Zhang, Membership leakage in label-only exposures, 2021; J. Chen, M. Jordan and
    M. Wainwright, HopSkipJumpAttack, 2020 (steps along an estimated gradient). The alignment of shadow
    clusterers with the labels is our own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ucds.auditing.subject import Labels, Rows, Subject
from ucds.data.samples import Samples
from ucds.math.arrays import FloatArray
from ucds.math.consensus import match
from ucds.math.spaces import unit_rows

Entry = TypeVar("Entry", bound=np.generic)
Scores = NDArray[np.float64]
Flags = NDArray[np.bool_]
Progress = Callable[[int, int], None]
Variant = Callable[[Rows, np.random.Generator], Rows]
"""Function that returns changed copies of ``(b, 3, S, S)`` uint8 images or ``(b, d)`` vectors."""

BAG = 25
"""Number of samples of one domain that an attacker has."""

WANTED = 0.9
"""Agreement at which a student counts as a copy."""

_AT_A_TIME = 64
_SIZES = (50, 100, 200, 500, 1000, 2000, 5000, 10_000)
_PROBE = 0.05  # length of the probes for the gradient, as a part of the distance to the boundary


def agreement_scores(
    subject: Subject,
    samples: Samples,
    labels: Labels,
    variants: Sequence[Variant],
    rng: np.random.Generator,
    progress: Progress,
) -> Scores:
    """Compute for each sample the share ``(n,)`` of its changed copies that keep its label."""
    same = np.zeros(len(samples))
    for start in range(0, len(samples), _AT_A_TIME):
        index = np.arange(start, min(start + _AT_A_TIME, len(samples)))
        rows = samples.read(index)
        for variant in variants:
            same[index] += subject.ask(variant(rows, rng)) == labels[index]
        progress(int(index[-1]) + 1, len(samples))
    return same / len(variants)


def boundary_distances(
    subject: Subject,
    rows: Rows,
    labels: Labels,
    rng: np.random.Generator,
    *,
    smallest: float,
    doublings: int = 7,
    bisections: int = 5,
    directions: int = 2,
    steps: int = 0,
    probes: int = 20,
) -> Scores:
    """Estimate how far each sample is from the nearest sample of another label.

    Along random directions, the radius (a deviation of each entry) is doubled until the label changes, and
    then bisected. Steps along a gradient that is estimated from probes, as in HopSkipJump, bring the nearest
    point closer.

    Returns:
        ``(b,)`` distances as deviations of each entry; the largest radius if no label changed.
    """
    start = rows.astype(np.float32)

    def same(values: FloatArray) -> Flags:
        asked = subject.ask(to_pixels(values) if rows.dtype == np.uint8 else values)
        return np.equal(asked, labels)

    best = np.full(len(rows), smallest * 2.0**doublings, np.float32)
    nearest = start.copy()
    for _ in range(directions):
        towards = _normal(start.shape, rng)
        radius, found = np.full_like(best, smallest), np.zeros(len(rows), bool)
        for _ in range(doublings):
            found |= ~same(start + _wide(radius, start) * towards)
            radius[~found] *= 2
        outside, _ = _bisect(same, start, start + _wide(radius, start) * towards, bisections)
        closer = found & (_deviation(outside - start) < best)
        nearest[closer], best[closer] = outside[closer], _deviation(outside - start)[closer]
    for step in range(steps):
        reached = best < smallest * 2.0**doublings
        outside = _descend(same, start, nearest, rng, probes, step)
        outside, valid = _bisect(same, start, outside, bisections)
        closer = reached & valid & (_deviation(outside - start) < best)
        nearest[closer], best[closer] = outside[closer], _deviation(outside - start)[closer]
    return best.astype(np.float64)


def _bisect(
    same: Callable[[FloatArray], Flags], inside: FloatArray, outside: FloatArray, times: int
) -> tuple[FloatArray, Flags]:
    """Return the nearest points with another label, and whether the given points had another label."""
    valid = ~same(outside)
    low, high = inside, outside
    for _ in range(times):
        middle = (low + high) / np.float32(2)
        stays = _wide(same(middle), low)
        low, high = (np.where(stays, *both).astype(np.float32) for both in ((middle, low), (high, middle)))
    return high, valid


def _descend(
    same: Callable[[FloatArray], Flags],
    start: FloatArray,
    nearest: FloatArray,
    rng: np.random.Generator,
    probes: int,
    step: int,
) -> FloatArray:
    """Take a step from the boundary into the other cluster, along a gradient estimated from labels."""
    length = _wide(_deviation(nearest - start), start)
    votes, mean, total = np.zeros_like(start), np.zeros_like(start), np.zeros_like(length)
    for _ in range(probes):
        probe = _normal(start.shape, rng)
        stayed = same(nearest + np.float32(_PROBE) * length * probe)
        other = _wide(1 - 2 * stayed.astype(np.float32), start)
        votes, mean, total = votes + other * probe, mean + probe, total + other
    gradient = votes - total / np.float32(probes) * mean
    unit = gradient / np.maximum(_wide(_deviation(gradient), start), np.float32(1e-12))
    return np.asarray(nearest + length / np.float32((step + 2) ** 0.5) * unit)


def _normal(shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
    return rng.standard_normal(shape, np.float32)


def _deviation(values: FloatArray) -> FloatArray:
    return np.asarray(np.sqrt(np.square(values).reshape(len(values), -1).mean(1)))


def _wide(values: NDArray[Entry], rows: Rows) -> NDArray[Entry]:
    return values.reshape(-1, *(1,) * (rows.ndim - 1))


def shadow_scores(
    features: FloatArray, labels: Labels, n_clusters: int, rng: np.random.Generator, shadows: int
) -> Scores:
    """Score candidates by clusterers of random halves of them, aligned with the bought labels.

    A member's label agrees more often with the clusterers that saw it than with those that did not. The
    features, ``(n, d)``, are those of the attacker's encoder.
    """
    from sklearn.cluster import KMeans

    n, unit = len(features), unit_rows(features)
    seen, agreed = np.zeros((2, n)), np.zeros((2, n))
    for _ in range(shadows):
        inside = rng.permutation(n) < n // 2
        seed = int(rng.integers(2**31))
        clusterer = KMeans(min(n_clusters, int(inside.sum())), n_init=1, random_state=seed).fit(unit[inside])
        partition = clusterer.predict(unit).astype(np.int64)
        partners = match(partition, labels)
        named = np.array([partners.get(c, -1) for c in range(n_clusters)])[partition]
        for world, chosen in enumerate((~inside, inside)):
            seen[world] += chosen
            agreed[world] += chosen & (named == labels)
    rates = (agreed + 0.5) / (seen + 1)
    return np.asarray(rates[1] - rates[0])


def bag_scores(scores: Scores, domain: NDArray[np.int64], rng: np.random.Generator) -> Scores:
    """Average membership scores over bags of samples of one domain, without overlaps."""
    bags = []
    for d in np.unique(domain):
        chosen = rng.permutation(np.flatnonzero(domain == d))
        bags += [scores[chosen[i : i + BAG]].mean() for i in range(0, len(chosen) - BAG + 1, BAG)]
    return np.array(bags)


@dataclass(frozen=True)
class Price:
    """Agreement of a student model with the provider, by the number of bought labels."""

    labels: int  # number of labels bought
    agreement: float  # share of other samples on which student and provider agree


def price_curve(
    features: FloatArray, labels: Labels, rng: np.random.Generator, sizes: Sequence[int] = _SIZES
) -> list[Price]:
    """Measure the agreement of student models with the provider, on a third of the samples, unseen by them.

    Features ``(n, d)`` are those of the client's encoder. The last size is the number of all labels that
    there are.
    """
    order, kept = rng.permutation(len(features)), len(features) // 3
    unit = unit_rows(features)
    held_out, bought = order[:kept], order[kept:]
    curve = []
    for size in [*(size for size in sizes if size < len(bought)), len(bought)]:
        chosen = bought[:size]
        agreement = _student(unit[chosen], labels[chosen], unit[held_out]) == labels[held_out]
        curve.append(Price(size, float(agreement.mean())))
    return curve


def price_of(curve: Sequence[Price], wanted: float = WANTED) -> int | None:
    """Return the fewest labels of a curve that give the wanted agreement; ``None`` if no number does."""
    return next((point.labels for point in curve if point.agreement >= wanted), None)


def _student(features: FloatArray, labels: Labels, others: FloatArray) -> Labels:
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(labels)) == 1:
        return np.full(len(others), labels[0])
    with warnings.catch_warnings():  # many clusters for few labels, or a fit that is not finished: no matter
        warnings.simplefilter("ignore", UserWarning)
        student = LogisticRegression(C=30.0, max_iter=100, tol=1e-3).fit(features, labels)
    return np.asarray(student.predict(others), dtype=np.int64)


def image_variants(count: int) -> list[Variant]:
    """Return the first ``count`` of a list of edits; beyond its length, stronger noise."""
    return [*_EDITS, *(add_noise(12.0 + 6 * i) for i in range(1, count))][:count]


def vector_variants(count: int, spread: float) -> list[Variant]:
    """Return ``count`` variants of noise between one and sixteen times the spread of vectors.

    Noise spreads over all directions, but a model depends on few of them, so much noise is needed.
    """
    return [add_noise(spread * strength) for strength in np.logspace(0, 4, count, base=2.0)]


def shift(down: int, right: int) -> Variant:
    """Return a variant that moves images by some pixels and repeats their edges."""

    def move(rows: Rows, rng: np.random.Generator) -> Rows:
        side, reach = rows.shape[-1], max(abs(down), abs(right))
        top, left = reach - down, reach - right
        return _widened(rows, reach)[..., top : top + side, left : left + side]

    return move


def brighten(factor: float) -> Variant:
    """Return a variant that multiplies all pixels of images."""
    return lambda rows, rng: to_pixels(rows * np.float32(factor))


def add_noise(deviation: float) -> Variant:
    """Return a variant that adds normal noise of a deviation in the unit of the pixels or vectors."""

    def disturb(rows: Rows, rng: np.random.Generator) -> Rows:
        noisy = rows + np.float32(deviation) * _normal(rows.shape, rng)
        return to_pixels(noisy) if rows.dtype == np.uint8 else noisy

    return disturb


def flip(rows: Rows, rng: np.random.Generator) -> Rows:
    """Mirror images left to right."""
    return rows[..., ::-1]


def blur(rows: Rows, rng: np.random.Generator) -> Rows:
    """Average every pixel of images with its eight neighbours."""
    windows = sliding_window_view(_widened(rows.astype(np.float32), 1), (3, 3), axis=(-2, -1))
    return to_pixels(windows.mean((-2, -1)))


def _widened(rows: Rows, reach: int) -> Rows:
    """Repeat the edges of images on all sides."""
    return np.pad(rows, ((0, 0), (0, 0), (reach, reach), (reach, reach)), mode="edge")


def to_pixels(values: FloatArray) -> NDArray[np.uint8]:
    """Round and clip values to uint8."""
    return np.clip(np.round(values), 0, 255).astype(np.uint8)


_EDITS = (
    flip,
    shift(6, -6),
    brighten(0.7),
    add_noise(12.0),
    blur,
    shift(-10, 10),
    brighten(1.3),
    shift(10, 4),
)
