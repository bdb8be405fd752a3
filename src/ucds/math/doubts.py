"""Chooses the group of samples about which a person's answer would change a clustering most.

A clustering comes with votes: other clusterings of the same samples, whose *co-association* of two samples is
the share of them that put both into one cluster. Each cluster consists of *parts*, groups that the votes keep
together more than they keep the cluster. Parts are purer than clusters, so that a person can say where a part
belongs, where nothing true could be said of the whole cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count

import numpy as np
from scipy import sparse
from scipy.cluster.hierarchy import linkage, to_tree
from scipy.spatial.distance import squareform

from ucds.math.arrays import DoubleArray, IntArray
from ucds.math.consensus import Memberships, Partition, average_linkage, refine

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
    others: tuple[int, ...] = ()
    score: float = 0.0


class Doubts:
    """A clustering that changes by a person's answers only, and what is known of its parts.

    Args:
        votes: ``(n, m)`` memberships by which groups are compared.
        clusters: ``(n,)`` numbers of the clusters at the start.
        parts: ``(n,)`` numbers of the parts, each within one cluster, from :func:`cut_into_parts`.
    """

    def __init__(self, votes: Memberships, clusters: Partition, parts: Partition) -> None:
        self._votes = votes
        self._halves: dict[bytes, tuple[IntArray, float] | None] = {}
        self.restart(clusters, parts)

    def restart(self, clusters: Partition, parts: Partition) -> None:
        """Forget all answers, and start from these clusters and parts; computed halves are kept."""
        self.clusters, self.parts = clusters.copy(), parts.copy()
        self._settled: set[int] = set()
        self._denied: set[tuple[int, int]] = set()
        self._divided: dict[int, int] = {}
        self._next_part = count(int(parts.max()) + 1)

    def ranked(self, without: Collection[tuple[int, int]] = ()) -> list[Doubt]:
        """List the groups in doubt about which something can be asked, the most doubtful first.

        Args:
            without: parts and sizes of groups that shall not be asked about.
        """
        groups = _Groups(self._votes, self.clusters, self.parts)
        found = chain.from_iterable(self._doubts_about(groups, row) for row in range(len(groups.parts)))
        some = (one for one in found if one.score > 0 and (one.part, len(one.samples)) not in without)
        return sorted(some, key=lambda doubt: -doubt.score)

    def keep(self, doubt: Doubt) -> None:
        """Note that a group stays in its cluster, and belongs to none of the others that were offered."""
        part = self._own_part(doubt)
        self._denied |= {(part, other) for other in doubt.others}
        if doubt.whole:
            self._denied |= {(self.core(other), doubt.cluster) for other in doubt.others}
        else:
            self._settled.add(part)

    def move(self, doubt: Doubt, cluster: int) -> None:
        """Move a group to another cluster; of two whole clusters the larger one keeps its number."""
        part = self._own_part(doubt)
        if not doubt.whole:
            self._settled.add(part)
        joined = np.flatnonzero(self.clusters == cluster)
        if doubt.whole and len(doubt.samples) > len(joined):
            self.clusters[joined] = doubt.cluster
        else:
            self.clusters[doubt.samples] = cluster

    def separate(self, doubt: Doubt, number: int) -> None:
        """Make a group a cluster of its own, with this number."""
        part = self._own_part(doubt)
        self._denied |= {(part, other) for other in (doubt.cluster, *doubt.others)}
        self.clusters[doubt.samples] = number

    def divide(self, doubt: Doubt) -> None:
        """Note that a group is mixed: its halves may be asked about, and nothing else changes."""
        part = self._own_part(doubt)
        members = np.flatnonzero(self.parts == part)
        if doubt.whole and len(members) < len(doubt.samples):
            self._denied |= {(part, other) for other in doubt.others}
            return
        self._settled.add(part)
        halves = self._halve(members)
        if halves is not None:
            self.parts[members] = next(self._next_part)
            self.parts[halves[0]] = next(self._next_part)

    def core(self, cluster: int) -> int:
        """Return the number of the largest part of a cluster."""
        parts, sizes = np.unique(self.parts[self.clusters == cluster], return_counts=True)
        return int(parts[sizes.argmax()])

    def _doubts_about(self, groups: _Groups, row: int) -> Iterator[Doubt]:
        """Yield what is in doubt of a part: its place or its cluster's, and that of its smaller half."""
        part, own, members = int(groups.parts[row]), int(groups.cluster_of[row]), groups.members[row]
        cluster, whole, settled = int(groups.clusters[own]), bool(groups.is_core[row]), part in self._settled
        if not settled:
            relations = groups.relations[row]
            others = self._offer(groups, relations, part, own)
            likeliest = relations[others[0]] if others else 0.0
            if whole:
                samples = np.flatnonzero(self.clusters == cluster)
                movable = min(len(samples), groups.sizes[others[0]]) if others else 0
                score = _JOIN_WEIGHT * likeliest * movable
            else:
                samples, unrelated = members, 1 - min(groups.to_rest[row], 1.0)
                score = max(unrelated, _JOIN_WEIGHT * likeliest) * len(samples)
            yield Doubt(samples, part, cluster, whole, tuple(groups.clusters[others].tolist()), score)
        if self._divided.get(part) == len(members) or not (settled or whole):
            return
        if (halves := self._halve(members)) is not None:
            others = self._offer(groups, groups.relations_of(halves[0]), part, own)
            score = _HALF_WEIGHT * (1 - min(halves[1], 1.0)) * len(halves[0])
            yield Doubt(halves[0], part, cluster, False, tuple(groups.clusters[others].tolist()), score)

    def _offer(self, groups: _Groups, relations: DoubleArray, part: int, own: int) -> list[int]:
        """List the places of the clusters to which a group may belong, the likeliest first."""
        return [
            int(other)
            for other in np.argsort(-relations, kind="stable")
            if other != own
            and relations[other] >= LEAST_RELATION
            and (part, int(groups.clusters[other])) not in self._denied
        ][:OFFERED]

    def _own_part(self, doubt: Doubt) -> int:
        """Return the number of the part that the answer is about; a half becomes a part of its own."""
        members = int((self.parts == doubt.part).sum())
        if doubt.whole or len(doubt.samples) == members:
            return doubt.part
        self._divided[doubt.part] = members - len(doubt.samples)
        part = next(self._next_part)
        self.parts[doubt.samples] = part
        return part

    def _halve(self, members: IntArray) -> tuple[IntArray, float] | None:
        key = members.tobytes()
        if key not in self._halves:
            self._halves[key] = halve(self._votes, members)
        return self._halves[key]


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums of the memberships of groups, ``(g, m)``, and sizes: mean co-associations follow from them."""

    sums: DoubleArray
    sizes: DoubleArray

    @classmethod
    def of(cls, votes: Memberships, groups: Sequence[IntArray]) -> _Sums:
        """Sum the memberships of the samples of some groups."""
        sizes = np.array([len(group) for group in groups])
        ends, columns = np.concatenate([[0], np.cumsum(sizes)]), np.concatenate(groups)
        chosen = sparse.csr_array((np.ones(len(columns)), columns, ends), shape=(len(groups), votes.shape[0]))
        return cls((chosen @ votes).toarray(), sizes.astype(np.float64))

    @cached_property
    def within(self) -> DoubleArray:
        """Mean co-association of the pairs of different samples of each group; 1 for a single sample."""
        pairs = self.sizes * (self.sizes - 1)
        together = np.einsum("ij,ij->i", self.sums, self.sums) - self.sizes
        return np.where(pairs > 0, together / np.maximum(pairs, 1), 1.0)

    def relations(self, others: _Sums) -> DoubleArray:
        """Return the relation of each group to each other one: 1 where both are as near as each to itself."""
        between = self.sums @ others.sums.T / np.outer(self.sizes, others.sizes)
        return np.asarray(between / np.sqrt(np.outer(self.within, others.within) + 1e-9))


class _Groups:
    """The parts and the clusters of a clustering, and how they are related."""

    def __init__(self, votes: Memberships, clusters: Partition, parts: Partition) -> None:
        self._votes = votes
        self.parts, first = np.unique(parts, return_index=True)
        self.clusters, self.cluster_of = np.unique(clusters[first], return_inverse=True)
        self.members = [np.flatnonzero(parts == part) for part in self.parts]
        inside = np.eye(len(self.clusters))[self.cluster_of]
        self._of_parts = _Sums.of(votes, self.members)
        self._of_clusters = _Sums(inside.T @ self._of_parts.sums, inside.T @ self._of_parts.sizes)
        self.sizes, sizes = self._of_clusters.sizes, self._of_parts.sizes
        self.relations = self._of_parts.relations(self._of_clusters)
        self.is_core = sizes == (inside.T * sizes).max(1)[self.cluster_of]
        rest = self._of_clusters.sums[self.cluster_of] - self._of_parts.sums
        pairs = sizes * np.maximum(self.sizes[self.cluster_of] - sizes, 1)
        within = self._of_parts.within * self._of_clusters.within[self.cluster_of]
        between = np.einsum("ij,ij->i", self._of_parts.sums, rest) / pairs
        self.to_rest = between / np.sqrt(within + 1e-9)  # of a part, to the other parts of its cluster

    def relations_of(self, samples: IntArray) -> DoubleArray:
        """Return the relation of any group of samples to every cluster."""
        relations: DoubleArray = _Sums.of(self._votes, [samples]).relations(self._of_clusters)[0]
        return relations


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
    rows = votes[seen]
    distances = np.maximum(1 - (rows @ rows.T).toarray(), 0)
    np.fill_diagonal(distances, 0)
    node = to_tree(linkage(squareform(distances, checks=False), "average"))
    while min(node.left.count, node.right.count) < max(_SMALLEST, _LEAST_HALF * len(seen)):
        node = node.left if node.left.count > node.right.count else node.right
        if node.is_leaf():
            return None
    sides = [np.sort(seen[side.pre_order()]) for side in (node.left, node.right)]
    sums, rest = _Sums.of(votes, sides), np.setdiff1d(members, np.concatenate(sides))
    follows = (votes[rest] @ (sums.sums / sums.sizes[:, None]).T).argmax(1)
    halves = [np.sort(np.concatenate([side, rest[follows == i]])) for i, side in enumerate(sides)]
    one, other = (_Sums.of(votes, [half]) for half in halves)
    return min(halves, key=len), float(one.relations(other)[0, 0])
