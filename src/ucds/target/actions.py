"""Actions of a person on clusters: each is recorded, and can be undone and redone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Literal

import numpy as np

from ucds.arguments import checked
from ucds.errors import DamagedFileError, InputError, brief
from ucds.math.arrays import FloatArray, IntArray
from ucds.math.consensus import Partition
from ucds.math.corrections import ASIDE
from ucds.math.parts import divide_by_features
from ucds.math.spaces import unit_rows
from ucds.showing import shows
from ucds.target.answers import Answers, Record, meaning, names_in, read_answers
from ucds.target.predictions import MOST_LETTERS
from ucds.target.remembered import Remembered, most_clusters

MOST_PARTS = 6
"""Largest number of parts into which a cluster is split at once."""

_ANCHORS = 12  # samples that stand for a cluster in a record, so that other runs can take it over


@shows()
@dataclass(frozen=True, eq=False)
class Proposal:
    """The clusters as an action leaves them, or would leave them.

    Attributes:
        partition: ``(n,)`` cluster of each sample after the action.
        origins: for each cluster that the action changes, the present clusters of its samples, most frequent
            first.
    """

    partition: Partition
    origins: dict[int, tuple[int, ...]]

    def rows(self, number: int) -> IntArray:
        """Return the ascending positions of the samples that a cluster has after the action."""
        return np.flatnonzero(self.partition == number)


class Actions:
    """Clusters that change by recorded actions only; the first one makes the file ``path``.

    The arguments are the state at the start, see :class:`ucds.target.review.Review`.
    """

    def __init__(
        self,
        path: Path,
        start: Remembered,
        features: FloatArray,
        names: dict[int, str],
    ) -> None:
        self.start, self.features, self.names = start, features, names
        self._path, self._lock = path, Lock()
        self._doubts = start.doubts()
        self._names_before: list[dict[int, str]] = []
        self._answers = read_answers(path, start.digest) if path.exists() else Answers()
        if self._answers.first > most_clusters(len(start.ids)):
            raise DamagedFileError(f"{path} counts more clusters than {len(start.ids):,} samples can have")
        self._answers.first = max(self._answers.first, start.n_clusters)
        for record in self._answers.kept:
            self._apply(record)

    @property
    def partition(self) -> Partition:
        """Number ``(n,)`` of the cluster of each sample; -1 for samples that are set aside. Read-only."""
        return self._doubts.clusters

    @property
    def clusters(self) -> dict[str, int]:
        """Number of the cluster of every sample, by its id; -1 for samples that are set aside."""
        return dict(zip(self.start.ids, self.partition.tolist(), strict=True))

    @property
    def recorded(self) -> int:
        """Number of records, including those that undo others and those that were undone."""
        return self._answers.recorded

    @property
    def answered(self) -> int:
        """Number of answers and actions in force; those that were undone do not count."""
        return len(self._answers.kept)

    @property
    def can_redo(self) -> bool:
        """Whether an action was undone that can be redone."""
        return bool(self._answers.undone)

    @property
    def cuts(self) -> tuple[int, int]:
        """Least and largest number of clusters that :meth:`cut` can make."""
        least, most = self._doubts.ladder().range
        return max(least, min(2, most)), most

    @cached_property
    def directions(self) -> FloatArray:
        """Features ``(n, d_f)`` of unit length."""
        return unit_rows(self.features)

    def rows(self, names: Iterable[str]) -> IntArray:
        """Return the ascending positions of samples by their ids; unknown ids are left out."""
        places = self.start.places
        return np.array(sorted({places[name] for name in names if name in places}), np.int64)

    @checked
    def move(self, ids: Iterable[str], cluster: int | Literal["new"]) -> int:
        """Move single samples to a cluster or to a new one, and return the number of this cluster.

        A new cluster gets a new number. A cluster that is moved as a whole keeps its number.

        Args:
            ids: ids of the samples.
            cluster: number of the cluster; -1 sets the samples aside, see :meth:`aside`.

        Raises:
            InputError: there is no such sample or cluster.
        """
        ids = list(ids)
        rows = self._known_rows(ids)
        if cluster == ASIDE:
            self.aside(ids)
        elif cluster != "new":
            self._record({"did": "placed", "group": ids, "to": self._anchors(cluster)})
        elif (old := int(self.partition[rows[0]])) == ASIDE or not np.array_equal(rows, self._of(old)):
            self._record({"did": "made", "group": ids})
        return int(self.partition[rows[0]])

    @checked
    def aside(self, ids: Iterable[str]) -> None:
        """Set samples aside: they are in no cluster of any output, and the model learns nothing from them.

        Raises:
            InputError: there is no such sample.
        """
        ids = list(ids)
        self._known_rows(ids)
        self._record({"did": "aside", "group": ids})

    @checked
    def join(self, clusters: Iterable[int]) -> int:
        """Join several clusters, and return the number of the joint cluster: that of the largest.

        Raises:
            InputError: there is no such cluster, or fewer than two different ones are named.
        """
        groups = [self._anchors(number) for number in dict.fromkeys(clusters)]
        if len(groups) < 2:
            raise InputError("a cluster cannot be joined with itself: name at least two different clusters")
        self._record({"did": "joined", "groups": groups})
        return self._doubts.cluster_of(self.rows(groups[0]))

    @checked
    def split(self, cluster: int, parts: int, *, take: bool = True) -> Proposal:
        """Split a cluster into parts that the votes keep together; the largest part keeps the number.

        Args:
            cluster: number of the cluster.
            parts: number of parts, 2 to 6.
            take: whether to split the cluster; if not, the result only shows what a split would make.

        Raises:
            InputError: there is no such cluster, it cannot be split so, or the parts are not 2 to 6.
        """
        if not 2 <= parts <= MOST_PARTS:
            raise InputError(f"a cluster is split into 2 to {MOST_PARTS} parts, not {parts}")
        members = self._members(cluster)
        groups = self._doubts.divide(members, parts)
        if len(groups) < parts:  # the votes tell fewer parts apart
            groups = divide_by_features(self.directions, members, parts)
        if len(groups) < parts:
            raise InputError(f"the samples of cluster {cluster} are too alike, or too few, for {parts} parts")
        others = sorted(groups, key=len, reverse=True)[1:]
        return self._propose({"did": "divided", "groups": list(map(self._ids, others))}, take)

    @checked
    def cut(self, n: int, *, take: bool = True) -> Proposal:
        """Join or divide clusters until there are ``n``; the largest part of a cluster keeps its number.

        To get fewer clusters, those that the votes put together most are joined first; to get more, clusters
        are divided. What a person placed or joined stays together, and what a person kept apart stays apart.
        Samples that are set aside stay so.

        Args:
            n: number of clusters, see :attr:`cuts`.
            take: whether to change the clusters; if not, the result only shows what they would be.

        Raises:
            InputError: that number of clusters cannot be made.
        """
        least, most = self.cuts
        if not least <= n <= most:
            raise InputError(f"{least} to {most} clusters can be made of these samples, not {n}")
        groups, now = self._doubts.ladder().groups(n), self.partition
        inside = np.flatnonzero(now != ASIDE)
        pairs, sizes = np.unique([now[inside], groups[inside]], axis=1, return_counts=True)
        numbers = np.unique(now[inside])
        if n == len(numbers):
            return Proposal(now.copy(), {})
        if n < len(numbers):
            into = pairs[1].tolist()  # each cluster is in one group
            anchors = [self._anchors(number) for number in numbers.tolist()]
            return self._propose({"did": "joined", "groups": anchors, "into": into, "cut": n}, take)
        order = np.lexsort((-sizes, pairs[0]))
        first = np.unique(pairs[0][order], return_index=True)[1]  # the largest part of each cluster
        off = np.sort(np.delete(order, first))
        divided = [self._ids(np.flatnonzero(groups == group)) for group in pairs[1][off].tolist()]
        return self._propose({"did": "divided", "groups": divided, "cut": n}, take)

    @checked
    def name(self, cluster: int, name: str) -> None:
        """Name a cluster, or remove its name with an empty text; a name stays with most of its samples.

        Raises:
            InputError: there is no such cluster, or the name is longer than 80 characters.
        """
        if len(name.strip()) > MOST_LETTERS:
            raise InputError(f"a name has at most {MOST_LETTERS} characters")
        self._record({"did": "named", "group": self._anchors(cluster), "name": name.strip()})

    def undo(self) -> None:
        """Undo the last action in force; do nothing if there is none."""
        if self.answered:
            with self._lock:
                self._answers.write(self._path, {"did": "undone"}, self.start)
                self._doubts.undo()
                self.names = self._names_before.pop()

    def redo(self) -> None:
        """Redo what was undone last; do nothing if another action came after it."""
        if self.can_redo:
            record = self._answers.undone[-1]
            with self._lock:
                self._answers.write(self._path, {"did": "redone"}, self.start)
                self._apply(record)

    @checked
    def take(self, path: str | Path) -> tuple[int, int]:
        """Apply the actions of another review, such as one on another machine or of an earlier run.

        Samples are matched by their contents. If none matches, as with embeddings by another encoder, samples
        are matched by their ids. An action that counts here already is not applied again.

        Args:
            path: file of answers.

        Returns:
            Number of actions that count now, and of those whose samples are missing.

        Raises:
            InputError: the file cannot be read.
            DamagedFileError: the file holds anything but answers.
        """
        found = read_answers(Path(path), None).for_samples(self.start)
        known = [record for record in found if any(names_in(record))]
        there = Counter(map(meaning, self._answers.kept))
        for record in known:
            if there[meaning(record)]:
                there[meaning(record)] -= 1
            else:
                self._record(record)
        return len(known), len(found) - len(known)

    def _of(self, cluster: int) -> IntArray:
        return np.flatnonzero(self.partition == cluster)

    def _ids(self, rows: IntArray) -> list[str]:
        return [self.start.ids[row] for row in rows.tolist()]

    def _known_rows(self, ids: Sequence[str]) -> IntArray:
        """Return the positions of at least one sample, by ids."""
        if strangers := set(ids) - self.start.places.keys():
            raise InputError(f"there is no sample {brief(min(strangers, key=str))} in this run")
        if not ids:
            raise InputError("no sample is named")
        return self.rows(ids)

    def _members(self, cluster: int) -> IntArray:
        """Return the positions of the samples of a cluster."""
        members = self._of(cluster)
        if cluster == ASIDE or not len(members):
            raise InputError(f"there is no cluster {cluster}")
        return members

    def _anchors(self, cluster: int) -> list[str]:
        """Return ids that stand for a cluster, spread evenly over it."""
        members = self._members(cluster)
        chosen = np.linspace(0, len(members) - 1, min(_ANCHORS, len(members))).astype(np.int64)
        return self._ids(members[chosen])

    def _propose(self, record: Record, take: bool) -> Proposal:
        """Return the clusters that a record makes, and let the record take effect if ``take`` says so."""
        before = self.partition.copy()
        if take:
            self._record(record)
            after = self.partition.copy()
        else:
            with self._doubts.trial(self._answers.first):
                self._change(record)
                after = self.partition.copy()
        pairs, sizes = np.unique([after, before], axis=1, return_counts=True)
        origins = dict[int, tuple[int, ...]]()
        for place in np.lexsort((-sizes, pairs[0])).tolist():
            new, old = pairs[:, place].tolist()
            origins[new] = (*origins.get(new, ()), old)
        same = {
            new
            for new, old in origins.items()
            if old == (new,) and (before == new).sum() == (after == new).sum()
        }
        return Proposal(after, {new: old for new, old in origins.items() if new not in same})

    def _record(self, record: Record) -> None:
        """Append a record to the file of answers, and let it take effect."""
        if self._answers.first >= most_clusters(len(self.start.ids)):
            raise InputError(
                "this review has made too many clusters: finish it, and review the run that it writes"
            )
        with self._lock:
            self._answers.write(self._path, record, self.start)
            self._apply(self._answers.kept[-1])

    def _apply(self, record: Record) -> None:
        """Let one record take effect, as one step; unknown samples are left out."""
        before = self.partition.copy() if self.names else self.partition
        self._names_before.append(self.names)
        self.names = dict(self.names)
        with self._doubts.step(record.get("first", 0)):
            self._change(record)
        self._answers.first = max(self._answers.first, self._doubts.next_number)
        # The name of a cluster that is no more goes to the one that its samples went to, if that has none.
        for gone in self.names.keys() - set(self.partition.tolist()):
            name, heir = self.names.pop(gone), self._doubts.cluster_of(np.flatnonzero(before == gone))
            if heir != ASIDE:
                self.names.setdefault(heir, name)

    def _change(self, record: Record) -> None:
        """Change clusters, or their names, as a record says."""
        did, group, to = record["did"], self.rows(record.get("group", ())), self.rows(record.get("to", ()))
        groups = [self.rows(names) for names in record.get("groups", ())]
        by_hand = "cut" not in record
        if did == "joined":
            into = record.get("into", [0] * len(groups))
            for number in dict.fromkeys(into):
                same = [
                    rows for rows, place in zip(groups, into, strict=False) if place == number and len(rows)
                ]
                self._doubts.join(same, binds=by_hand)
        elif did == "divided":
            self._doubts.split_off([rows for rows in groups if len(rows)], binds=by_hand)
        elif not len(group) or ("to" in record and not len(to)):
            return
        elif did == "aside":
            self._doubts.set_aside(group)
        elif did == "named":
            self.names.pop(cluster := self._doubts.cluster_of(group), None)
            if record["name"] and cluster != ASIDE:
                self.names[cluster] = record["name"]
        else:
            others = [rows for rows in map(self.rows, record.get("others", ())) if len(rows)]
            self._doubts.change(did, group, others, to, whole=bool(record.get("whole")))
