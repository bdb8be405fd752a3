"""Questions to a person about the clusters of a run, and what the answers change.

A provider's labels, and single clusterings of the client's own, propose which groups belong together. No
figure that the client has tells which proposal is right, and a person sees it at a glance. The clusters start
from the client's own consensus, and change by answers only. They are what the recorded answers make of the
start: there is no other state, an undo is one more record, and a review goes on where it was left.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ucds.data.sources import Source
from ucds.errors import InputError
from ucds.files import append_line
from ucds.math.arrays import IntArray
from ucds.math.doubts import Doubt, Doubts
from ucds.target.afterwards import vote_afterwards
from ucds.target.names import NAMES_FILE, ClusterNames
from ucds.target.questions import (
    ANSWERS_FILE,
    FORMAT,
    Answer,
    Decision,
    Question,
    effective,
    read_answers,
)
from ucds.target.remembered import (
    Remembered,
    ReviewedRun,
    read_features,
    read_remembered,
    write_reviewed_run,
)
from ucds.training.options import Compute
from ucds.training.run_folder import VOTES_FILE

MOST_LETTERS = 80
"""Characters of a cluster's name at most."""

WORTH_ASKING = 0.003
"""Share of the samples that the next answer should be expected to move; below it, answers hardly pay."""

_ANCHORS = 12  # samples that stand for a cluster in a record, so that other runs can take it over


class Review:
    """A review of the clusters of a finished target run by a person, or by a program.

    Args:
        run: folder of the run; it gains the file ``answers.jsonl``, which a later review goes on from.
        keep_clusters: whether the number of clusters stays: a group that shall be a cluster of its own waits
            until two others have become one.
        images: samples of a run whose encoder was trained, if they are no longer where the run found them.
            Such a run remembers no clusterings of its own: they are made when its first review begins.
        compute: device and cache for that; the defaults if ``None``.

    Attributes:
        run: folder of the run.
        start: clustering from which the review starts.
        features: ``(n, d_f)`` bottleneck features of its samples.

    Raises:
        InputError: there is no finished target run in the folder, or its samples are gone and needed.
        DamagedFileError: its answers cannot be read, or belong to other clusters.
    """

    def __init__(
        self,
        run: str | Path,
        *,
        keep_clusters: bool = False,
        images: Source | None = None,
        compute: Compute | None = None,
    ) -> None:
        self.run, self._keep_clusters = Path(run), keep_clusters
        if not (self.run / VOTES_FILE).exists():
            vote_afterwards(self.run, images, compute)
        self.start: Remembered = read_remembered(self.run)
        self.features = read_features(self.run)
        self._place = {name: i for i, name in enumerate(self.start.ids)}
        self._doubts = Doubts(self.start.votes, self.start.own, self.start.parts)
        names = self.run / NAMES_FILE  # of an earlier review
        self._first_names = ClusterNames.load(names).names if names.exists() else {}
        self._start_count = len(np.unique(self.start.own))
        self._skipped: set[tuple[int, int]] = set()
        self._ranked: list[Doubt] | None = None
        self._records = list(read_answers(self.run / ANSWERS_FILE, self.start.digest))
        self._replay()

    @property
    def clusters(self) -> dict[str, int]:
        """Number of the cluster of every sample, by its id, after all answers."""
        return dict(zip(self.start.ids, self._doubts.clusters.tolist(), strict=True))

    @property
    def answered(self) -> int:
        """Number of answers that count: those that were taken back do not."""
        return len(effective(self._records))

    @property
    def recorded(self) -> int:
        """Number of records, those that were taken back and those that take back included."""
        return len(self._records)

    @property
    def worth_asking(self) -> int:
        """Number of questions whose answers are likely to be worth their time, as things stand."""
        return len(self._worthwhile())

    @property
    def names(self) -> dict[int, str]:
        """Names that the person gave to clusters, by their numbers."""
        return {number: name for number, name in self._names.items() if name}

    @property
    def outlook(self) -> str:
        """A sentence that says how many questions are open, and what the first is about."""
        worth, question = self.worth_asking, self.question()
        if question is None or not worth:
            return "no question to a person is likely to be worth its time"
        count = "1 question" if worth == 1 else f"{worth} questions"
        return f"{count} to a person may be worth asking; the first: {question.about}"

    def question(self) -> Question | None:
        """Return the next question, the same until it is answered; ``None`` if there is none left."""
        ranked = self._ranking()
        return self._word(ranked[0]) if ranked else None

    def foresee(self, most: int) -> list[tuple[Question, list[tuple[str, dict[str, Any]]]]]:
        """Return the first questions as things stand, each with its answers and the record of each answer.

        Answers change what is asked next; these questions are for a page that cannot know of them.

        Args:
            most: largest number of questions.
        """
        found = []
        for doubt in self._worthwhile()[:most]:
            question = self._word(doubt)
            told = [(text, given) for text, given in question.answers if given != "skip"]
            records = [(text, self._describe(doubt, question.decide(given))) for text, given in told]
            found.append((question, records))
        return found

    def answer(self, given: Answer) -> None:
        """Answer the present question; the answer is on the disk when this returns.

        Args:
            given: ``"one"`` or ``"two"`` to a question of the kind "one-or-two"; to one of the kind "place"
                the index of a cluster in :attr:`Question.offered`, or ``"new"`` for a group of its own. To
                both ``"mixed"``, where a group is of several kinds, which changes nothing; and ``"skip"``,
                which is not recorded.

        Raises:
            InputError: there is no question, or it has no such answer.
            NoSpaceError: the answer cannot be written; it does not count then.
        """
        question = self.question()
        if question is None:
            raise InputError("there is no question left to answer")
        doubt = self._ranking()[0]
        if given == "skip":
            self._skipped.add((doubt.part, len(doubt.samples)))
            self._ranked = None
        else:
            self._record(self._describe(doubt, question.decide(given)))

    def move(self, ids: Sequence[str], cluster: int) -> None:
        """Move single samples to a cluster, by hand.

        Raises:
            InputError: there is no such sample or cluster.
        """
        for name in ids:
            if name not in self._place:
                raise InputError(f"there is no sample {name!r} in this run")
        self._record({"did": "placed", "group": list(ids), "to": self._anchors(cluster)})

    def join(self, one: int, other: int) -> None:
        """Make one cluster of two, by hand; it keeps the number of the larger one.

        Raises:
            InputError: there is no such cluster, or both are the same.
        """
        if one == other:
            raise InputError(f"cluster {one} cannot be joined with itself")
        group, to = self._anchors(one), self._anchors(other)
        self._record({"did": "placed", "whole": True, "group": group, "to": to})

    def name(self, cluster: int, name: str) -> None:
        """Give a cluster a name, or take it away by an empty one; the name stays with most of its samples.

        Raises:
            InputError: there is no such cluster, or the name is longer than 80 characters.
        """
        if len(name.strip()) > MOST_LETTERS:
            raise InputError(f"a name has at most {MOST_LETTERS} characters")
        self._record({"did": "named", "group": self._anchors(cluster), "name": name.strip()})

    def undo(self) -> None:
        """Take back the last answer that counts; nothing happens if there is none."""
        if self.answered:
            self._record({"did": "undone"})

    def take(self, path: str | Path) -> tuple[int, int]:
        """Take over the answers of another review, or of this one on another machine, by the ids of samples.

        Args:
            path: file of answers.

        Returns:
            Number of answers that were taken over, and of those whose samples are not here.

        Raises:
            InputError: the file cannot be read.
            DamagedFileError: the file holds anything but answers.
        """
        found = effective(list(read_answers(Path(path), None)))
        known = [record for record in found if any(name in self._place for name in record.get("group", []))]
        for record in known:
            self._record(record)
        return len(known), len(found) - len(known)

    def finish(self, out: str | Path | None = None) -> ReviewedRun:
        """Write a new run whose model gives the reviewed clusters, in seconds and without encoding.

        Prototypes are solved again on the features that the run remembers. Clusters keep their numbers.

        Args:
            out: run folder to make; the run's name with "-reviewed" beside it if ``None``.

        Returns:
            The folder, and how far its model agrees with the reviewed clusters.

        Raises:
            InputError: nothing was answered, or the folder is in use.
            NoSpaceError: the folder cannot be written.
        """
        if not (answered := self.answered):
            raise InputError("no answer was given: there is nothing to write")
        out = self.run.with_name(f"{self.run.name}-reviewed") if out is None else Path(out)
        return write_reviewed_run(self.run, out, self.start, self._doubts.clusters, self.names, answered)

    def _ranking(self) -> list[Doubt]:
        """Return the groups in doubt as things stand, the most doubtful first."""
        if self._ranked is None:
            self._ranked = self._doubts.ranked(self._skipped)
        return self._ranked

    def _worthwhile(self) -> list[Doubt]:
        """List the doubts that an answer is likely to be worth its time; of two clusters, one of both."""
        found: dict[object, Doubt] = {}
        for doubt in self._ranking():
            pair = frozenset((doubt.cluster, *doubt.others[:1])) if doubt.whole else doubt
            if doubt.score >= WORTH_ASKING * len(self.start.ids):
                found.setdefault(pair, doubt)
        return list(found.values())

    def _word(self, doubt: Doubt) -> Question:
        """Put a doubt into words."""
        ids, clusters = self.start.ids, self._doubts.clusters
        groups = [np.flatnonzero(clusters == other) for other in doubt.others]
        numbers = [doubt.cluster, *doubt.others]
        titles = [self._title(number) for number in numbers]
        changes = len(doubt.samples)
        if doubt.whole:
            changes = min(changes, len(groups[0]))
        else:
            groups.insert(0, np.setdiff1d(np.flatnonzero(clusters == doubt.cluster), doubt.samples))
            numbers.insert(0, doubt.cluster)
            titles[:1] = f"part of {titles[0]}", f"the rest of {titles[0]}"
        return Question(
            "one-or-two" if len(groups) == 1 else "place",
            tuple(tuple(ids[i] for i in group) for group in (doubt.samples, *groups)),
            tuple(numbers),
            tuple(titles),
            "labels" if self.start.speak_for_change(doubt, groups[0]) else "own",
            changes,
        )

    def _title(self, cluster: int) -> str:
        name = self._names.get(cluster)
        return f"{name} ({cluster})" if name else f"cluster {cluster}"

    def _describe(self, doubt: Doubt, decision: Decision) -> dict[str, Any]:
        """Write an answer down by the ids of samples, which mean the same in another run."""
        did, to = decision
        named = self._anchors(doubt.cluster) if doubt.whole else [self.start.ids[i] for i in doubt.samples]
        others = [self._anchors(other) for other in doubt.others]
        place = {} if to is None else {"to": self._anchors(to)}
        return {"did": did, "whole": doubt.whole, "group": named, "others": others, **place}

    def _anchors(self, cluster: int) -> list[str]:
        """Return ids that stand for a cluster, spread evenly over it."""
        members = np.flatnonzero(self._doubts.clusters == cluster)
        if not len(members):
            raise InputError(f"there is no cluster {cluster}")
        chosen = np.linspace(0, len(members) - 1, min(_ANCHORS, len(members))).astype(np.int64)
        return [self.start.ids[i] for i in members[chosen]]

    def _record(self, record: Mapping[str, Any]) -> None:
        """Append a record to the file of answers, and let it take effect."""
        path = self.run / ANSWERS_FILE
        if not path.exists():
            append_line(path, json.dumps({"format": FORMAT, "clusters": self.start.digest}))
        record = {**record, "number": len(self._records) + 1}
        append_line(path, json.dumps(record))
        self._records.append(record)
        self._ranked = None
        if record["did"] == "undone":
            self._replay()
        else:
            self._apply(record)

    def _replay(self) -> None:
        """Make the clusters anew from the start and all answers that count."""
        self._doubts.restart(self.start.own, self.start.parts)
        self._ranked = None
        self._next_number = self.start.n_clusters
        self._waiting: list[IntArray] = []
        self._names = dict(self._first_names)
        for record in effective(self._records):
            self._apply(record)

    def _apply(self, record: Mapping[str, Any]) -> None:
        """Let one record take effect; samples that are not here are left out."""
        doubts, whole = self._doubts, bool(record.get("whole"))
        rows, to = self._rows(record.get("group", [])), self._rows(record.get("to", []))
        if not len(rows) or ("to" in record and not len(to)):
            return
        cluster = _most_frequent(doubts.clusters[rows])
        offered = [found for found in map(self._rows, record.get("others", [])) if len(found)]
        others = {_most_frequent(doubts.clusters[found]) for found in offered} - {cluster}
        samples = np.flatnonzero(doubts.clusters == cluster) if whole else rows
        part = doubts.core(cluster) if whole else _most_frequent(doubts.parts[rows])
        doubt = Doubt(samples, part, cluster, whole, tuple(others))
        match record["did"]:
            case "named":
                self._names[cluster] = str(record["name"])
            case "kept":
                doubts.keep(doubt)
            case "mixed":
                doubts.divide(doubt)
            case "separated":
                self._separate(doubt)
            case "placed":
                target = _most_frequent(doubts.clusters[to])
                if target != cluster or not whole:
                    doubts.move(doubt, target)
                    self._pass_names_on(rows[0])
                    self._free_number()

    def _pass_names_on(self, row: int) -> None:
        """Give the name of a cluster that is no more to the one that its samples went to, if it has none."""
        kept, left = int(self._doubts.clusters[row]), set(self._doubts.clusters.tolist())
        for gone in set(self._names) - left:
            name = self._names.pop(gone)
            self._names[kept] = self._names.get(kept) or name

    def _separate(self, doubt: Doubt) -> None:
        """Make a group a cluster of its own, now or as soon as the number of clusters allows it."""
        if self._keep_clusters and len(np.unique(self._doubts.clusters)) >= self._start_count:
            self._doubts.keep(doubt)
            self._waiting.append(doubt.samples)
            return
        self._doubts.separate(doubt, self._next_number)
        self._next_number += 1

    def _free_number(self) -> None:
        """Separate the first group that waits, if there are fewer clusters than at the start."""
        if self._waiting and len(np.unique(self._doubts.clusters)) < self._start_count:
            self._doubts.clusters[self._waiting.pop(0)] = self._next_number
            self._next_number += 1

    def _rows(self, names: Sequence[str]) -> IntArray:
        return np.array(sorted({self._place[name] for name in names if name in self._place}), np.int64)


def _most_frequent(numbers: IntArray) -> int:
    return int(np.bincount(numbers).argmax())
