"""The clusters of a review as a person sees them: sizes, doubt, typical samples, similar samples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import softmax

from ucds.arguments import checked
from ucds.errors import InputError
from ucds.math.arrays import FloatArray, IntArray
from ucds.math.consensus import Partition
from ucds.math.corrections import ASIDE
from ucds.showing import shows

Order = Literal["typical", "doubtful", "row"]

_LIKELY = 8  # clusters of the run that are remembered for each sample, the likeliest ones
_BLOCK = 4096  # samples whose probabilities are computed at a time


@shows()
class Near(NamedTuple):
    """The samples nearest to some others, nearest first.

    Attributes:
        rows: ``(m,)`` positions of the samples.
        clusters: ``(m,)`` clusters of the samples.
        similarity: ``(m,)`` cosines with the others.
    """

    rows: IntArray
    clusters: IntArray
    similarity: FloatArray


@shows("clusters", "by_person", "confidence", "sizes")
@dataclass(frozen=True, eq=False)
class Seen:
    """The samples of a review in their present clusters.

    Attributes:
        clusters: ``(n,)`` clusters; -1 for samples that are set aside.
        by_person: ``(n,)`` whether a person has placed the sample itself, in this review or an earlier one.
        start: ``(n,)`` clusters from which the review started.
        likely: ``(n, K)`` probabilities of the run's clusters that are likeliest for each sample.
        directions: ``(n, d)`` features of unit length.
    """

    clusters: Partition
    by_person: NDArray[np.bool_]
    start: Partition
    likely: sparse.csr_array
    directions: FloatArray

    @cached_property
    def sizes(self) -> dict[int, int]:
        """Number of samples of each cluster that has any, by its number; of samples set aside, by -1."""
        numbers, sizes = np.unique(self.clusters, return_counts=True)
        return dict(zip(numbers.tolist(), sizes.tolist(), strict=True))

    @property
    def numbers(self) -> list[int]:
        """Numbers of the clusters that have samples, ascending."""
        return [number for number in self.sizes if number != ASIDE]

    @cached_property
    def confidence(self) -> FloatArray:
        """Confidence ``(n,)`` in the present cluster; 1 where a person has placed the sample itself."""
        return self._judged[0]

    @cached_property
    def second(self) -> IntArray:
        """Second choice ``(n,)`` among the present clusters; -1 where no other is likely at all."""
        return self._judged[1]

    @cached_property
    def doubt(self) -> dict[int, float]:
        """Mean of 1 minus the confidence, of each cluster that has samples."""
        return {number: float(1 - self.confidence[self.clusters == number].mean()) for number in self.sizes}

    @cached_property
    def typicality(self) -> FloatArray:
        """Cosine ``(n,)`` of each sample to the mean direction of its cluster."""
        found = np.empty(len(self.clusters), np.float32)
        for number in self.sizes:
            rows = np.flatnonzero(self.clusters == number)
            found[rows] = self.nearness(rows)
        return found

    def nearness(self, rows: IntArray) -> FloatArray:
        """Return the cosine ``(m,)`` of each sample of a group to their mean direction."""
        own = self.directions[rows]
        mean = own.mean(0)
        return np.asarray(own @ (mean / max(float(np.linalg.norm(mean)), 1e-12)), np.float32)

    @checked
    def members(self, number: int, order: Order = "typical") -> IntArray:
        """List the samples of a cluster, or with -1 those that are set aside.

        Args:
            number: number of the cluster.
            order: "typical" lists the most typical samples first, "doubtful" the doubtful ones; "row" keeps
                the order.

        Raises:
            InputError: there is no such cluster.
        """
        rows = np.flatnonzero(self.clusters == number)
        if not len(rows):
            raise InputError(f"there is no cluster {number}")
        if order == "row":
            return rows
        key = -self.typicality[rows] if order == "typical" else self.confidence[rows]
        return rows[np.argsort(key, kind="stable")]

    def near(self, direction: FloatArray, most: int, without: IntArray) -> Near:
        """Find the samples nearest to a direction ``(d,)``, except those at some positions."""
        if most < 1:
            raise InputError(f"`most` must be at least 1, not {most}")
        similarity = self.directions @ (direction / max(float(np.linalg.norm(direction)), 1e-12))
        similarity[without] = -np.inf
        count = min(most, len(similarity) - len(without))
        rows = np.argpartition(-similarity, max(count - 1, 0))[:count]
        rows = rows[np.argsort(-similarity[rows], kind="stable")]
        return Near(rows, self.clusters[rows], np.asarray(similarity[rows], np.float32))

    @cached_property
    def _judged(self) -> tuple[FloatArray, IntArray]:
        """Return confidence and second choice.

        The probability of a cluster at the start goes to the clusters that hold its samples now; that of a
        sample's own cluster goes to the one that holds the sample now.
        """
        now, known = self.clusters, np.flatnonzero((self.start != ASIDE) & (self.clusters != ASIDE))
        went = np.zeros((self.likely.shape[1], int(now.max()) + 2), np.float32)  # the last column is of -1
        np.add.at(went, (self.start[known], now[known]), 1)
        went /= np.maximum(went.sum(1, keepdims=True), 1)
        confidence, second = np.empty(len(now), np.float32), np.empty(len(now), np.int64)
        for first in range(0, len(now), _BLOCK):
            rows = np.arange(first, min(first + _BLOCK, len(now)))
            moved, place, before = self.likely[rows] @ went, np.arange(len(rows)), self.start[rows]
            own = np.where(before == ASIDE, 0, self.likely[rows].toarray()[place, before])
            confidence[rows] = moved[place, now[rows]] + own * (1 - went[before, now[rows]])
            moved[place, now[rows]] = 0
            second[rows] = np.where(moved.max(1) > 0, moved.argmax(1), ASIDE)
        confidence[self.by_person | (now == ASIDE)] = 1
        return np.minimum(confidence, 1), second


def likeliest(features: FloatArray, prototypes: FloatArray) -> sparse.csr_array:
    """Compute the probabilities of the likeliest clusters for each sample: ``(n, K)``, a few in each row."""
    n, width = len(features), min(_LIKELY, prototypes.shape[1])
    columns, values = np.empty((n, width), np.int32), np.empty((n, width), np.float32)
    for first in range(0, n, _BLOCK):
        found = softmax(features[first : first + _BLOCK] @ prototypes, axis=1)
        chosen = np.argpartition(-found, width - 1, axis=1)[:, :width]
        columns[first : first + _BLOCK] = chosen
        values[first : first + _BLOCK] = np.take_along_axis(found, chosen, 1)
    ends = np.arange(0, n * width + 1, width)
    return sparse.csr_array((values.ravel(), columns.ravel(), ends), shape=(n, prototypes.shape[1]))
