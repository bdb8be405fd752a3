"""Chooses the group of samples about which a person's answer would change a clustering most.

Each cluster consists of *parts*, groups that the votes keep together more than they keep the cluster. Parts
are purer than clusters, so that a person can say where a part belongs, where nothing true could be said of
the whole cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ucds.math.arrays import DoubleArray, IntArray
from ucds.math.corrections import ASIDE, Corrections
from ucds.math.parts import Groups

OFFERED = 4
"""Clusters at most, beside its own, to which a group may be said to belong."""

LEAST_RELATION = 0.02
"""Relation below which a cluster is not offered: hardly any vote puts it together with the group."""

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
        is_proposed: whether the first of the other clusters is the one that is proposed for the group.
    """

    samples: IntArray
    part: int
    cluster: int
    whole: bool
    others: list[int]
    score: float
    is_proposed: bool = False


class Doubts(Corrections):
    """A clustering that changes by a person's answers only, and what is in doubt about it.

    Attributes:
        proposed: groups that are asked about before all others: ascending positions of the samples, and the
            cluster that is proposed for them, which may be a new one.
    """

    proposed: Sequence[tuple[IntArray, int]] = ()
    _skipped: frozenset[tuple[int, int]] = frozenset()
    _ranked: tuple[int, list[Doubt]] = (-1, [])

    def skip(self, doubt: Doubt) -> None:
        """Ask about a group no more."""
        self._skipped |= {(doubt.part, len(doubt.samples))}
        self._ranked = (-1, [])

    def ranked(self) -> list[Doubt]:
        """List the groups in doubt about which something can be asked, the most doubtful first."""
        if self._ranked[0] != self.version:
            found = [*self._find_proposed(), *sorted(self._find(), key=lambda doubt: -doubt.score)]
            some = (one for one in found if (one.part, len(one.samples)) not in self._skipped)
            self._ranked = (self.version, [one for one in some if one.score > 0])
        return self._ranked[1]

    def _find_proposed(self) -> Iterator[Doubt]:
        """Yield the groups for which a cluster is proposed, those in no cluster first, then the largest."""
        some = [one for one in self.proposed if one[0].tobytes() not in self._known.asked]
        if not some:
            return
        numbers = np.unique(self.clusters[self.clusters != ASIDE])
        wholes = Groups(self._votes, [np.flatnonzero(self.clusters == number) for number in numbers])
        for samples, to in sorted(some, key=lambda one: (self.cluster_of(one[0]) != ASIDE, -len(one[0]))):
            if (cluster := self.cluster_of(samples)) == to:
                continue
            related = Groups(self._votes, [samples]).relations(wholes)[0]
            likeliest = [i for i in np.argsort(-related, kind="stable") if related[i] >= LEAST_RELATION]
            is_proposed = to in numbers
            others = [to] * is_proposed
            others += [number for number in numbers[likeliest].tolist() if number not in (to, cluster)]
            part = int(self.parts[samples[0]])
            whole = cluster != ASIDE and bool(len(samples) >= (self.clusters == cluster).sum())
            if whole and (part, to) in self._known.denied:
                continue
            yield Doubt(samples, part, cluster, whole, others[:OFFERED], float(len(samples)), is_proposed)

    def _find(self) -> Iterator[Doubt]:
        """Yield what is in doubt of each part: its place or its cluster's, and that of its smaller half."""
        inside = np.flatnonzero(self.clusters != ASIDE)
        if not len(inside):
            return
        numbers, first = np.unique(self.parts[inside], return_index=True)
        clusters, owners = np.unique(self.clusters[inside[first]], return_inverse=True)
        parts = Groups(self._votes, [np.flatnonzero(self.parts == number) for number in numbers])
        wholes = Groups(self._votes, [np.flatnonzero(self.clusters == number) for number in clusters])
        relations = parts.relations(wholes)

        def offer(part: int, own: int, related: DoubleArray) -> list[int]:
            """List the places of the clusters to which a group may belong, the likeliest first."""
            likeliest = [i for i in np.argsort(-related, kind="stable") if related[i] >= LEAST_RELATION]
            denied = self._known.denied
            return [i for i in likeliest if i != own and (part, clusters[i]) not in denied][:OFFERED]

        for row, (part, own) in enumerate(zip(numbers.tolist(), owners, strict=True)):
            members, size, related = parts.members[row], parts.sizes[row], relations[row]
            cluster, settled = int(clusters[own]), part in self._known.settled
            whole = part == self.core(cluster)
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
            if (settled or whole) and (part, len(members)) not in self._known.divided:
                if (halves := self._halve(members)) is None:
                    continue
                half, relation = halves
                others = offer(part, own, Groups(self._votes, [half]).relations(wholes)[0])
                score = _HALF_WEIGHT * (1 - relation) * len(half)
                yield Doubt(half, part, cluster, False, clusters[others].tolist(), score)
