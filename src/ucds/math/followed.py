"""Tests what the clusters of samples follow: a site, a scanner, a date.

A *column* tells a category or a number of each sample. The **statistic** is the mutual information of
clusters and categories, or the correlation ratio of the ranks of numbers: the share of their variance between
the clusters. Both are sums over the clusters, so that each cluster can be tested too. The **effect** is the
statistic minus its mean by chance, divided by the largest possible difference: the adjusted mutual
information.

In the **test**, samples exchange their values at random, in all columns alike. All statistics are
standardised by their mean and standard deviation over the draws; the observed one counts as the first draw.
The p-value of a column is the share of the draws in which any column has as large a statistic.

Samples that belong together, such as the images of one patient, are alike without any column: whole
**groups** exchange their values. The values of a group are laid onto another group, rotated by a random part
of their length, and stretched if the sizes differ. Values that are equal in a whole group stay equal, so this
is the exact permutation of groups. Values that vary within a group keep their runs, in the order of the
samples, so that neighbours stay alike.

Source:
    N. X. Vinh, J. Epps and J. Bailey, Information theoretic measures for clusterings comparison, 2010.
    W. H. Kruskal and W. A. Wallis, Use of ranks in one-criterion variance analysis, 1952.
    P. H. Westfall and S. S. Young, Resampling-based multiple testing, 1993, section 2.6.
    A. M. Winkler et al., Multi-level block permutation, 2015.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr, xlogy

from ucds.math.arrays import DoubleArray, IntArray

DRAWS = 999

_NOTHING = 1e-9  # standard deviation below which a statistic is the same in all draws, but for rounding

_Statistic = Callable[[IntArray], DoubleArray]
"""Function that returns each cluster's part in a statistic if sample i has the value of ``order[i]``."""


class Following(NamedTuple):
    """Result of a test: how far clusters follow one column."""

    effect: float  # 0 by chance, 1 at most
    p_value: float  # of the column among all columns
    by_cluster: DoubleArray  # (K,) p-value of each cluster among all clusters


def find_following(
    clusters: IntArray,
    columns: Sequence[NDArray[np.generic]],
    rng: np.random.Generator,
    groups: IntArray | None = None,
) -> list[Following]:
    """Test how far clusters follow each of some columns; see the module for what is computed.

    Columns are ``(n,)`` values: integers from 0 are categories, others numbers, NaN where one is unknown.
    Each sample is a group of its own if no groups are given.
    """
    statistics = [_statistic_of(clusters, values) for values in columns]
    exchange = _Exchange(np.arange(len(clusters)) if groups is None else groups)
    orders = (exchange.draw(rng) if draw else np.arange(len(clusters)) for draw in range(DRAWS + 1))
    drawn = [[statistic(order) for statistic in statistics] for order in orders]
    parts = [np.array(of_column) for of_column in zip(*drawn, strict=True)]  # (DRAWS + 1, K) each
    sums = np.array([part.sum(1) for part in parts]).T
    p_values = _largest_of_all(sums)
    return [
        Following(_effect(sums[:, j], _largest(clusters, columns[j])), p_values[j], _largest_of_all(parts[j]))
        for j in range(len(columns))
    ]


def _statistic_of(clusters: IntArray, values: NDArray[np.generic]) -> _Statistic:
    if values.dtype.kind in "iu":
        return _information(clusters, values.astype(np.int64))
    return _correlation_ratio(clusters, values.astype(np.float64))


def _information(clusters: IntArray, values: IntArray) -> _Statistic:
    """Make the mutual information in nats, by cluster: its size times the divergence of its values."""
    n, shape = len(clusters), (int(clusters.max()) + 1, int(values.max()) + 1)
    terms = xlogy(np.arange(n + 1), np.arange(n + 1) / n)  # t log(t / n) by t
    first = clusters * shape[1]

    def parts(order: IntArray) -> DoubleArray:
        counts = np.bincount(first + values[order], minlength=shape[0] * shape[1]).reshape(shape)
        shares = counts.sum(0) / n
        logs = np.log(shares, out=np.zeros(shape[1]), where=shares > 0)
        return np.asarray((terms[counts].sum(1) - counts @ logs - terms[counts.sum(1)]) / n)

    return parts


def _correlation_ratio(clusters: IntArray, values: DoubleArray) -> _Statistic:
    """Make the share of the variance of the ranks that lies between the clusters, by cluster."""
    from scipy.stats import rankdata  # it takes a while to load

    all_known, k = ~np.isnan(values), int(clusters.max()) + 1
    all_ranks = np.where(all_known, rankdata(values, nan_policy="omit"), 0)

    def parts(order: IntArray) -> DoubleArray:
        known, ranks = all_known[order], all_ranks[order]
        sizes, sums = np.bincount(clusters, known, k), np.bincount(clusters, ranks, k)
        mean = sums.sum() / sizes.sum()
        between = sizes * (sums / np.maximum(sizes, 1) - mean) ** 2
        return np.asarray(between / max((known * (ranks - mean) ** 2).sum(), _NOTHING))

    return parts


class _Exchange:
    """Exchanges the values of whole groups; the samples of a group count in their order."""

    def __init__(self, groups: IntArray) -> None:
        self.rows = np.argsort(groups, kind="stable")  # group after group
        _, self.first, self.sizes = np.unique(groups[self.rows], return_index=True, return_counts=True)
        self.group = np.repeat(np.arange(len(self.sizes)), self.sizes)
        self.place = (np.arange(len(groups)) - self.first[self.group]) / self.sizes[self.group]

    def draw(self, rng: np.random.Generator) -> IntArray:
        """Draw the sample ``(n,)`` that gives each sample its value."""
        giver = rng.permutation(len(self.sizes))[self.group]
        turned = (self.place + rng.random(len(self.sizes))[self.group]) % 1
        places = np.minimum((turned * self.sizes[giver]).astype(np.int64), self.sizes[giver] - 1)
        order = np.empty(len(self.rows), np.int64)
        order[self.rows] = self.rows[self.first[giver] + places]
        return order


def _largest_of_all(statistics: DoubleArray) -> DoubleArray:
    """Compute the p-value of each of m statistics ``(draws, m)``, adjusted for all; draw 0 is observed."""
    spread = statistics.std(0)
    varies = spread > _NOTHING
    scaled = np.where(varies, statistics - statistics.mean(0), 0) / np.where(varies, spread, 1)
    return np.asarray((scaled.max(1)[:, None] >= scaled[0] - _NOTHING).mean(0))


def _largest(clusters: IntArray, values: NDArray[np.generic]) -> float:
    """Return the largest value that a statistic can have: the smaller entropy, or 1 for numbers."""
    if values.dtype.kind not in "iu":
        return 1.0
    return min(float(entr(np.bincount(each) / len(each)).sum()) for each in (clusters, values))


def _effect(statistic: DoubleArray, largest: float) -> float:
    """Adjust a statistic for chance; the first draw is the observed."""
    by_chance = statistic[1:].mean()
    return float(max(statistic[0] - by_chance, 0) / max(largest - by_chance, _NOTHING))
