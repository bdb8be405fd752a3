"""Questions to a person about the clusters of a run, and what the answers change.

A provider's labels, and single clusterings of the client's own, propose which groups belong together. No
figure that the client has tells which proposal is right, and a person sees it at a glance. The clusters start
from the client's own consensus, and change by answers only. They are what the recorded answers make of the
start: there is no other state, an undo is one more record, and a review goes on where it was left.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ucds.config import ConsensusSettings
from ucds.data.sources import Source
from ucds.encoders.spec import LENGTHS
from ucds.errors import InputError
from ucds.files import append_line, making, read_object, write_text_atomically, writing
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.arrays import IntArray
from ucds.math.doubts import Doubt
from ucds.math.prototypes import solve_prototypes
from ucds.received import open_received
from ucds.target.agreement import agree, draw_with_labels, remember_vote
from ucds.target.predictions import MOST_LETTERS, ClusterNames
from ucds.target.questions import ANSWERS_FILE, FORMAT, Answer, Question, read_answers
from ucds.target.remembered import read_remembered, write_features, write_remembered
from ucds.training.loaded import load
from ucds.training.model_file import load_model, save_model
from ucds.training.options import Compute
from ucds.training.run_folder import (
    EARLY_FILES,
    LABELS_FILE,
    RUN_FILE,
    VOTES_FILE,
    RunFolder,
    require_same_samples,
)
from ucds.training.seeds import numpy_generator
from ucds.training.work import Work

NAMES_FILE = "names.json"
"""Name of the file of names in the folder of a reviewed run."""

WORTH_ASKING = 0.003
"""Share of the samples that the next answer should be expected to move; below it, answers hardly pay."""

_ANCHORS = 12  # samples that stand for a cluster in a record, so that other runs can take it over


@dataclass(frozen=True)
class ReviewedRun:
    """A run that was written from reviewed clusters.

    Attributes:
        path: run folder.
        answered: number of answers that count.
        n_clusters: number of clusters that have samples.
        agreement: share of the reviewed samples that the model gives their cluster.
    """

    path: Path
    answered: int
    n_clusters: int
    agreement: float

    @property
    def sentence(self) -> str:
        """What was done, for the person."""
        return (
            f"{self.path} written: {self.n_clusters} clusters after {self.answered} answers; the model gives "
            f"{self.agreement:.1%} of the samples the cluster that they have in the review"
        )


class Review:
    """A review of the clusters of a finished target run by a person, or by a program.

    Args:
        run: folder of the run; it gains the file ``answers.jsonl``, which a later review goes on from.
        keep_clusters: whether the number of clusters stays: a group that shall be a cluster of its own waits
            until two others have become one.
        images: samples of a run whose encoder was trained, if they are no longer where the run found them.
            Such a run remembers no clusterings of its own: they are made when its first review begins.
        compute: device, cache and reporter for that; the defaults if ``None``.

    Attributes:
        run: folder of the run.
        start: clustering from which the review starts.
        features: ``(n, d_f)`` bottleneck features of its samples.
        names: names that the person gave to clusters, by their numbers.
        recorded: number of records, those that were taken back and those that take back included.

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
        self.run = Path(run)
        if not (self.run / VOTES_FILE).exists():
            _vote_afterwards(self.run, images, compute)
        self.start, self.features = read_remembered(self.run)
        self._place = {name: i for i, name in enumerate(self.start.ids)}
        self._doubts = self.start.doubts(keep_clusters=keep_clusters)
        names = self.run / NAMES_FILE  # of an earlier review
        self._first_names = ClusterNames.load(names).names if names.exists() else {}
        self._path = self.run / ANSWERS_FILE
        self._kept: list[Mapping[str, Any]] = []
        self.recorded = 0
        if self._path.exists():
            self._kept, self.recorded = read_answers(self._path, self.start.digest)
        self._replay()

    @property
    def clusters(self) -> dict[str, int]:
        """Number of the cluster of every sample, by its id, after all answers."""
        return dict(zip(self.start.ids, self._doubts.clusters.tolist(), strict=True))

    @property
    def answered(self) -> int:
        """Number of answers that count: those that were taken back do not."""
        return len(self._kept)

    @property
    def worth_asking(self) -> int:
        """Number of questions whose answers are likely to be worth their time, as things stand."""
        return len(self._worthwhile())

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
        ranked = self._doubts.ranked()
        return self._word(ranked[0]) if ranked else None

    def rows(self, names: Sequence[str]) -> IntArray:
        """Return the ascending positions of samples by their ids; those that are not here are left out."""
        return np.array(sorted({self._place[name] for name in names if name in self._place}), np.int64)

    def foresee(self, most: int) -> list[Question]:
        """Return the first questions as things stand; answers change what is asked next.

        Args:
            most: largest number of questions.
        """
        return [self._word(doubt) for doubt in self._worthwhile()[:most]]

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
        if given == "skip":
            self._doubts.skip(self._doubts.ranked()[0])
        elif isinstance(given, bool) or given not in question.records:
            raise InputError(f"{given!r} is no answer to a question of the kind {question.kind!r}")
        else:
            self._record(question.records[given])

    def move(self, ids: Sequence[str], cluster: int) -> None:
        """Move single samples to a cluster, by hand.

        Raises:
            InputError: there is no such sample or cluster.
        """
        if strangers := set(ids) - self._place.keys():
            raise InputError(f"there is no sample {min(strangers)!r} in this run")
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
        found, _ = read_answers(Path(path), None)
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
        if not self.answered:
            raise InputError("no answer was given: there is nothing to write")
        out = self.run.with_name(f"{self.run.name}-reviewed") if out is None else Path(out)
        RunFolder(out).require_usable(None, resume=False)
        run, clusters, features = self.run, self._doubts.clusters, self.features
        # A number that no sample has any more stays as an empty cluster, so that the others keep theirs.
        n_clusters = max(self.start.n_clusters, int(clusters.max()) + 1)
        shares, corrected = self.start.shares(clusters, n_clusters), clusters != self.start.own
        if self.start.by_person is not None:  # of an earlier review
            corrected |= self.start.by_person
        prototypes = solve_prototypes(features, shares, np.zeros((features.shape[1], n_clusters), np.float32))
        stored = load_model(run, role="target")
        described = read_object(run / RUN_FILE) or {}
        reviewed = [*described.get("reviewed", []), stored.fingerprint]  # models whose numbers are kept
        head = replace(stored.head, prototypes=prototypes)
        stages = (*stored.card.stages, "review")
        card = replace(stored.card, name=out.name, n_clusters=n_clusters, stages=stages)
        described |= {"clusters": n_clusters, "reviewed": reviewed}
        stored = replace(stored, card=card, head=head, proportions=shares.mean(0, keepdims=True))
        with making(out) as partial, writing(out):
            partial.chmod(0o700)
            for name in EARLY_FILES:  # of which the description and the votes are written anew below
                with suppress(FileNotFoundError), open_received(run / name) as file:
                    (partial / name).write_bytes(file.read())
            write_text_atomically(partial / RUN_FILE, json.dumps(described, indent=2) + "\n")
            kept = replace(self.start, own=clusters, n_clusters=n_clusters, by_person=corrected)
            write_remembered(partial, kept)
            save_model(partial, stored)
            if self.names:
                named = ClusterNames(format="ucds-names/1", model=stored.fingerprint, names=self.names)
                write_text_atomically(partial / NAMES_FILE, named.model_dump_json(indent=1) + "\n")
        agreement = float(((features @ prototypes).argmax(1) == clusters).mean())
        return ReviewedRun(out, self.answered, len(np.unique(clusters)), agreement)

    def _worthwhile(self) -> list[Doubt]:
        """List the doubts that an answer is likely to be worth its time; of two clusters, one of both."""
        found: dict[object, Doubt] = {}
        for doubt in self._doubts.ranked():
            pair = frozenset((doubt.cluster, *doubt.others[:1])) if doubt.whole else doubt
            if doubt.score >= WORTH_ASKING * len(self.start.ids):
                found.setdefault(pair, doubt)
        return list(found.values())

    def _word(self, doubt: Doubt) -> Question:
        """Put a doubt into words, and its answers into records by ids, which mean the same in another run."""
        ids, clusters, labels = self.start.ids, self._doubts.clusters, self.start.labels
        numbers = [doubt.cluster, *doubt.others]
        titles = [f"{self.names[n]} ({n})" if n in self.names else f"cluster {n}" for n in numbers]
        groups = [np.flatnonzero(clusters == number) for number in numbers]
        group = self._anchors(doubt.cluster) if doubt.whole else [ids[i] for i in doubt.samples]
        others = [self._anchors(other) for other in doubt.others]
        about = {"whole": doubt.whole, "group": group, "others": others}
        kept = {"did": "kept", **about}
        places: list[Mapping[str, Any]] = [{"did": "placed", **about, "to": other} for other in others]
        if doubt.whole:
            changes, apart = min(map(len, groups[:2])), kept
        else:
            changes, apart = len(doubt.samples), {"did": "separated", **about}
            numbers.insert(0, doubt.cluster)
            titles[:1] = f"part of {titles[0]}", f"the rest of {titles[0]}"
            groups[:1] = doubt.samples, np.setdiff1d(groups[0], doubt.samples)
            places.insert(0, kept)
        single = len(places) == 1
        answers: Sequence[Answer] = ("one", "two") if single else (*range(len(places)), "new")
        proposed = False
        if labels is not None:
            one, other = (labels[rows].mean(0).argmax() for rows in groups[:2])
            proposed = bool(one == other) == doubt.whole
        return Question(
            kind="one-or-two" if single else "place",
            groups=tuple(tuple(ids[i] for i in rows) for rows in groups),
            clusters=tuple(numbers),
            titles=tuple(titles),
            source="labels" if proposed else "own",
            changes=changes,
            records=dict(zip(answers, (*places, apart), strict=True)) | {"mixed": {"did": "mixed", **about}},
        )

    def _anchors(self, cluster: int) -> list[str]:
        """Return ids that stand for a cluster, spread evenly over it."""
        members = np.flatnonzero(self._doubts.clusters == cluster)
        if not len(members):
            raise InputError(f"there is no cluster {cluster}")
        chosen = np.linspace(0, len(members) - 1, min(_ANCHORS, len(members))).astype(np.int64)
        return [self.start.ids[i] for i in members[chosen]]

    def _record(self, record: Mapping[str, Any]) -> None:
        """Append a record to the file of answers, and let it take effect."""
        if not self._path.exists():
            append_line(self._path, json.dumps({"format": FORMAT, "clusters": self.start.digest}))
        append_line(self._path, json.dumps({**record, "number": self.recorded + 1}))
        self.recorded += 1
        if record["did"] == "undone":
            self._kept.pop()
            self._replay()
        else:
            self._kept.append(record)
            self._apply(record)

    def _replay(self) -> None:
        """Make the clusters anew from the start and all answers that count."""
        self._doubts.restart()
        self.names = dict(self._first_names)
        for record in self._kept:
            self._apply(record)

    def _apply(self, record: Mapping[str, Any]) -> None:
        """Let one record take effect; samples that are not here are left out."""
        group, to = self.rows(record.get("group", [])), self.rows(record.get("to", []))
        if not len(group) or ("to" in record and not len(to)):
            return
        if record["did"] == "named":
            cluster = self._doubts.cluster_of(group)
            self.names.pop(cluster, None)
            if record["name"]:
                self.names[cluster] = str(record["name"])
            return
        others = [rows for rows in map(self.rows, record.get("others", [])) if len(rows)]
        self._doubts.change(record["did"], group, others, to, whole=bool(record.get("whole")))
        # The name of a cluster that is no more goes to the one that its samples went to, if that has none.
        for gone in self.names.keys() - set(self._doubts.clusters.tolist()):
            self.names.setdefault(self._doubts.cluster_of(group), self.names.pop(gone))


def _vote_afterwards(run: Path, images: Source | None, compute: Compute | None) -> None:
    """Cluster the features of a run's samples, and write down what a review of its clusters starts from.

    Of many samples as many are clustered as in a training by consensus.
    """
    model, described = load(run, role="target", compute=compute), read_object(run / RUN_FILE) or {}
    place = described.get("images") if images is None else images
    if place is None:
        raise InputError(f"{run} does not say where its samples lie: name their folder with --images")
    data, labels = model.open(place), None
    if images is None:
        require_same_samples(described, data.samples.fingerprint)
    if (run / LABELS_FILE).exists():
        labels = ClusterLabels.load(run / LABELS_FILE).align_with(data.samples)
    bound = {"most_samples": described["settings"]["most_samples"]} if "settings" in described else {}
    settings = ConsensusSettings(transfer="own", **bound)
    work = Work(settings, model.compute)
    data, known = draw_with_labels(work, data, labels)
    found, rng = model.outputs(data), numpy_generator(0, "review")
    lengths = model.stored.card.encoder.name == LENGTHS
    agreed = agree(found.features, model.n_clusters, settings, rng, known, work.watch, lengths)
    write_features(run, found.features)
    remember_vote(run, data.samples, agreed, found.probabilities.argmax(1))
