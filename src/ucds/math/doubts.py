"""Chooses the group of samples about which a person's answer would change a clustering most.

A clustering comes with votes: other clusterings of the same samples, whose *co-association* of two samples is
the share of them that put both into one cluster. Each cluster consists of *parts*, groups that the votes keep
together more than they keep the cluster. Parts are purer than clusters, so that a person can say where a part
belongs, where nothing true could be said of the whole cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
from scipy import sparse
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from ucds.math.arrays import DoubleArray, FloatArray, IntArray
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
    others: tuple[int, ...]
    score: float


class Doubts:
    """A clustering that changes by a person's answers only, and what is known of its parts.

    Args:
        votes: ``(n, m)`` memberships by which groups are compared.
        clusters: ``(n,)`` numbers of the clusters at the start.
        parts: ``(n,)`` numbers of the parts, each within one cluster, from :func:`cut_into_parts`.
    """

    def __init__(self, votes: Memberships, clusters: Partition, parts: Partition) -> None:
        self.clusters, self.parts = clusters.copy(), parts.copy()
        self._votes = votes
        self._settled: set[int] = set()
        self._denied: set[tuple[int, int]] = set()
        self._divided: dict[int, int] = {}
        self._next_part = count(int(parts.max()) + 1)
        self._halves: dict[bytes, tuple[IntArray, float] | None] = {}

    def restart(self, clusters: Partition, parts: Partition) -> None:
        """Forget all answers, and start from these clusters and parts again; what was computed is kept."""
        known = self._halves
        self.__init__(self._votes, clusters, parts)  # type: ignore[misc]
        self._halves = known

    def ranked(self, without: Collection[tuple[int, int]] = ()) -> list[Doubt]:
        """List the groups in doubt about which something can be asked, the most doubtful first.

        Args:
            without: parts and sizes of groups that shall not be asked about.
        """
        groups = _Groups(self._votes, self.clusters, self.parts)
        found = [*self._doubtful_parts(groups), *self._doubtful_halves(groups)]
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
            self.clusters[doubt.samples] = cluster
        elif len(doubt.samples) > (self.clusters == cluster).sum():
            self.clusters[self.clusters == cluster] = doubt.cluster
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
            second = halves[0]
            self.parts[np.setdiff1d(members, second)] = next(self._next_part)
            self.parts[second] = next(self._next_part)

    def _doubtful_parts(self, groups: _Groups) -> Iterator[Doubt]:
        """Yield every part that may belong elsewhere, and for the largest part of a cluster the cluster."""
        for row, part in enumerate(groups.parts):
            if part in self._settled:
                continue
            relations, own = groups.relations(row), groups.cluster_of[row]
            others = self._offer(groups, relations, int(part), own)
            likeliest = relations[others[0]] if others else 0.0
            if groups.is_core(row):
                movable = min(groups.sizes[own], groups.sizes[others[0]]) if others else 0
                score, samples = _JOIN_WEIGHT * likeliest * movable, groups.members(own)
            else:
                unrelated = 1 - min(groups.relation_to_rest(row), 1.0)
                score = max(unrelated, _JOIN_WEIGHT * likeliest) * groups.part_sizes[row]
                samples = groups.of_part(row)
            numbers = tuple(int(groups.clusters[other]) for other in others)
            yield Doubt(
                samples, int(part), int(groups.clusters[own]), groups.is_core(row), numbers, float(score)
            )

    def _doubtful_halves(self, groups: _Groups) -> Iterator[Doubt]:
        """Yield the smaller half of every part that is settled, or is the largest of its cluster."""
        for row, part in enumerate(groups.parts):
            size = int(groups.part_sizes[row])
            if self._divided.get(int(part)) == size or not (part in self._settled or groups.is_core(row)):
                continue
            halves = self._halve(groups.of_part(row))
            if halves is None:
                continue
            second, relation = halves
            relations, own = groups.relations_of(second), groups.cluster_of[row]
            others = self._offer(groups, relations, int(part), own)
            score = _HALF_WEIGHT * (1 - min(relation, 1.0)) * len(second)
            numbers = tuple(int(groups.clusters[other]) for other in others)
            yield Doubt(second, int(part), int(groups.clusters[own]), False, numbers, float(score))

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

    def core(self, cluster: int) -> int:
        """Return the number of the largest part of a cluster."""
        parts, sizes = np.unique(self.parts[self.clusters == cluster], return_counts=True)
        return int(parts[sizes.argmax()])

    def _halve(self, members: IntArray) -> tuple[IntArray, float] | None:
        key = members.tobytes()
        if key not in self._halves:
            self._halves[key] = halve(self._votes, members)
        return self._halves[key]


class _Groups:
    """Mean co-associations of the parts and clusters of a clustering, from the sums of their memberships."""

    def __init__(self, votes: Memberships, clusters: Partition, parts: Partition) -> None:
        self._votes, self._clusters, self._parts = votes, clusters, parts
        self.parts, first, self.part_sizes = np.unique(parts, return_index=True, return_counts=True)
        self.clusters, self.cluster_of = np.unique(clusters[first], return_inverse=True)
        inside = np.zeros((len(self.parts), len(self.clusters)))
        inside[np.arange(len(self.parts)), self.cluster_of] = 1
        self.sizes = self.part_sizes @ inside
        sums = sum_memberships(votes, [self.of_part(row) for row in range(len(self.parts))])
        products = (sums @ sums.T).astype(np.float64)
        self._part_products = products.diagonal()
        self._cross = products @ inside
        self._cluster_sums = inside.T @ sums
        cluster_products = np.einsum("ij,ij->j", inside, self._cross)
        self._part_within = _mean_within(self._part_products, self.part_sizes)
        self._within = _mean_within(cluster_products, self.sizes)
        largest = np.zeros(len(self.clusters), dtype=np.int64)
        np.maximum.at(largest, self.cluster_of, self.part_sizes)
        self._largest = largest

    def of_part(self, row: int) -> IntArray:
        """Return the positions of the samples of a part."""
        return np.flatnonzero(self._parts == self.parts[row])

    def members(self, place: int) -> IntArray:
        """Return the positions of the samples of a cluster."""
        return np.flatnonzero(self._clusters == self.clusters[place])

    def is_core(self, row: int) -> bool:
        """Return whether a part is the largest one of its cluster."""
        return bool(self.part_sizes[row] == self._largest[self.cluster_of[row]])

    def relations(self, row: int) -> DoubleArray:
        """Return the relation of a part to every cluster: 1 where both are as near as each to itself."""
        between = self._cross[row] / (self.part_sizes[row] * self.sizes)
        return np.asarray(between / np.sqrt(self._part_within[row] * self._within + 1e-9))

    def relations_of(self, samples: IntArray) -> DoubleArray:
        """Return the relation of any group of samples to every cluster."""
        sums = sum_memberships(self._votes, [samples])[0]
        within = _mean_within(np.array([sums @ sums]), np.array([len(samples)]))
        between = self._cluster_sums @ sums / (len(samples) * self.sizes)
        return np.asarray(between / np.sqrt(within * self._within + 1e-9))

    def relation_to_rest(self, row: int) -> float:
        """Return the relation of a part to the other parts of its cluster."""
        own, size = self.cluster_of[row], self.part_sizes[row]
        rest = self.sizes[own] - size
        between = (self._cross[row, own] - self._part_products[row]) / (size * rest)
        return float(between / np.sqrt(self._part_within[row] * self._within[own] + 1e-9))


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

    Args:
        votes: ``(n, m)`` memberships of all samples.
        members: ``(m,)`` positions of the samples of the group, ascending.

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
    sides = _cut(linkage(squareform(distances, checks=False), "average"), len(seen))
    if sides is None:
        return None
    one, other = seen[sides[0]], seen[sides[1]]
    sums = sum_memberships(votes, [one, other])
    rest = np.setdiff1d(members, np.concatenate([one, other]))
    nearness = votes[rest] @ (sums / np.array([[len(one)], [len(other)]])).T
    follows = np.asarray(nearness).argmax(1) if len(rest) else np.empty(0, np.int64)
    halves = [np.sort(np.concatenate([side, rest[follows == i]])) for i, side in enumerate((one, other))]
    sums = sum_memberships(votes, halves)
    sizes = np.array([len(half) for half in halves])
    within = _mean_within((sums * sums).sum(1), sizes)
    relation = float(sums[0] @ sums[1] / sizes.prod() / np.sqrt(within.prod() + 1e-9))
    return min(halves, key=len), relation


def sum_memberships(votes: Memberships, groups: Sequence[IntArray]) -> FloatArray:
    """Sum the memberships of the samples of some groups: ``(g, m)``."""
    ends = np.concatenate([[0], np.cumsum([len(group) for group in groups])])
    columns = np.concatenate(groups)
    entries = np.ones(len(columns), np.float32)
    chosen = sparse.csr_array((entries, columns, ends), shape=(len(groups), votes.shape[0]))
    return np.asarray((chosen @ votes).toarray())


def _mean_within(products: DoubleArray | FloatArray, sizes: DoubleArray | IntArray) -> DoubleArray:
    """Mean co-association of the pairs of different samples of groups; 1 for a single sample."""
    counts = np.asarray(sizes, dtype=np.float64)
    pairs = counts * (counts - 1)
    return np.where(pairs > 0, (np.asarray(products, np.float64) - sizes) / np.maximum(pairs, 1), 1.0)


def _cut(tree: FloatArray, n: int) -> tuple[IntArray, IntArray] | None:
    """Find the topmost merge of a tree whose smaller side counts; return the places of both sides."""
    needed = max(_SMALLEST, _LEAST_HALF * n)
    node = 2 * n - 2
    while node >= n:
        one, other = (int(child) for child in tree[node - n, :2])
        sizes = [1 if child < n else tree[child - n, 3] for child in (one, other)]
        if min(sizes) >= needed:
            return _leaves(tree, one, n), _leaves(tree, other, n)
        node = one if sizes[0] > sizes[1] else other
    return None


def _leaves(tree: FloatArray, node: int, n: int) -> IntArray:
    """List the places of the samples below a node of a tree."""
    open_nodes, found = [node], []
    while open_nodes:
        node = open_nodes.pop()
        if node < n:
            found.append(node)
        else:
            open_nodes += [int(child) for child in tree[node - n, :2]]
    return np.array(found, dtype=np.int64)
