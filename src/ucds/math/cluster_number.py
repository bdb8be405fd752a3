"""Chooses the number of clusters from the samples alone.

A number of clusters is good if the clusters are found again in other samples (*stability*), and if they are
far apart where every sample is averaged with its neighbours (*separation*). Parts of the samples are
clustered into each number of clusters by a consensus of all spaces. Two parts have some samples in common;
the agreement of their clusters on these is the stability. The separation is the silhouette of the clusters in
the diffused spaces. The *score* of a number is the product of both.

The parts are small on purpose. In small parts, groups within groups have too few samples to be found again,
so that the score favours groups that most samples support.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.cluster.hierarchy import fcluster, ward

from ucds.math.arrays import DoubleArray, FloatArray, IntArray, Watch, counted
from ucds.math.consensus import USUAL, Partition, average_linkage, memberships, refine
from ucds.math.kmeans import squared_distances
from ucds.math.spaces import make_spaces, reduce_features

FEWEST_SAMPLES = 30
"""Least number of samples of a domain for which a number of clusters can be chosen."""

MOST_CLUSTERS = 100
"""Largest number of clusters that is tried if no range is given."""

CLEAR = 0.3
"""Least score of the best number of clusters, if a number is to stand out at all."""

_PARTS = 8
_FEWEST_PARTS = 4  # of each of several domains
_SHARE = 0.4  # of the samples in a part
_REPRESENTATIVES, _MOST_REPRESENTATIVES = 1000, 3000
_SAMPLES_EACH = 10  # representatives for each cluster, if there are enough samples
_LARGE = 2  # number of clusters for which neighbourhoods are as large as they get
_NEARLY_BEST, _PLAUSIBLE = 0.95, 0.9  # shares of the best score
_UNLIKELY = 0.1  # share of the parts that may prefer a number below the interval, or one above it


@dataclass(frozen=True)
class ClusterNumber:
    """A number of clusters, and the evidence for it."""

    number: int  # K, the smallest whose score is nearly the best
    low: int  # smallest number that is about as good
    high: int  # largest number that is about as good
    candidates: tuple[int, ...]  # numbers that were tried, ascending
    stability: tuple[float, ...]  # of each candidate: adjusted Rand index of the clusters of different parts
    separation: tuple[float, ...]  # of each candidate: mean silhouette of its clusters

    @property
    def scores(self) -> list[float]:
        """Score of each candidate: the product of its stability and its separation."""
        return [a * b for a, b in zip(self.stability, self.separation, strict=True)]

    @property
    def clear(self) -> bool:
        """Whether any number stands out; if not, the samples may have no clear groups."""
        return max(self.scores) >= CLEAR

    @property
    def plausible(self) -> str:
        """Words for the interval of the numbers that are about as good."""
        if self.low == self.high:
            return "no other is as good"
        return f"{self.low} to {self.high} are about as good"


def most_clusters(n_samples: int, wanted: int | None = None) -> int:
    """Return the largest number of clusters to try for ``n_samples`` samples of one domain.

    If the user asks for no largest number, numbers with fewer than ten samples per cluster are left out.
    """
    if wanted is None:
        return min(MOST_CLUSTERS, n_samples // _SAMPLES_EACH)
    return min(n_samples, _MOST_REPRESENTATIVES) // (_SAMPLES_EACH // 2)


def choose_cluster_number(
    domains: Sequence[FloatArray],
    low: int,
    high: int,
    rng: np.random.Generator,
    watch: Watch | None = None,
    lengths: bool = False,
) -> ClusterNumber:
    """Choose one number of clusters for the samples of one or several domains.

    All numbers up to 12 are tried, and larger ones in steps of seven percent; then those around the best.

    Each domain has features ``(n_d, d)`` of at least :data:`FEWEST_SAMPLES` samples. The smallest number to
    try is at least 2, and the largest at most :func:`most_clusters` of the smallest domain.

    Source:
        T. Lange, V. Roth, M. Braun and J. Buhmann, Stability-based validation of clustering solutions, 2004.
        P. Rousseeuw, Silhouettes: a graphical aid to the interpretation and validation of cluster analysis,
        1987.
    """
    count = max(-(-_PARTS // len(domains)), _FEWEST_PARTS)
    parts = [_draw_parts(vectors, high, count, rng, lengths) for vectors in domains]
    found: dict[int, tuple[DoubleArray, DoubleArray]] = {}

    def judge(k: int) -> None:
        measured = [_measure(of_domain, k, rng) for of_domain in parts]
        found[k] = np.concatenate([m[0] for m in measured]), np.concatenate([m[1] for m in measured])

    coarse = coarse_numbers(low, high)
    for k in counted(watch, "choose the number of clusters", coarse):
        judge(k)
    best = coarse.index(_smallest_good(found))
    for k in range(coarse[max(best - 1, 0)] + 1, coarse[min(best + 1, len(coarse) - 1)]):
        if k not in found:
            judge(k)
    return _conclude(dict(sorted(found.items())))


def coarse_numbers(low: int, high: int) -> list[int]:
    """List the numbers to try first: all up to 12, then in steps of seven percent, and the last one."""
    numbers = [low]
    while numbers[-1] < high:
        step = 1 if numbers[-1] < 12 else max(1, round(0.07 * numbers[-1]))
        numbers.append(min(numbers[-1] + step, high))
    return numbers


class _Part(NamedTuple):
    """Some samples of a domain."""

    rows: IntArray  # positions among the representatives, ascending
    distances: FloatArray  # (m, m) in the diffused spaces, cosine ones or squared ones
    trees: list[DoubleArray]  # hierarchical clustering of the samples in each space


def _draw_parts(
    vectors: FloatArray, high: int, count: int, rng: np.random.Generator, lengths: bool
) -> list[_Part]:
    """Draw representatives of a domain, and parts of these."""
    wanted = int(np.clip(_SAMPLES_EACH * high, _REPRESENTATIVES, _MOST_REPRESENTATIVES))
    if len(vectors) > wanted:
        vectors = vectors[rng.choice(len(vectors), wanted, replace=False)]
    # Once and for all, because principal axes of a thousand dimensions take a second.
    reduced = reduce_features(vectors, lengths)
    parts = []
    for _ in range(count):
        rows = np.sort(rng.choice(len(reduced), round(_SHARE * len(reduced)), replace=False))
        spaces = make_spaces(reduced[rows], _LARGE, lengths=lengths).vectors
        diffused = [space for name, space in spaces.items() if name.startswith("diffused-")]
        apart = [squared_distances(space) if lengths else 1 - space @ space.T for space in diffused]
        distances = np.maximum(np.mean(apart, axis=0), 0)
        np.fill_diagonal(distances, 0)
        parts.append(_Part(rows, distances, [ward(space) for space in spaces.values()]))
    return parts


def _measure(parts: Sequence[_Part], k: int, rng: np.random.Generator) -> tuple[DoubleArray, DoubleArray]:
    """Cluster parts of one domain into ``k`` clusters; return stability and separation of each part."""
    from sklearn.metrics import adjusted_rand_score

    partitions = [_cluster(part, k, rng) for part in parts]
    agreement = np.zeros((len(parts), len(parts)))
    for i, j in combinations(range(len(parts)), 2):
        _, of_one, of_other = np.intersect1d(parts[i].rows, parts[j].rows, True, return_indices=True)
        same = adjusted_rand_score(partitions[i][of_one], partitions[j][of_other])
        agreement[i, j] = agreement[j, i] = max(same, 0.0)
    separation = [_silhouette(part, partition) for part, partition in zip(parts, partitions, strict=True)]
    return agreement.sum(1) / (len(parts) - 1), np.array(separation)


def _cluster(part: _Part, k: int, rng: np.random.Generator) -> Partition:
    """Find the consensus of the clusterings of a part in all spaces."""
    most = max(k, len(part.rows) // 2)
    sizes = [min(round(k * fine), most) for fine in USUAL.fineness]
    votes = [fcluster(tree, size, "maxclust").astype(np.int64) - 1 for tree in part.trees for size in sizes]
    joined = memberships(votes)
    return refine(joined, average_linkage(joined, k, rng), k, rounds=3)


def _silhouette(part: _Part, partition: Partition) -> float:
    """Compute the mean silhouette; 0 if it is not defined or negative."""
    from sklearn.metrics import silhouette_score

    if not 1 < len(np.unique(partition)) < len(partition):
        return 0.0
    return max(float(silhouette_score(part.distances, partition, metric="precomputed")), 0.0)


def _smallest_good(found: dict[int, tuple[DoubleArray, DoubleArray]]) -> int:
    """Return the smallest number whose mean score is nearly the best: its few clusters explain as much."""
    scores = {k: float((stability * separation).mean()) for k, (stability, separation) in found.items()}
    return min(k for k, score in scores.items() if score >= _NEARLY_BEST * max(scores.values()))


def _conclude(found: dict[int, tuple[DoubleArray, DoubleArray]]) -> ClusterNumber:
    candidates = np.array(list(found))
    scores = np.array([stability * separation for stability, separation in found.values()])
    mean = scores.mean(1)
    preferred = np.sort(candidates[scores.argmax(0)])
    plausible = candidates[mean >= _PLAUSIBLE * mean.max()]
    cut = int(_UNLIKELY * len(preferred))
    return ClusterNumber(
        number=_smallest_good(found),
        low=int(min(plausible[0], preferred[cut])),
        high=int(max(plausible[-1], preferred[-1 - cut])),
        candidates=tuple(found),
        stability=tuple(float(stability.mean()) for stability, _ in found.values()),
        separation=tuple(float(separation.mean()) for _, separation in found.values()),
    )
