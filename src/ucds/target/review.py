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
from ucds.math.arrays import FloatArray, IntArray
from ucds.math.doubts import Doubt, Doubts
from ucds.target.afterwards import vote_afterwards
from ucds.target.questions import ANSWERS_FILE, FORMAT, Answer, Question, decide, effective, read_answers
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
        self.run, self.keep_clusters = Path(run), keep_clusters
        if not (self.run / VOTES_FILE).exists():
            vote_afterwards(self.run, images, compute)
        self._start: Remembered = read_remembered(self.run)
        self._features = read_features(self.run)
        self._place = {name: i for i, name in enumerate(self._start.ids)}
        self._doubts = Doubts(self._start.votes, self._start.own, self._start.parts)
        self._skipped: set[tuple[int, int]] = set()
        self._asked: tuple[Question, Doubt] | None = None
        self._records = list(read_answers(self.run / ANSWERS_FILE, self._start.digest))
        self._replay()

    @property
    def clusters(self) -> dict[str, int]:
        """Number of the cluster of every sample, by its id, after all answers."""
        return dict(zip(self._start.ids, self._doubts.clusters.tolist(), strict=True))

    @property
    def answered(self) -> int:
        """Number of answers that count: those that were taken back do not."""
        return len(self._effective())

    @property
    def features(self) -> FloatArray:
        """Bottleneck features ``(n, d_f)`` of the samples, in the order of :attr:`clusters`."""
        return self._features

    @property
    def digest(self) -> str:
        """Digest of the samples and of the clusters from which the review starts; its answers carry it."""
        return self._start.digest

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
        if self._asked is None:
            ranked = self._doubts.ranked(self._skipped)
            self._asked = (self._word(ranked[0]), ranked[0]) if ranked else None
        return None if self._asked is None else self._asked[0]

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
            records = [(text, self._describe(doubt, decide(question, doubt, given))) for text, given in told]
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
        if question is None or self._asked is None:
            raise InputError("there is no question left to answer")
        doubt = self._asked[1]
        if given == "skip":
            self._skipped.add((doubt.part, len(doubt.samples)))
            self._asked = None
            return
        self._record(self._describe(doubt, decide(question, doubt, given)))

    def move(self, ids: Sequence[str], cluster: int) -> None:
        """Move single samples to a cluster, by hand.

        Raises:
            InputError: there is no such sample or cluster.
        """
        rows = np.array(sorted(self._row(name) for name in ids))
        self._require(cluster)
        self._record(
            {"did": "moved", "ids": [self._start.ids[i] for i in rows], "to": self._anchors(cluster)}
        )

    def join(self, one: int, other: int) -> None:
        """Make one cluster of two, by hand; it keeps the number of the larger one.

        Raises:
            InputError: there is no such cluster, or both are the same.
        """
        for cluster in (one, other):
            self._require(cluster)
        if one == other:
            raise InputError(f"cluster {one} cannot be joined with itself")
        self._record({"did": "joined", "group": self._anchors(one), "to": self._anchors(other)})

    def name(self, cluster: int, name: str) -> None:
        """Give a cluster a name, or take it away by an empty one; the name stays with most of its samples.

        Raises:
            InputError: there is no such cluster, or the name is longer than 80 characters.
        """
        self._require(cluster)
        if len(name.strip()) > MOST_LETTERS:
            raise InputError(f"a name has at most {MOST_LETTERS} characters")
        self._record({"did": "named", "group": self._anchors(cluster), "name": name.strip()})

    def undo(self) -> None:
        """Take back the last answer that counts; nothing happens if there is none."""
        if self._effective():
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
        taken = missed = 0
        for record in effective(list(read_answers(Path(path), None))):
            names = [name for key in ("ids", "group", "to") for name in record.get(key, [])]
            if any(name in self._place for name in names):
                self._record(record)
                taken += 1
            else:
                missed += 1
        return taken, missed

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
        if not self._effective():
            raise InputError("no answer was given: there is nothing to write")
        out = self.run.with_name(f"{self.run.name}-reviewed") if out is None else Path(out)
        return write_reviewed_run(self.run, out, self._start, self._doubts.clusters, self.names)

    def _word(self, doubt: Doubt) -> Question:
        """Put a doubt into words."""
        ids, clusters = self._start.ids, self._doubts.clusters
        groups = [np.flatnonzero(clusters == other) for other in doubt.others]
        numbers = [doubt.cluster, *doubt.others]
        rest = np.setdiff1d(np.flatnonzero(clusters == doubt.cluster), doubt.samples)
        if not doubt.whole:
            groups, numbers = [rest, *groups], [doubt.cluster, *numbers]
        shown = tuple(tuple(ids[i] for i in group) for group in (doubt.samples, *groups))
        titles = [self._title(number) for number in numbers]
        if not doubt.whole:
            titles[:2] = f"part of {titles[0]}", f"the rest of {titles[1]}"
        changes = min(len(doubt.samples), len(groups[0])) if doubt.whole else len(doubt.samples)
        return Question(
            "one-or-two" if len(groups) == 1 else "place",
            shown,
            tuple(numbers),
            tuple(titles),
            "labels" if self._start.speak_for_change(doubt, groups[0]) else "own",
            changes,
            doubt.score >= WORTH_ASKING * len(ids),
        )

    def _title(self, cluster: int) -> str:
        name = self._names.get(cluster)
        return f"{name} ({cluster})" if name else f"cluster {cluster}"

    def _worthwhile(self) -> list[Doubt]:
        """List the doubts that an answer is likely to be worth its time; of two clusters, one of both."""
        least, found, pairs = WORTH_ASKING * len(self._start.ids), [], set()
        for doubt in self._doubts.ranked(self._skipped):
            pair = frozenset((doubt.cluster, *doubt.others[:1])) if doubt.whole else frozenset((id(doubt),))
            if doubt.score >= least and pair not in pairs:
                found.append(doubt)
                pairs.add(pair)
        return found

    def _describe(self, doubt: Doubt, decision: tuple[str, int | None]) -> dict[str, Any]:
        """Write an answer down by the ids of samples, which mean the same in another run."""
        did, to = decision
        named = self._anchors(doubt.cluster) if doubt.whole else [self._start.ids[i] for i in doubt.samples]
        others = [self._anchors(other) for other in doubt.others]
        place = {} if to is None else {"to": self._anchors(to)}
        return {"did": did, "whole": doubt.whole, "group": named, "others": others, **place}

    def _record(self, record: Mapping[str, Any]) -> None:
        """Append a record to the file of answers, and let it take effect."""
        path = self.run / ANSWERS_FILE
        if not path.exists():
            append_line(path, json.dumps({"format": FORMAT, "clusters": self._start.digest}))
        record = {**record, "number": len(self._records) + 1}
        append_line(path, json.dumps(record))
        self._records.append(record)
        self._asked = None
        if record["did"] == "undone":
            self._replay()
        else:
            self._apply(record)

    def _effective(self) -> list[Mapping[str, Any]]:
        return effective(self._records)

    def _replay(self) -> None:
        """Make the clusters anew from the start and all answers that count."""
        self._doubts.restart(self._start.own, self._start.parts)
        self._next_number = self._start.n_clusters
        self._waiting: list[IntArray] = []
        self._names = dict(self._start.names)
        for record in self._effective():
            self._apply(record)

    def _apply(self, record: Mapping[str, Any]) -> None:
        """Let one record take effect; samples that are not here are left out."""
        doubts, rows = self._doubts, self._rows(record.get("ids", record.get("group", [])))
        to = self._rows(record.get("to", []))
        if not len(rows) or ("to" in record and not len(to)):
            return
        cluster = _most_frequent(doubts.clusters[rows])
        whole = bool(record.get("whole", record["did"] == "joined"))
        samples = np.flatnonzero(doubts.clusters == cluster) if whole else rows
        offered = [found for found in map(self._rows, record.get("others", [])) if len(found)]
        others = {_most_frequent(doubts.clusters[found]) for found in offered}
        part = doubts.core(cluster) if whole else _most_frequent(doubts.parts[rows])
        doubt = Doubt(samples, part, cluster, whole, tuple(others - {cluster}), 0.0)
        match record["did"]:
            case "named":
                self._names[cluster] = str(record["name"])
            case "kept":
                doubts.keep(doubt)
            case "mixed":
                doubts.divide(doubt)
            case "separated":
                self._separate(doubt)
            case "placed" | "moved" | "joined":
                target = _most_frequent(doubts.clusters[to])
                if target != cluster:
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
        if self.keep_clusters and len(np.unique(self._doubts.clusters)) >= self._start.n_clusters:
            self._doubts.keep(doubt)
            self._waiting.append(doubt.samples)
            return
        self._doubts.separate(doubt, self._next_number)
        self._next_number += 1

    def _free_number(self) -> None:
        """Separate the first group that waits, if there are fewer clusters than at the start."""
        if self._waiting and len(np.unique(self._doubts.clusters)) < self._start.n_clusters:
            self._doubts.clusters[self._waiting.pop(0)] = self._next_number
            self._next_number += 1

    def _anchors(self, cluster: int) -> list[str]:
        """Return ids that stand for a cluster, spread evenly over it."""
        members = np.flatnonzero(self._doubts.clusters == cluster)
        chosen = np.linspace(0, len(members) - 1, min(_ANCHORS, len(members))).astype(np.int64)
        return [self._start.ids[i] for i in members[chosen]]

    def _rows(self, names: Sequence[str]) -> IntArray:
        return np.array(sorted({self._place[name] for name in names if name in self._place}), np.int64)

    def _row(self, name: str) -> int:
        if name not in self._place:
            raise InputError(f"there is no sample {name!r} in this run")
        return self._place[name]

    def _require(self, cluster: int) -> None:
        if not (self._doubts.clusters == cluster).any():
            raise InputError(f"there is no cluster {cluster}")


def _most_frequent(numbers: IntArray) -> int:
    return int(np.bincount(numbers).argmax())
