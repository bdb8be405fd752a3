"""Divides clusters into parts that the votes keep together, and orders clusterings from coarse to fine.

The *co-association* of two samples is the share of the votes that put both into one cluster. The *relation*
of two groups is the mean co-association between them, divided by that within them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.cluster.hierarchy import ClusterNode, linkage, to_tree
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import squareform

from ucds.math.arrays import DoubleArray, FloatArray, IntArray
from ucds.math.consensus import Memberships, Partition, average_linkage, average_tree, refine

PARTS = 2.0
"""Number of parts per cluster. With more parts, the first answers change less."""

_SMALLEST = 3  # samples of a part; fewer tell a person nothing
_LEAST_SIDE = 0.1  # share of a group that the smaller side of a cut has at least; less is a few outliers
_SEEN = 1000  # samples at most by which a group is divided; the others follow them
_NEVER, _NEVER_FROM = 1e12, 2.0  # distance of clusters that stay apart; no average of others comes near it


class Groups:
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

    def relations(self, others: Groups) -> DoubleArray:
        """Return the relation of each group to each other one: 1 if they are as close as each by itself."""
        between = self.sums @ others.sums.T / np.outer(self.sizes, others.sizes)
        return np.asarray(between / np.sqrt(np.outer(self.within, others.within) + 1e-9))


def cut_into_parts(votes: Memberships, clusters: Partition, rng: np.random.Generator) -> Partition:
    """Cut clusters into parts that the votes keep together.

    The parts are the groups of a finer consensus within each cluster. Groups of fewer than three samples join
    the largest part of their cluster.

    The numbers ``(n,)`` of the parts are returned; every part lies in one cluster.
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


def divide(votes: Memberships, members: IntArray, most: int, seen: int = _SEEN) -> list[IntArray]:
    """Divide a group by average linkage of the co-association, at the widest gaps of the tree.

    Outliers do not count as a side: from the top of a branch, the first cut counts whose smaller side has at
    least a tenth of the samples, and at least three. Other samples follow the nearest side.

    The members are ascending positions, and so are those of each group that is returned: the group alone, if
    it has no two such sides. At most ``seen`` samples are compared with each other.
    """
    if len(members) < 2 * _SMALLEST:
        return [members]
    # Evenly spaced, and not drawn: the same group is always divided alike.
    chosen = members[np.linspace(0, len(members) - 1, min(len(members), seen)).astype(np.int64)]
    branches = [to_tree(average_tree(votes[chosen]))]
    while len(branches) < most:
        cuts = {place: cut for place, node in enumerate(branches) if (cut := _first_cut(node)) is not None}
        if not cuts:
            break
        widest = max(cuts, key=lambda place: cuts[place].dist)
        branches[widest : widest + 1] = cuts[widest].left, cuts[widest].right
    if len(branches) == 1:
        return [members]
    found = [np.sort(chosen[branch.pre_order()]) for branch in branches]
    groups, rest = Groups(votes, found), np.setdiff1d(members, np.concatenate(found))
    follows = (votes[rest] @ (groups.sums / groups.sizes[:, None]).T).argmax(1)
    return [np.sort(np.concatenate([group, rest[follows == i]])) for i, group in enumerate(found)]


def halve(votes: Memberships, members: IntArray) -> tuple[IntArray, float] | None:
    """Cut a group in two, see :func:`divide`.

    Returns:
        The positions of the smaller half, ascending, and the relation of the two halves; ``None`` if the
        group has no two such sides.
    """
    halves = divide(votes, members, 2)
    if len(halves) == 1:
        return None
    groups = Groups(votes, halves)
    return min(halves, key=len), float(groups.relations(groups)[0, 1])


def divide_by_features(directions: FloatArray, members: IntArray, parts: int) -> list[IntArray]:
    """Divide a group by k-means, where the votes do not.

    Directions are ``(n, d)`` features of unit length. Samples that are all alike give fewer groups.
    """
    from sklearn.cluster import KMeans  # it takes a while to load

    found = directions[members]
    parts = min(parts, len(np.unique(found[:_SEEN], axis=0)))
    model = KMeans(parts, n_init=4, random_state=0).fit(found[:: max(1, len(found) // _SEEN)])
    numbers = model.predict(found)
    return [members[numbers == number] for number in np.unique(numbers)]


def _first_cut(node: ClusterNode) -> ClusterNode | None:
    """Return the first node from the top of a branch whose sides are both large enough."""
    least = max(_SMALLEST, _LEAST_SIDE * node.count)
    while not node.is_leaf():
        if min(node.left.count, node.right.count) >= least:
            return node
        node = node.left if node.left.count > node.right.count else node.right
    return None


@dataclass(frozen=True, eq=False)
class Ladder:
    """Clusters from the finest to the coarsest: each step joins two groups of the one before."""

    leaves: Partition  # `(n,)` groups at the finest, from 0; -1 for samples that are left out
    steps: IntArray  # `(s, 2)` one leaf of each of the two groups that a step joins, in order
    n_leaves: int  # number of the groups at the finest

    @property
    def range(self) -> tuple[int, int]:
        """Least and largest number of groups."""
        return self.n_leaves - len(self.steps), self.n_leaves

    def groups(self, n: int) -> Partition:
        """Return the ``n`` groups: ``(n,)`` numbers from 0, and -1 for samples that are left out."""
        rows, columns = self.steps[: self.n_leaves - n].T
        links = sparse.coo_array((np.ones(len(rows)), (rows, columns)), shape=(self.n_leaves, self.n_leaves))
        of_leaf = connected_components(links, directed=False)[1].astype(np.int64)
        return np.where(self.leaves < 0, -1, of_leaf[self.leaves])


def make_ladder(
    votes: Memberships, leaves: Partition, clusters: Partition, apart: Sequence[tuple[int, int]]
) -> Ladder:
    """Join the leaves within each cluster by average linkage of their relations, and then the clusters.

    So the present clusters are one of the steps: fewer groups join clusters, more groups divide them.

    Leaves are ``(n,)`` groups from 0, each within one cluster; -1 is left out. Pairs of clusters ``apart``
    are never joined.
    """
    members = [np.flatnonzero(leaves == leaf) for leaf in range(int(leaves.max()) + 1)]
    owners = clusters[[rows[0] for rows in members]]
    within = list[tuple[float, int, int]]()
    for cluster in np.unique(owners[owners >= 0]):
        places = np.flatnonzero(owners == cluster)
        if len(places) > 1:
            within += _joins(Groups(votes, [members[place] for place in places]), places)
    within.sort(key=lambda join: join[0])  # stable: joins of one height stay in the order of their tree
    numbers, first = np.unique(owners, return_index=True)
    between = list[tuple[float, int, int]]()
    if len(numbers) > 1:
        wholes = Groups(votes, [np.flatnonzero(clusters == number) for number in numbers])
        between = _joins(wholes, first, np.searchsorted(numbers, np.array(apart, np.int64).reshape(-1, 2)))
    steps = [(one, other) for height, one, other in (*within, *between) if height < _NEVER_FROM]
    return Ladder(leaves, np.array(steps, np.int64).reshape(-1, 2), len(members))


def _joins(groups: Groups, leaves: IntArray, apart: IntArray | None = None) -> list[tuple[float, int, int]]:
    """List the joins of groups by average linkage: height, and a leaf of each side, the nearest first."""
    distances = np.maximum(1 - groups.relations(groups), 0)
    if apart is not None:
        distances[apart[:, 0], apart[:, 1]] = distances[apart[:, 1], apart[:, 0]] = _NEVER
    np.fill_diagonal(distances, 0)
    found, of_node = [], leaves.tolist()
    for one, other, height, _ in linkage(squareform(distances, checks=False), "average").tolist():
        found.append((height, of_node[int(one)], of_node[int(other)]))
        of_node.append(of_node[int(one)])
    return found
