"""Questions to a person about the clusters of a run, and what the answers change.

A provider's labels, and single clusterings of the client's own, propose which groups belong together. No
figure that the client has tells which proposal is right, but a person sees it at a glance. The clusters start
from the client's own consensus, and change by answers and actions only. They follow from the start and the
records: there is no other state, an undo is one more record, and a review continues where it was left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ucds.arguments import checked
from ucds.choices import Sorting
from ucds.data.bounds import UnusableImageError
from ucds.data.content import find_places, keys_of
from ucds.data.folders import Scan
from ucds.data.image_files import read_image_bytes
from ucds.data.sources import Source
from ucds.errors import InputError, brief
from ucds.files import refuse_inside
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.arrays import IntArray, Watch
from ucds.math.corrections import ASIDE
from ucds.math.doubts import Doubt
from ucds.math.telling_words import TellingWords, words_of_path
from ucds.showing import shows
from ucds.target.actions import Actions
from ucds.target.answers import ANSWERS_FILE
from ucds.target.finishing import ReviewedRun, fit, vote_afterwards, write_successor
from ucds.target.predictions import Predictions, read_names, read_sorting, require_room, sort_into_folders
from ucds.target.questions import Answer, Question
from ucds.target.remembered import SOURCES, Remembered, read_remembered
from ucds.target.seen import Near, Seen, likeliest
from ucds.training.loaded import Model, load
from ucds.training.model_file import StoredModel, load_model
from ucds.training.options import Compute
from ucds.training.run_folder import LABELS_FILE, VOTES_FILE, RunFolder

WORTH_ASKING = 0.003
"""Share of the samples that an answer is expected to move, at least, if it is worth a person's time."""


@shows("run", "answered", "names")
class Review(Actions):
    """A review of the clusters of a finished target run by a person, or by a program.

    When a method that changes the clusters returns, the change is on the disk; one thread at a time calls
    such methods. :meth:`finish`, :meth:`save_table` and :meth:`sort_into` work on the clusters as they were
    when they were called, and may run in another thread.

    Args:
        run: folder of the run; it gains the file ``answers.jsonl``, which a later review goes on from.
        images: samples of a run whose encoder was trained, if they are no longer where the run found them.
            The first review of such a run clusters the samples, because the run remembers no clusterings.
        compute: device, cache and reporter of clustering and encoding; the defaults if ``None``.

    Attributes:
        run: folder of the run.
        start: clustering from which the review starts.
        features: ``(n, d_f)`` bottleneck features of the samples: all of the run, or the drawn ones of a run
            with more than ``most_samples``.
        names: names that the person gave to clusters, by their numbers.

    Raises:
        InputError: there is no finished target run in the folder, or its samples are gone and needed.
        DamagedFileError: the answers of the run cannot be read, or belong to other clusters.
    """

    @checked
    def __init__(
        self,
        run: str | Path,
        *,
        images: Source | None = None,
        compute: Compute | None = None,
    ) -> None:
        self.run, self._compute = Path(run), compute
        if not (self.run / VOTES_FILE).exists():
            vote_afterwards(self.run, images, compute)
        (start, features), names = read_remembered(self.run), read_names(self.run)
        super().__init__(self.run / ANSWERS_FILE, start, features, names)
        self._seen: tuple[int, Seen] | None = None
        self._words: tuple[Mapping[str, str] | None, TellingWords] | None = None

    @property
    def worth_asking(self) -> int:
        """Number of questions that are now likely to be worth a person's time."""
        return len(self._worthwhile())

    @property
    def outlook(self) -> str:
        """A sentence that says how many questions are open, and what the first is about."""
        worth, question = self.worth_asking, self.question()
        if question is None or not worth:
            return "no question is likely to be worth your time"
        count = "1 question is" if worth == 1 else f"{worth} questions are"
        return f"{count} probably worth your time; the first: {question.about}"

    def question(self) -> Question | None:
        """Return the next question, the same until it is answered; ``None`` if there is none left."""
        ranked = self._ranked()
        return self._word(ranked[0]) if ranked else None

    def answer(self, given: Answer) -> None:
        """Answer the present question; the answer is on the disk when this returns.

        Args:
            given: for a question of the kind "one-or-two", ``"one"`` or ``"two"``; for one of the kind
                "place", the index of a cluster in :attr:`Question.offered`, or ``"new"`` for a new cluster.
                For both kinds, ``"mixed"`` says that a group holds several kinds, and changes nothing;
                ``"skip"`` is not recorded.

        Raises:
            InputError: there is no question, or the question has no such answer.
            NoSpaceError: the answer cannot be written, and does not count.
        """
        question = self.question()
        if question is None:
            raise InputError("there is no question left to answer")
        if given == "skip":
            self._doubts.skip(self._ranked()[0])
        elif isinstance(given, bool) or given not in question.records:
            raise InputError(f"{brief(given)} does not answer a question of the kind {question.kind!r}")
        else:
            self._record(question.records[given])

    @property
    def seen(self) -> Seen:
        """The present clusters as a person sees them; later actions do not change this object."""
        version = self._doubts.version
        if self._seen is None or self._seen[0] != version:
            seen = Seen(self.partition.copy(), self._by_person, self.start.own, self._likely, self.directions)
            self._seen = version, seen
        return self._seen[1]

    @cached_property
    def labels(self) -> IntArray | None:
        """The provider's label of each sample, -1 where it has none; ``None`` in a run without labels."""
        path = self.run / LABELS_FILE
        if not path.exists():
            return None
        labels = ClusterLabels.load(path)
        places = find_places(self.start.ids, labels.ids)
        return np.where(places < 0, -1, labels.labels[places])

    @checked
    def suggest(self, texts: Mapping[str, str] | None = None, most: int = 3) -> dict[int, list[str]]:
        """Suggest names of clusters: words that set each cluster apart from the others, the best word first.

        Args:
            texts: texts of samples by their ids; if there are none, the names of files and folders count.
            most: largest number of words for a cluster. A cluster that no word sets apart is left out.
        """
        if self._words is None or self._words[0] is not texts:
            ids = self.start.ids
            found = [texts.get(name, "") for name in ids] if texts else list(map(words_of_path, ids))
            self._words = texts, TellingWords(found)
        return self._words[1].of(self.partition, most)

    @checked
    def like(self, ids: Iterable[str], most: int = 30) -> Near:
        """Find the samples of all clusters that are nearest to given ones; the given ones are left out.

        Args:
            ids: ids of the samples.
            most: largest number of samples to find.

        Raises:
            InputError: there is no such sample.
        """
        rows = self._known_rows(list(ids))
        return self.seen.near(self.directions[rows].mean(0), most, rows)

    @checked
    def like_picture(self, picture: Any, most: int = 30) -> Near:
        """Find the samples nearest to a picture from outside the run, which is encoded and not kept.

        Args:
            picture: path or content of an image file, PIL image, array of pixels, or the embedding of a
                sample for a run on embeddings.
            most: largest number of samples to find.

        Raises:
            InputError: the picture cannot be used.
        """
        if isinstance(picture, str | Path):
            try:
                picture = read_image_bytes(picture)  # the features of files would be kept
            except UnusableImageError as error:
                raise InputError(str(error)) from None
        single = picture[None] if isinstance(picture, np.ndarray) else [picture]
        features = self._model.transform(single)
        if not np.isfinite(features).all():
            raise InputError("the image is damaged, or of a format that cannot be read: choose another one")
        return self.seen.near(features[0], most, np.empty(0, np.int64))

    @checked
    def finish(self, out: str | Path | None = None) -> ReviewedRun:
        """Write a new run whose model gives the reviewed clusters, in seconds and without encoding.

        The prototypes are fitted again to the features that the run remembers, unless only names have
        changed. Clusters keep their numbers.

        Args:
            out: run folder to make; the run's name with "-reviewed" beside it if ``None``.

        Returns:
            The folder, and how far its model agrees with the reviewed clusters.

        Raises:
            InputError: nothing was answered, every sample is set aside, or the folder is in use.
            NoSpaceError: the folder cannot be written.
        """
        kept, names, answered = self.now()
        if not answered:
            raise InputError("no answer was given: there is nothing to write")
        out = self.run.with_name(f"{self.run.name}-reviewed") if out is None else Path(out)
        RunFolder(out).require_free()
        inside, stored = kept.own[kept.own != ASIDE], self._stored
        if not len(inside):
            raise InputError("every sample is set aside: there is nothing for a model to learn")
        if np.array_equal(kept.own, self.start.own):  # only names were given
            kept = replace(kept, n_clusters=self.start.n_clusters)
        else:
            stored = fit(stored, self.start, kept.own, kept.n_clusters, self.features)
        agreement = write_successor(self.run, out, stored, kept, self.features, "review", names=names)
        return ReviewedRun(out, answered, len(np.unique(inside)), agreement)

    def now(self) -> tuple[Remembered, Mapping[int, str], int]:
        """Return what a run would remember that ends here, names of its clusters, and the number of answers.

        A number that no sample has any more stays as an empty cluster, so that the others keep theirs.
        """
        with self._lock:
            own, number, answered = self.partition.copy(), self._answers.first, self.answered
            by_person = self._by_person if answered else self.start.by_person
            kept = replace(self.start, own=own, n_clusters=number, by_person=by_person, proposed=None)
            return kept, self.names, answered

    @checked
    def save_table(self, path: str | Path) -> Path:
        """Write a table of the samples with their clusters, as ``ucds predict`` does.

        Args:
            path: file to write, in .csv for a spreadsheet or .parquet.

        Raises:
            InputError: the name has another suffix.
            NoSpaceError: the disk is full, or the folder is not writable.
        """
        return self._predictions().save(path, marked=True)

    @checked
    def sort_into(
        self, folder: str | Path, files: Scan, *, how: Sorting = "copy", watch: Watch | None = None
    ) -> int:
        """Sort the images into one folder per cluster, see :func:`ucds.target.predictions.sort_into_folders`.

        Args:
            folder: new or empty folder, or one of an earlier call.
            files: image files of the run; those that are not in the review are left out.
            how: ``"copy"`` or ``"link"``: copies or symbolic links.
            watch: called after each image.

        Returns:
            Number of images that were sorted.

        Raises:
            InputError: the folder is in use, or none of the files is in the review.
            OSError: an image cannot be read.
            NoSpaceError: the disk is full, or the folder is not writable.
        """
        folder, places = Path(folder), find_places(self.start.ids, files.ids)
        rows = np.flatnonzero(places >= 0)
        if not len(rows):
            raise InputError(f"none of the images in {files.root} is in the review of {self.run}")
        refuse_inside(folder, files.root)
        if (before := read_sorting(folder)) is not None:
            before.require_of(folder, self.run, self._stored.fingerprint)
        if how == "copy":
            require_room(folder, files)
        found, keys = self._predictions(), keys_of(self.start.keys).take(rows)
        found = replace(
            found,
            ids=self._ids(rows),
            clusters=found.clusters[rows],
            confidence=found.confidence[rows],
            files=files.take(places[rows]),
        )
        sort_into_folders(folder, found, keys, how, self._stored.fingerprint, watch)
        return len(rows)

    def _predictions(self) -> Predictions:
        """Return the present clusters of the samples, as a model's predictions are."""
        with self._lock:
            seen, names, number = self.seen, self.names, self._answers.first
        unused = set(range(number)) - set(seen.numbers)
        source = [SOURCES[1 + given] for given in seen.by_person.tolist()]
        return Predictions(
            self.start.ids, seen.clusters, seen.confidence, names, number, source=source, unused=unused
        )

    @property
    def _by_person(self) -> NDArray[np.bool_]:
        """Whether a person has placed each sample itself ``(n,)``, in this review or an earlier one."""
        earlier, now = self.start.by_person, self._doubts.by_person
        return now.copy() if earlier is None else now | earlier

    @cached_property
    def _stored(self) -> StoredModel:
        return load_model(self.run, role="target")

    @cached_property
    def _model(self) -> Model:
        return load(self.run, role="target", compute=self._compute)

    @cached_property
    def _likely(self) -> sparse.csr_array:
        return likeliest(self.features, self._stored.head.prototypes)

    def _worthwhile(self) -> list[Doubt]:
        """List the doubts that are likely to be worth a person's time, only one for each pair of clusters."""
        found: dict[object, Doubt] = {}
        for doubt in self._ranked():
            pair = frozenset((doubt.cluster, *doubt.others[:1])) if doubt.whole else doubt
            if doubt.score >= self._worth:
                found.setdefault(pair, doubt)
        return list(found.values())

    def _ranked(self) -> list[Doubt]:
        return self._doubts.ranked(self._worth)

    @property
    def _worth(self) -> float:
        return WORTH_ASKING * len(self.start.ids)

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
        home = 1  # place of the cluster to compare with
        if doubt.whole:
            changes, apart = min(map(len, groups[:2])), kept
        elif doubt.cluster == ASIDE:
            changes, apart = len(doubt.samples), {"did": "separated", **about}
            titles[0], groups[0] = "new images", doubt.samples
        else:
            changes, apart = len(doubt.samples), {"did": "separated", **about}
            home += doubt.is_proposed  # what is proposed comes first
            numbers.insert(home, doubt.cluster)
            titles.insert(home, f"the rest of {titles[0]}")
            groups.insert(home, np.setdiff1d(groups[0], doubt.samples))
            places.insert(home - 1, kept)
            titles[0], groups[0] = f"part of {titles[0]}", doubt.samples
        single = len(places) == 1
        answers: Sequence[Answer] = ("one", "two") if single else (*range(len(places)), "new")
        proposed = False
        if labels is not None:
            one, other = (labels[groups[place]].mean(0).argmax() for place in (0, home))
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
