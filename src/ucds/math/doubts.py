"""Chooses the group of samples about which a person's answer would change a clustering most.

Each cluster consists of *parts*: groups that the votes keep together more than the whole cluster. Parts are
purer than clusters, so a person can say where a part belongs even if the whole cluster is mixed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ucds.math.arrays import DoubleArray, IntArray
from ucds.math.corrections import ASIDE, Corrections
from ucds.math.parts import Groups

OFFERED = 4
"""Largest number of other clusters that are offered for a group."""

LEAST_RELATION = 0.02
"""Least relation with a group for a cluster to be offered: below it, hardly any vote joins the two."""

_JOIN_WEIGHT, _HALF_WEIGHT = 0.5, 0.25  # of the samples that such an answer might move
_LARGEST_HALF = 0.55  # of a group: half of what it was when it was made, before it lost a few samples


@dataclass(frozen=True, eq=False)
class Doubt:
    """A group of samples whose cluster is in doubt."""

    samples: IntArray  # `(m,)` positions of the samples of the group, ascending
    part: int  # number of the part to which they belong
    cluster: int  # number of their cluster
    whole: bool  # whether the group is the whole cluster; the question is then whether it is one with another
    others: list[int]  # numbers of the other clusters to which the group may belong, the likeliest first
    score: float  # number of samples that an answer is expected to move; only to be compared
    is_proposed: bool = False  # whether the first of the other clusters is the one that is proposed


class _Compared(NamedTuple):
    """Parts and clusters, and their relations."""

    numbers: IntArray  # of the parts
    clusters: IntArray  # their numbers
    owners: IntArray  # place of each part's cluster among them
    parts: Groups
    wholes: Groups
    relations: DoubleArray  # of each part to each cluster


class Doubts(Corrections):
    """A clustering that changes only by a person's answers, and the doubts about it.

    Attributes:
        proposed: groups that are asked about before all others: ascending positions of the samples, and the
            cluster that is proposed for them, which may be a new one.
    """

    proposed: Sequence[tuple[IntArray, int]] = ()
    _skipped: frozenset[tuple[int, int]] = frozenset()
    _ranked: tuple[tuple[int, float] | None, list[Doubt]] = (None, [])

    def skip(self, doubt: Doubt) -> None:
        """Stop asking about a group."""
        self._skipped |= {(doubt.part, len(doubt.samples))}
        self._ranked = (None, [])

    def ranked(self, least: float = 0.0) -> list[Doubt]:
        """List the groups in doubt that a question can be about, the most doubtful first.

        Of those below the ``least`` score, only the first need be listed, which saves time.
        """
        if self._ranked[0] != (known := (self.version, least)):
            proposed = [doubt for doubt in self._find_proposed() if self._is_open(doubt)]
            found = self._find(least, np.inf if proposed else 0.0)
            self._ranked = known, proposed + sorted(found, key=lambda doubt: -doubt.score)
        return self._ranked[1]

    def _is_open(self, doubt: Doubt) -> bool:
        return doubt.score > 0 and (doubt.part, len(doubt.samples)) not in self._skipped

    def _find_proposed(self) -> Iterator[Doubt]:
        """Yield the groups for which a cluster is proposed, those in no cluster first, then the largest."""
        asked = self._known.asked
        some = [one for one in self.proposed if one[0].tobytes() not in asked]
        if not some:
            return
        numbers = np.unique(self.clusters[self.clusters != ASIDE])
        wholes = Groups(self._votes, [np.flatnonzero(self.clusters == number) for number in numbers])
        for samples, to in sorted(some, key=lambda one: (self.cluster_of(one[0]) != ASIDE, -len(one[0]))):
            if (cluster := self.cluster_of(samples)) == to:
                continue
            is_proposed, inside = to in numbers, np.flatnonzero(self.clusters == cluster)
            whole = cluster != ASIDE and len(samples) >= len(inside)
            if whole and (not is_proposed or inside.tobytes() in asked):
                continue  # a new number changes nothing, and an answer is not asked for again
            related = Groups(self._votes, [samples]).relations(wholes)[0]
            likeliest = [i for i in np.argsort(-related, kind="stable") if related[i] >= LEAST_RELATION]
            others = [to] * is_proposed
            others += [number for number in numbers[likeliest].tolist() if number not in (to, cluster)]
            part = self.core(cluster) if whole else int(self.parts[samples[0]])
            if whole and (part, to) in self._known.denied:
                continue
            yield Doubt(samples, part, cluster, whole, others[:OFFERED], float(len(samples)), is_proposed)

    def _find(self, least: float, best: float) -> list[Doubt]:
        """List the doubts about each part: its place or its cluster's, and the place of its smaller half.

        The halves whose scores can reach neither ``least`` nor the ``best`` one are left out.
        """
        inside = np.flatnonzero(self.clusters != ASIDE)
        if not len(inside):
            return []
        numbers, first = np.unique(self.parts[inside], return_index=True)
        clusters, owners = np.unique(self.clusters[inside[first]], return_inverse=True)
        parts = Groups(self._votes, [np.flatnonzero(self.parts == number) for number in numbers])
        wholes = Groups(self._votes, [np.flatnonzero(self.clusters == number) for number in clusters])
        compared = _Compared(numbers, clusters, owners, parts, wholes, parts.relations(wholes))
        whole = [
            part == self.core(int(clusters[own])) for part, own in zip(numbers.tolist(), owners, strict=True)
        ]
        settled = [part in self._known.settled for part in numbers.tolist()]
        found = {
            (row, False): self._doubt_part(compared, row, whole[row])
            for row in range(len(numbers))
            if not settled[row]
        }
        best = max([best, *(doubt.score for doubt in found.values() if self._is_open(doubt))])
        divisible = [row for row in range(len(numbers)) if settled[row] or whole[row]]
        for row in sorted(divisible, key=lambda row: -parts.sizes[row]):
            if _LARGEST_HALF * _HALF_WEIGHT * parts.sizes[row] < min(least, best):
                break  # so are all that follow
            if (half := self._doubt_half(compared, row)) is not None:
                found[row, True] = half
                best = max(best, half.score if self._is_open(half) else 0.0)
        return [doubt for _, doubt in sorted(found.items()) if self._is_open(doubt)]

    def _doubt_part(self, compared: _Compared, row: int, whole: bool) -> Doubt:
        """Return the doubt about a part, or about the whole cluster that it represents."""
        part, own = int(compared.numbers[row]), compared.owners[row]
        parts, wholes = compared.parts, compared.wholes
        size, related = parts.sizes[row], compared.relations[row]
        others = self._offer(compared, row, related)
        likeliest = _JOIN_WEIGHT * related[others[0]] if others else 0.0
        if whole:
            samples = wholes.members[own]
            score = likeliest * min([len(samples), *wholes.sizes[others[:1]]])
        else:
            samples, rest = parts.members[row], wholes.sums[own] - parts.sums[row]
            between = parts.sums[row] @ rest / (size * (wholes.sizes[own] - size))
            related_to_rest = between / np.sqrt(parts.within[row] * wholes.within[own] + 1e-9)
            score = max(1 - related_to_rest, likeliest) * size
        clusters = compared.clusters
        return Doubt(samples, part, int(clusters[own]), whole, clusters[others].tolist(), score)

    def _doubt_half(self, compared: _Compared, row: int) -> Doubt | None:
        """Return the doubt about the smaller half of a part, if there is one that was not asked about."""
        part, members, clusters = int(compared.numbers[row]), compared.parts.members[row], compared.clusters
        if (part, len(members)) in self._known.divided or (halves := self._halve(members)) is None:
            return None
        half, relation = halves
        others = self._offer(compared, row, Groups(self._votes, [half]).relations(compared.wholes)[0])
        score = _HALF_WEIGHT * (1 - relation) * len(half)
        return Doubt(half, part, int(clusters[compared.owners[row]]), False, clusters[others].tolist(), score)

    def _offer(self, compared: _Compared, row: int, related: DoubleArray) -> list[int]:
        """List the places of the clusters to which a group of a part may belong, the likeliest first."""
        part, own = int(compared.numbers[row]), compared.owners[row]
        likeliest = [i for i in np.argsort(-related, kind="stable") if related[i] >= LEAST_RELATION]
        denied = self._known.denied
        return [i for i in likeliest if i != own and (part, compared.clusters[i]) not in denied][:OFFERED]
