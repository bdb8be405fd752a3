"""Chooses the group of samples about which a person's answer would change a clustering most.

A clustering comes with votes: other clusterings of the same samples, whose *co-association* of two samples is
the share of them that put both into one cluster. Each cluster consists of *parts*, groups that the votes keep
together more than they keep the cluster. Parts are purer than clusters, so that a person can say where a part
belongs, where nothing true could be said of the whole cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import sparse
from scipy.cluster.hierarchy import to_tree

from ucds.math.arrays import DoubleArray, IntArray
from ucds.math.consensus import Memberships, Partition, average_linkage, average_tree, refine

PARTS = 2.0
"""Parts in relation to the number of clusters. With more, the first answers change less."""

OFFERED = 4
"""Clusters at most, beside its own, to which a group may be said to belong."""

LEAST_RELATION = 0.02
"""Relation below which a cluster is not offered: hardly any vote puts it together with the group."""

_SMALLEST = 3  # samples of a part; fewer tell a person nothing
_LEAST_HALF = 0.1  # share of a part that its smaller half has at least; less is a few outliers
_SEEN = 1000  # samples at most by which a part is halved; the others follow them
_JOIN_WEIGHT, _HALF_WEIGHT = 0.5, 0.25  # of the samples that such an answer might move


Change = Literal["kept", "placed", "separated", "mixed"]
"""What is done with a group: it stays in its cluster, and belongs to none of the others that were offered; it
goes to another cluster; it becomes one of its own; it is mixed, so that its halves may be asked about."""


@dataclass(frozen=True, eq=False)
class Doubt:
    """A group of samples whose cluster is in doubt.

    Attributes:
        samples: ``(m,)`` positions of the samples of the group, ascending.
        part: number of the part to which they belong.
        cluster: number of their cluster.
        whole: whether the group is the whole cluster; the question is then whether it is one with another.
        others: numbers of the other clusters to which the group may belong, the likeliest first.
        score: number of samples that an answer is expected to move; to be compared, not to be believed.
    """

    samples: IntArray
    part: int
    cluster: int
    whole: bool
    others: list[int]
    score: float


class Doubts:
    """A clustering that changes by a person's answers only, and what is known of its parts.

    Args:
        votes: ``(n, m)`` memberships by which groups are compared.
        clusters: ``(n,)`` numbers of the clusters at the start.
        parts: ``(n,)`` numbers of the parts, each within one cluster, from :func:`cut_into_parts`.
        next_number: number of the first new cluster.
        keep_clusters: whether the number of clusters stays: a group that shall be a cluster of its own waits
            until two others have become one.
        proposed: groups that are asked about before all others: positions ``(m,)`` of the samples, ascending,
            and the cluster that is proposed for them, which may be a new one.

    Attributes:
        clusters: ``(n,)`` numbers of the clusters after all answers; -1 for samples in none.
        parts: ``(n,)`` numbers of the parts.
    """

    def __init__(
        self,
        votes: Memberships,
        clusters: Partition,
        parts: Partition,
        next_number: int,
        *,
        keep_clusters: bool = False,
        proposed: Sequence[tuple[IntArray, int]] = (),
    ) -> None:
        self._votes, self._start, self._proposed = votes, (clusters, parts, next_number), proposed
        self._most = len(np.unique(clusters[clusters >= 0])) if keep_clusters else np.inf
        self._halves: dict[bytes, tuple[IntArray, float] | None] = {}
        self._skipped: set[tuple[int, int]] = set()
        self.restart()

    def restart(self) -> None:
        """Forget all changes; groups that were skipped stay so."""
        clusters, parts, self._next_number = self._start
        self.clusters, self.parts = clusters.copy(), parts.copy()
        self._settled: set[int] = set()
        self._denied: set[tuple[int, int]] = set()
        self._divided: set[tuple[int, int]] = set()
        self._waiting: list[IntArray] = []
        self._answered: set[bytes] = set()
        self._ranked: list[Doubt] | None = None

    def skip(self, doubt: Doubt) -> None:
        """Ask about a group no more."""
        self._skipped.add((doubt.part, len(doubt.samples)))
        self._ranked = None

    def cluster_of(self, group: IntArray) -> int:
        """Return the number of the cluster that holds most of a group."""
        return _most_frequent(self.clusters[group])

    def change(
        self, did: Change, group: IntArray, others: Sequence[IntArray], to: IntArray, *, whole: bool
    ) -> None:
        """Let an answer about a group take effect.

        Args:
            did: change of the group.
            group: ``(m,)`` positions of its samples, ascending; of some of them, if it is a whole cluster.
            others: samples of each of the other clusters that were offered.
            to: samples of the cluster to which the group goes; of two whole clusters, the larger one keeps
                its number.
            whole: whether the group is the whole cluster that holds most of it.
        """
        self._ranked, cluster = None, self.cluster_of(group)
        self._answered.add(group.tobytes())
        samples = np.flatnonzero(self.clusters == cluster) if whole else group
        part = _most_frequent(self.parts[samples])
        members = np.flatnonzero(self.parts == part)
        if not whole and not np.array_equal(samples, members):
            halves = self._halve(members)
            if halves is not None and np.array_equal(samples, halves[0]):  # not samples moved by hand
                self._divided.add((part, len(members) - len(samples)))
            part, members = self._make_part(samples), samples
        offered = {self.cluster_of(other) for other in others} - {cluster}
        if did == "separated" and self._count() >= self._most:
            self._waiting.append(samples)
            did = "kept"
        match did:
            case "kept":
                self._denied |= {(part, other) for other in offered}
                if whole:
                    cores = (_most_frequent(self.parts[self.clusters == other]) for other in offered)
                    self._denied |= {(core, cluster) for core in cores}
                else:
                    self._settled.add(part)
            case "placed":
                joined = np.flatnonzero(self.clusters == self.cluster_of(to))
                if whole and len(samples) > len(joined):
                    samples, joined = joined, samples
                self.clusters[samples] = self.clusters[joined[0]]
                if not whole:
                    self._settled.add(part)
                if self._waiting and self._count() < self._most:
                    self._make_cluster(self._waiting.pop(0))
            case "separated":
                self._denied |= {(part, other) for other in (cluster, *offered)}
                self._make_cluster(samples)
            case "mixed" if whole and len(members) < len(samples):
                self._denied |= {(part, other) for other in offered}
            case "mixed":
                self._settled.add(part)
                if (halves := self._halve(members)) is not None:
                    self._make_part(members)
                    self._make_part(halves[0])

    def ranked(self) -> list[Doubt]:
        """List the groups in doubt about which something can be asked, the most doubtful first."""
        if self._ranked is None:
            found = [*self._find_proposed(), *sorted(self._find(), key=lambda doubt: -doubt.score)]
            open_ones = (one for one in found if (one.part, len(one.samples)) not in self._skipped)
            self._ranked = [one for one in open_ones if one.score > 0]
        return self._ranked

    def _find_proposed(self) -> Iterator[Doubt]:
        """Yield the groups for which a cluster is proposed, those in no cluster first, then the largest."""
        some = [one for one in self._proposed if one[0].tobytes() not in self._answered]
        for samples, to in sorted(some, key=lambda one: (self.cluster_of(one[0]) >= 0, -len(one[0]))):
            cluster, numbers = self.cluster_of(samples), np.unique(self.clusters[self.clusters >= 0])
            wholes = _Groups(self._votes, [np.flatnonzero(self.clusters == number) for number in numbers])
            related = _Groups(self._votes, [samples]).relations(wholes)[0]
            likeliest = numbers[[i for i in np.argsort(-related, kind="stable") if related[i] > 0]].tolist()
            others = [to] * (to in numbers) + [number for number in likeliest if number not in (to, cluster)]
            if cluster != to or cluster < 0:
                part = _most_frequent(self.parts[samples])
                yield Doubt(samples, part, cluster, False, others[:OFFERED], float(len(samples)))

    def _find(self) -> Iterator[Doubt]:
        """Yield what is in doubt of each part: its place or its cluster's, and that of its smaller half."""
        inside = np.flatnonzero(self.clusters >= 0)
        numbers, first = np.unique(self.parts[inside], return_index=True)
        clusters, owners = np.unique(self.clusters[inside[first]], return_inverse=True)
        parts = _Groups(self._votes, [np.flatnonzero(self.parts == number) for number in numbers])
        wholes = _Groups(self._votes, [np.flatnonzero(self.clusters == number) for number in clusters])
        relations = parts.relations(wholes)

        def offer(part: int, own: int, related: DoubleArray) -> list[int]:
            """List the places of the clusters to which a group may belong, the likeliest first."""
            likeliest = [i for i in np.argsort(-related, kind="stable") if related[i] >= LEAST_RELATION]
            return [i for i in likeliest if i != own and (part, clusters[i]) not in self._denied][:OFFERED]

        for row, (part, own) in enumerate(zip(numbers.tolist(), owners, strict=True)):
            members, size, related = parts.members[row], parts.sizes[row], relations[row]
            cluster, settled = int(clusters[own]), part in self._settled
            whole = bool(size == parts.sizes[owners == own].max())
            if not settled:
                others = offer(part, own, related)
                likeliest = _JOIN_WEIGHT * related[others[0]] if others else 0.0
                if whole:
                    samples = wholes.members[own]
                    score = likeliest * min([len(samples), *wholes.sizes[others[:1]]])
                else:
                    samples, rest = members, wholes.sums[own] - parts.sums[row]
                    between = parts.sums[row] @ rest / (size * (wholes.sizes[own] - size))
                    related_to_rest = between / np.sqrt(parts.within[row] * wholes.within[own] + 1e-9)
                    score = max(1 - related_to_rest, likeliest) * size
                yield Doubt(samples, part, cluster, whole, clusters[others].tolist(), score)
            if (settled or whole) and (part, len(members)) not in self._divided:
                if (halves := self._halve(members)) is None:
                    continue
                half, relation = halves
                others = offer(part, own, _Groups(self._votes, [half]).relations(wholes)[0])
                score = _HALF_WEIGHT * (1 - relation) * len(half)
                yield Doubt(half, part, cluster, False, clusters[others].tolist(), score)

    def _count(self) -> int:
        return len(np.unique(self.clusters[self.clusters >= 0]))

    def _make_part(self, samples: IntArray) -> int:
        number = int(self.parts.max()) + 1
        self.parts[samples] = number
        return number

    def _make_cluster(self, samples: IntArray) -> None:
        self.clusters[samples] = self._next_number
        self._next_number += 1

    def _halve(self, members: IntArray) -> tuple[IntArray, float] | None:
        key = members.tobytes()
        if key not in self._halves:
            self._halves[key] = halve(self._votes, members)
        return self._halves[key]


class _Groups:
    """Groups of samples with the sums of their memberships, from which mean co-associations follow."""

    def __init__(self, votes: Memberships, members: Sequence[IntArray]) -> None:
        sizes, columns = np.array([len(group) for group in members]), np.concatenate(members)
        ends, shape = np.concatenate([[0], np.cumsum(sizes)]), (len(members), votes.shape[0])
        self.members, self.sizes = members, sizes.astype(np.float64)
        self.sums = (sparse.csr_array((np.ones(len(columns)), columns, ends), shape=shape) @ votes).toarray()
        together = np.einsum("ij,ij->i", self.sums, self.sums) - self.sizes
        # Mean co-association of the pairs of different samples of each group; 1 for a single sample.
        # Where no vote puts two of them together, rounding would make it less than 0.
        pairs = np.maximum(self.sizes * (self.sizes - 1), 1)
        self.within = np.where(sizes > 1, np.maximum(together, 0) / pairs, 1.0)

    def relations(self, others: _Groups) -> DoubleArray:
        """Return the relation of each group to each other one: 1 where both are as near as each to itself."""
        between = self.sums @ others.sums.T / np.outer(self.sizes, others.sizes)
        return np.asarray(between / np.sqrt(np.outer(self.within, others.within) + 1e-9))


def cut_into_parts(votes: Memberships, clusters: Partition, rng: np.random.Generator) -> Partition:
    """Cut clusters into parts that the votes keep together.

    The parts are the groups of a finer consensus within each cluster. Groups of fewer than three samples join
    the largest part of their cluster.

    Args:
        votes: ``(n, m)`` memberships.
        clusters: ``(n,)`` clusters.
        rng: generator of the choice of samples that are compared one by one, where there are many.

    Returns:
        ``(n,)`` numbers of parts; every part lies in one cluster.
    """
    finer = min(round(PARTS * len(np.unique(clusters))), len(clusters))
    groups = refine(votes, average_linkage(votes, finer, rng), finer)
    parts: Partition = np.unique(clusters * finer + groups, return_inverse=True)[1].astype(np.int64)
    for cluster in np.unique(clusters):
        inside = np.flatnonzero(clusters == cluster)
        numbers, sizes = np.unique(parts[inside], return_counts=True)
        small = np.isin(parts[inside], numbers[sizes < _SMALLEST])
        parts[inside[small]] = numbers[sizes.argmax()]
    return parts


def halve(votes: Memberships, members: IntArray) -> tuple[IntArray, float] | None:
    """Cut a group in two by average linkage of the co-association.

    Outliers do not count as a half: the cut is the first one, from the top of the tree, whose smaller side
    has a tenth of the samples and three at least. Samples outside both sides follow the nearer one.

    Returns:
        The positions of the smaller half, ascending, and the relation of the two halves; ``None`` if the
        group has no two such sides.
    """
    if len(members) < 2 * _SMALLEST:
        return None
    # Evenly spaced, and not drawn: the same group always has the same halves.
    seen = members[np.linspace(0, len(members) - 1, min(len(members), _SEEN)).astype(np.int64)]
    node = to_tree(average_tree(votes[seen]))
    while min(node.left.count, node.right.count) < max(_SMALLEST, _LEAST_HALF * len(seen)):
        node = node.left if node.left.count > node.right.count else node.right
        if node.is_leaf():
            return None
    sides = [np.sort(seen[side.pre_order()]) for side in (node.left, node.right)]
    groups, rest = _Groups(votes, sides), np.setdiff1d(members, np.concatenate(sides))
    follows = (votes[rest] @ (groups.sums / groups.sizes[:, None]).T).argmax(1)
    halves = [np.sort(np.concatenate([side, rest[follows == i]])) for i, side in enumerate(sides)]
    groups = _Groups(votes, halves)
    return min(halves, key=len), float(groups.relations(groups)[0, 1])


def _most_frequent(numbers: IntArray) -> int:
    return int(np.bincount(numbers + 1).argmax()) - 1  # -1 is no cluster
