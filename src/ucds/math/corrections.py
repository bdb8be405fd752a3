"""A clustering that a person corrects step by step; votes tell what belongs together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ucds.math.arrays import IntArray
from ucds.math.consensus import Memberships, Partition
from ucds.math.parts import Ladder, divide, halve, make_ladder

ASIDE = -1
"""Number in place of a cluster, for samples that belong to none."""

FINEST = 4.0
"""Number of groups at the finest level, per cluster at the start."""

_NEARLY_ALL = 0.95  # of the samples of a part; no half of it is as large
_SEEN = 300  # samples of a part at most by which it is divided for a finer clustering

Change = Literal["kept", "placed", "separated", "made", "mixed"]
"""Change of a group: it stays in its cluster and belongs to no other one that was offered; it goes to another
cluster; it becomes a new cluster; either of these by hand, whatever the number of clusters; or it is mixed,
so that questions about its halves may follow."""


@dataclass
class _Known:
    """A person's answers so far, by the numbers of parts."""

    next_number: int  # of a new cluster
    next_part: int
    settled: set[int]  # parts whose cluster is certain
    joined: set[int]  # parts that stand for clusters which were joined
    apart: set[tuple[int, int]]  # pairs of parts whose clusters are two
    denied: set[tuple[int, int]]  # parts, and clusters that are not offered to them again
    divided: set[tuple[int, int]]  # parts, and their sizes, whose halves were asked about
    asked: set[bytes]  # groups about which there was an answer

    def copy(self) -> _Known:
        return _Known(*map(copy, vars(self).values()))


class _Step(NamedTuple):
    """State before a step, to undo it."""

    rows: IntArray
    clusters: IntArray
    parts: IntArray
    by_person: NDArray[np.bool_]
    known: _Known


class Corrections:
    """A clustering that changes only by a person's answers, and the knowledge about its parts.

    Samples that are set aside are in no cluster and in no part; both numbers are :data:`ASIDE`.

    The votes are ``(n, m)`` memberships by which groups are compared, the clusters ``(n,)`` numbers at the
    start. Each of the ``(n,)`` parts lies within one cluster, see :func:`ucds.math.parts.cut_into_parts`.

    Attributes:
        clusters: ``(n,)`` numbers of the clusters after all answers.
        parts: ``(n,)`` numbers of the parts.
        by_person: ``(n,)`` whether the person has placed the sample itself, and not its cluster, by a change.
        version: number that grows with every step and every undo.
    """

    def __init__(
        self,
        votes: Memberships,
        clusters: Partition,
        parts: Partition,
        next_number: int,
    ) -> None:
        self._votes, self.clusters, self.parts = votes, clusters.copy(), parts.copy()
        self.by_person = np.zeros(len(clusters), dtype=bool)
        self._n_clusters = len(np.unique(clusters[clusters != ASIDE]))
        self._known = _Known(next_number, int(parts.max()) + 1, set(), set(), set(), set(), set(), set())
        self._steps: list[_Step] = []
        self._made = {part: np.flatnonzero(parts == part) for part in np.unique(parts).tolist()}
        self._divisions: dict[tuple[bytes, int], list[IntArray]] = {}
        self._halves: dict[bytes, tuple[IntArray, float] | None] = {}
        self._ladder: Ladder | None = None
        self.version = 0

    @contextmanager
    def step(self, first: int = 0) -> Iterator[None]:
        """Combine the changes in the block into one step for :meth:`undo`.

        A new cluster has at least the number ``first``.
        """
        clusters, parts, by_person = self.clusters.copy(), self.parts.copy(), self.by_person.copy()
        known, self._known = self._known, self._known.copy()
        self._known.next_number = max(first, known.next_number)
        try:
            yield
        finally:
            other = (self.clusters != clusters) | (self.parts != parts) | (self.by_person != by_person)
            rows = np.flatnonzero(other)
            self._steps.append(_Step(rows, clusters[rows], parts[rows], by_person[rows], known))
            self.version, self._ladder = self.version + 1, None

    def undo(self) -> None:
        """Undo the last step."""
        step = self._steps.pop()
        self.clusters[step.rows], self.parts[step.rows] = step.clusters, step.parts
        self.by_person[step.rows], self._known = step.by_person, step.known
        self.version, self._ladder = self.version + 1, None

    @contextmanager
    def trial(self, first: int = 0) -> Iterator[None]:
        """Undo the changes in the block at its end, see :meth:`step`."""
        version, ladder = self.version, self._ladder
        with self.step(first):
            yield
        self.undo()
        self.version, self._ladder = version, ladder

    @property
    def next_number(self) -> int:
        """Number of the next new cluster."""
        return self._known.next_number

    def cluster_of(self, group: IntArray) -> int:
        """Return the number of the cluster that holds most of a group; :data:`ASIDE` if none does."""
        return _most_frequent(self.clusters[group])

    def change(
        self, did: Change, group: IntArray, others: Sequence[IntArray], to: IntArray, *, whole: bool
    ) -> None:
        """Apply an answer about a group.

        Args:
            did: change of the group.
            group: ``(m,)`` ascending positions of the group's samples; some are enough for a whole cluster.
            others: samples of each of the other clusters that were offered.
            to: samples of the cluster to which the group goes; of two whole clusters, the larger one keeps
                its number.
            whole: whether the group is a whole cluster.
        """
        known, cluster = self._known, self.cluster_of(group)
        known.asked.add(group.tobytes())
        asked_about_none = cluster == ASIDE and (whole or did in ("kept", "mixed"))
        if asked_about_none or (did == "placed" and self.cluster_of(to) == ASIDE):
            return
        samples = np.flatnonzero(self.clusters == cluster) if whole else group
        known.asked.add(samples.tobytes())
        part = _most_frequent(self.parts[samples])
        members = np.flatnonzero(self.parts == part)
        if not whole and (part == ASIDE or not np.array_equal(samples, members)):
            halves = None if part == ASIDE else self._halve(members)
            if halves is not None and np.array_equal(samples, halves[0]):  # not samples moved by hand
                known.divided.add((part, len(members) - len(samples)))
            part, members = self._make_part(samples), samples
        offered = {self.cluster_of(other) for other in others} - {cluster, ASIDE}
        match did:
            case "kept":
                known.denied |= {(part, other) for other in offered}
                known.apart |= {(part, self.core(other)) for other in offered}
                if whole:
                    known.denied |= {(self.core(other), cluster) for other in offered}
                else:
                    known.settled.add(part)
            case "placed" if whole:
                self.join([group, to])
            case "placed":
                self.clusters[samples] = self.cluster_of(to)
                self.by_person[samples] = True
                known.settled.add(part)
            case "separated" | "made":
                known.denied |= {(part, other) for other in (cluster, *offered)}
                self._make_cluster(samples)
                self.by_person[samples] = True
                kept_apart = {cluster, *offered} - {ASIDE}
                known.apart |= {(part, core) for other in kept_apart if (core := self.core(other)) != ASIDE}
            case "mixed" if whole and len(members) < len(samples):
                known.denied |= {(part, other) for other in offered}
            case "mixed":
                known.settled.add(part)
                if (halves := self._halve(members)) is not None:
                    self._make_part(members)
                    self._make_part(halves[0])

    def join(self, groups: Sequence[IntArray], *, binds: bool = True) -> None:
        """Join several clusters; the result keeps the number of the largest, of equal ones the last.

        A group is some or all samples of its cluster. Clusters that are bound stay together in a finer
        clustering.
        """
        numbers = list(dict.fromkeys(map(self.cluster_of, groups)))
        numbers = [number for number in numbers if number != ASIDE]
        if len(numbers) < 2:
            return
        if binds:
            self._known.joined |= {self.core(number) for number in numbers}
        sizes = [int((self.clusters == number).sum()) for number in numbers]
        largest = max(zip(sizes, range(len(sizes)), numbers, strict=True))[-1]
        self.clusters[np.isin(self.clusters, numbers)] = largest

    def split_off(self, groups: Sequence[IntArray], *, binds: bool = True) -> None:
        """Make each of some groups a cluster; the rest of the old cluster keeps its number.

        Groups that are bound stay apart from what they leave in a coarser clustering.
        """
        for group in groups:
            cluster = self.cluster_of(group)
            if (self.clusters == cluster).sum() == (self.clusters[group] == cluster).sum():
                continue  # nothing would be left
            for part in np.unique(self.parts[group]).tolist():
                inside = group[self.parts[group] == part]
                if part == ASIDE or len(inside) < (self.parts == part).sum():
                    self._make_part(inside)
                self._known.joined.discard(part)
            self._make_cluster(group)
            if binds:
                self._known.apart.add((_most_frequent(self.parts[group]), self.core(cluster)))

    def divide(self, members: IntArray, most: int) -> list[IntArray]:
        """Divide the samples of a group as the votes do, see :func:`ucds.math.parts.divide`."""
        return divide(self._votes, members, most)

    def set_aside(self, group: IntArray) -> None:
        """Take samples out of all clusters."""
        self.clusters[group] = self.parts[group] = ASIDE
        self.by_person[group] = True

    def ladder(self) -> Ladder:
        """Return clusterings from the finest to the coarsest, within the bounds of the answers.

        Samples placed in a cluster stay with its largest part, and so do joined clusters. Clusters that are
        two by an answer are not joined.
        """
        if self._ladder is None:
            of_part = dict(zip(self.parts.tolist(), self.clusters.tolist(), strict=True))
            apart = [(of_part.get(one, ASIDE), of_part.get(other, ASIDE)) for one, other in self._known.apart]
            apart = [(one, other) for one, other in apart if one != other and ASIDE not in (one, other)]
            self._ladder = make_ladder(self._votes, self._leaves(), self.clusters, apart)
        return self._ladder

    def _leaves(self) -> Partition:
        """Number the groups at the finest level, from 0: parts as the votes divide them, bound by answers."""
        leaves, known, number = np.full(len(self.clusters), ASIDE), self._known, 0
        for cluster in np.unique(self.clusters[self.clusters != ASIDE]):
            inside = np.flatnonzero(self.clusters == cluster)
            numbers, sizes = np.unique(self.parts[inside], return_counts=True)
            bound = {int(part) for part in numbers} & (known.settled | known.joined)
            if bound:
                bound.add(int(numbers[sizes.argmax()]))
                leaves[inside[np.isin(self.parts[inside], list(bound))]] = number
            for part in set(numbers.tolist()) - bound:
                for group in self._divide(inside[self.parts[inside] == part]):
                    number += 1
                    leaves[group] = number
            number += 1
        found: Partition = np.unique(leaves, return_inverse=True)[1] - int((leaves == ASIDE).any())
        return found

    def _divide(self, members: IntArray) -> list[IntArray]:
        made = self._as_made(members)
        most = max(2, ceil(FINEST * self._n_clusters * len(made) / len(self.clusters)))
        key = _digest(made), most
        if key not in self._divisions:
            self._divisions[key] = divide(self._votes, made, most, _SEEN)
        groups = [np.intersect1d(group, members) for group in self._divisions[key]]
        return [group for group in groups if len(group)]

    def core(self, cluster: int) -> int:
        """Return the largest part of a cluster; :data:`ASIDE` if the cluster is empty."""
        return _most_frequent(self.parts[self.clusters == cluster])

    def _make_part(self, samples: IntArray) -> int:
        number = self._known.next_part
        self.parts[samples], self._made[number] = number, samples
        self._known.next_part += 1
        return number

    def _make_cluster(self, samples: IntArray) -> None:
        self.clusters[samples] = self._known.next_number
        self._known.next_number += 1

    def _halve(self, members: IntArray) -> tuple[IntArray, float] | None:
        made = self._as_made(members)
        if (key := _digest(made)) not in self._halves:
            self._halves[key] = halve(self._votes, made)
        if (found := self._halves[key]) is None:
            return None
        return np.intersect1d(found[0], members), found[1]

    def _as_made(self, members: IntArray) -> IntArray:
        """Return a part's original samples if it has lost few of them, else its present ones.

        So a part is divided as before after samples were moved out of it, without a new computation.
        """
        made = self._made[int(self.parts[members[0]])]
        return made if len(members) >= _NEARLY_ALL * len(made) else members


def _digest(members: IntArray) -> bytes:
    return blake2b(members.tobytes(), digest_size=16).digest()


def _most_frequent(numbers: IntArray) -> int:
    """Return the most frequent number; :data:`ASIDE` only if there is no other."""
    numbers = numbers[numbers != ASIDE]
    return int(np.bincount(numbers).argmax()) if len(numbers) else ASIDE
