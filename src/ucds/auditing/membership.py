"""Attacks that ask whether a sample was in the training data. They see labels alone, and no true class.

Source:
    C. Choquette-Choo, F. Tramèr, N. Carlini and N. Papernot, Label-only membership inference attacks, 2021;
    Z. Li and Y. Zhang, Membership leakage in label-only exposures, 2021; J. Chen, M. Jordan and
    M. Wainwright, HopSkipJumpAttack, 2020 (steps along an estimated gradient). That shadow clusterers are
    aligned with the labels is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from torch import Tensor

from ucds.auditing.subject import NO_ANSWER, Labels, Subject
from ucds.auditing.variants import Variant, to_pixels
from ucds.data.samples import Samples
from ucds.math.arrays import FloatArray
from ucds.math.consensus import match
from ucds.math.spaces import unit_rows

Scores = NDArray[np.float64]
Progress = Callable[[int, int], None]
_AT_A_TIME = 64
_PROBE = 0.05  # length of the probes for the gradient, as a part of the distance to the boundary


def agreement_scores(
    subject: Subject,
    samples: Samples,
    labels: Labels,
    variants: Sequence[Variant],
    generator: torch.Generator,
    progress: Progress,
) -> Scores:
    """Compute the share of changed copies of each sample that have the sample's own label.

    Copies that a service refuses are not counted; a sample without an answer has the mean share.

    Args:
        subject: model or service to ask.
        samples: candidates.
        labels: ``(n,)`` their labels.
        variants: changes; one query for each and each sample.
        generator: generator of random changes.
        progress: receives the number of samples done, and of all.
    """
    same, answered = np.zeros((2, len(samples)))
    for start in range(0, len(samples), _AT_A_TIME):
        index = np.arange(start, min(start + _AT_A_TIME, len(samples)))
        rows = samples.read(index)
        for variant in variants:
            found = subject.ask(variant(rows, generator))
            same[index] += found == labels[index]
            answered[index] += found != NO_ANSWER
        progress(int(index[-1]) + 1, len(samples))
    mean = same.sum() / max(answered.sum(), 1)
    return np.where(answered > 0, same / np.maximum(answered, 1), mean)


def boundary_distances(
    subject: Subject,
    rows: Tensor,
    labels: Labels,
    generator: torch.Generator,
    *,
    smallest: float,
    doublings: int = 7,
    bisections: int = 5,
    directions: int = 2,
    steps: int = 0,
    probes: int = 20,
) -> Scores:
    """Estimate how far each sample is from the nearest sample of another label.

    Along random directions the radius is doubled until the label changes, and then bisected. Steps along an
    estimated gradient, as in HopSkipJump, bring the nearest point found closer.

    Args:
        subject: model or service to ask.
        rows: ``(b, ...)`` samples.
        labels: ``(b,)`` their labels.
        generator: generator of the directions.
        smallest: first radius, as a deviation of each entry.
        doublings: number of radii that are tried.
        bisections: number of halvings of the interval that holds the boundary.
        directions: number of random directions.
        steps: number of steps along an estimated gradient.
        probes: number of queries for one gradient.

    Returns:
        ``(b,)`` distances as deviations of each entry; the largest radius if no label changed.
    """
    start = rows.float()
    same = _Comparison(subject, rows.dtype, labels)
    best = torch.full((len(rows),), smallest * 2.0**doublings)
    nearest = start.clone()
    for _ in range(directions):
        towards = torch.randn(start.shape, generator=generator)
        radius, found = torch.full_like(best, smallest), torch.zeros(len(rows), dtype=torch.bool)
        for _ in range(doublings):
            found |= ~same(start + _wide(radius, start) * towards)
            radius = torch.where(found, radius, 2 * radius)
        outside, _ = _bisect(same, start, start + _wide(radius, start) * towards, bisections)
        closer = found & (_deviation(outside - start) < best)
        nearest[closer], best[closer] = outside[closer], _deviation(outside - start)[closer]
    for step in range(steps):
        reached = best < smallest * 2.0**doublings
        outside = _descend(same, start, nearest, generator, probes, step)
        outside, valid = _bisect(same, start, outside, bisections)
        closer = reached & valid & (_deviation(outside - start) < best)
        nearest[closer], best[closer] = outside[closer], _deviation(outside - start)[closer]
    return np.asarray(best.double().numpy())


class _Comparison:
    """Says which rows have the labels of the samples that they were made from, as far as it is known.

    A service refuses what looks like the sample, so a refused row is taken to have its label.
    """

    def __init__(self, subject: Subject, dtype: torch.dtype, labels: Labels) -> None:
        self._subject, self._dtype, self._labels = subject, dtype, labels

    def __call__(self, values: Tensor) -> Tensor:
        rows = to_pixels(values) if self._dtype == torch.uint8 else values
        found = self._subject.ask(rows)
        return torch.from_numpy((found == self._labels) | (found == NO_ANSWER))


def _bisect(same: _Comparison, inside: Tensor, outside: Tensor, times: int) -> tuple[Tensor, Tensor]:
    """Return the points nearest to the inside that have another label, and whether the given ones had."""
    valid = ~same(outside)
    low, high = inside.clone(), outside.clone()
    for _ in range(times):
        middle = (low + high) / 2
        stays = same(middle)
        low, high = torch.where(_like(stays, low), middle, low), torch.where(_like(stays, high), high, middle)
    return high, valid


def _descend(
    same: _Comparison, start: Tensor, nearest: Tensor, generator: torch.Generator, probes: int, step: int
) -> Tensor:
    """Take a step from the boundary into the other cluster, along a gradient estimated from labels."""
    length = _wide(_deviation(nearest - start), start)
    votes, mean, total = torch.zeros_like(start), torch.zeros_like(start), torch.zeros(())
    for _ in range(probes):
        probe = torch.randn(start.shape, generator=generator)
        other = _wide((~same(nearest + _PROBE * length * probe)).float() * 2 - 1, start)
        votes, mean, total = votes + other * probe, mean + probe, total + other
    gradient = votes - total / probes * mean
    unit = gradient / _wide(_deviation(gradient), start).clamp_min(1e-12)
    moved: Tensor = nearest + length / (step + 2) ** 0.5 * unit
    return moved


def _deviation(values: Tensor) -> Tensor:
    return values.flatten(1).square().mean(1).sqrt()


def _wide(values: Tensor, rows: Tensor) -> Tensor:
    return values.reshape(-1, *(1,) * (rows.ndim - 1))


def _like(flags: Tensor, rows: Tensor) -> Tensor:
    return _wide(flags, rows).expand_as(rows)


def shadow_scores(
    features: FloatArray, labels: Labels, n_clusters: int, rng: np.random.Generator, shadows: int
) -> Scores:
    """Score candidates by clusterers of random halves of them, whose labels are aligned with those bought.

    A member's label agrees more often with the clusterers that saw it than with those that did not.

    Args:
        features: ``(n, d)`` features of the candidates under the attacker's encoder.
        labels: ``(n,)`` labels bought for them; one query a sample.
        n_clusters: number of clusters of the clusterers.
        rng: generator of the halves and the starts.
        shadows: number of clusterers.
    """
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
