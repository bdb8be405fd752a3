"""The facts that a report shows: read from the run folder, and computed from a model and its samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ucds.data.content import find_places
from ucds.data.ground_truth import GroundTruth, read_ground_truth
from ucds.data.samples import Samples
from ucds.data.sources import is_feature_folder
from ucds.errors import InputError
from ucds.files import read_object
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.arrays import FloatArray, IntArray
from ucds.math.cluster_number import ClusterNumber
from ucds.math.exemplars import (
    Exemplars,
    choose_beside,
    find_exemplars,
    find_nearest,
    find_outliers,
    group_near_duplicates,
)
from ucds.math.metrics import ClusteringScores, score
from ucds.math.plane import place_all
from ucds.math.spaces import unit_rows
from ucds.reports.page.thumbnails import Images, lay_out, resize, shrink
from ucds.target.questions import FORMAT, Question
from ucds.target.review import Review
from ucds.training.cluster_choice import read_choice
from ucds.training.loaded import Outputs
from ucds.training.run_folder import LABELS_FILE, STABILITY_FILE, TRANSFER_FILE

EACH = 6
"""Images of each kind on a cluster's card."""

MOST_QUESTIONS, EACH_GROUP = 10, 8
"""Questions on a page, and samples that show each of their groups."""

_COMPARED_SIDE = 32  # pixels of the pictures that near-duplicates are looked for on


@dataclass(frozen=True)
class RunRecord:
    """What a run folder holds beside the model; entries that the run did not write are empty.

    Attributes:
        described: description of the run: method, settings, seed, digest of the data.
        labels: labels that a provider gave.
        transfer: use of these labels, with the evidence.
        stability: agreement of the client's own clusterings, and whether it is so low that the clusters are
            in doubt, or that the confidence is too high.
        choice: evidence for the number of clusters; ``None`` if the number was given.
    """

    described: dict[str, Any]
    labels: ClusterLabels | None
    transfer: dict[str, Any] | None
    stability: dict[str, Any] | None
    choice: ClusterNumber | None

    def split_places(self, named: Path | None) -> tuple[Path | None, Path | None]:
        """Tell whether a person names the place of moved samples, or of the images of a folder of features.

        Returns:
            Place of the samples, and folder of the images; ``None`` where they were before.
        """
        place = self.described.get("images")
        of_features = place is not None and is_feature_folder(Path(place))
        return (None, named) if of_features else (named, None)

    @property
    def images(self) -> Path:
        """Folder or file of the samples that the run was trained on.

        Raises:
            InputError: the run does not say, or they are no longer there.
        """
        place = self.described.get("images")
        if not place:
            raise InputError("the run does not say where its samples lie: name their folder after the run")
        if not Path(place).exists():
            raise InputError(f"the samples of the run were in {place}, which is gone: name their folder")
        return Path(place)


def read_record(run: Path) -> RunRecord:
    """Read what a run folder holds beside the model.

    Raises:
        DamagedFileError: a file of the run cannot be read.
    """
    labels = run / LABELS_FILE
    return RunRecord(
        read_object(run / "run.json") or {},
        ClusterLabels.load(labels) if labels.exists() else None,
        read_object(run / TRANSFER_FILE),
        read_object(run / STABILITY_FILE),
        read_choice(run),
    )


class Asked(NamedTuple):
    """A question, and places of samples that show each of its groups."""

    question: Question
    shown: list[list[int]]


class Questions(NamedTuple):
    """The first questions of a review, the outlook in words, and the first line of a file of answers."""

    outlook: str = ""
    asked: Sequence[Asked] = ()
    header: Mapping[str, str] = {}


@dataclass(frozen=True, eq=False)
class Findings:
    """Facts about samples and their clusters. The samples shown are in the order of their clusters.

    Attributes:
        ids: id of each sample shown.
        captions: text of each sample shown; its id where it has none.
        sizes: ``(K,)`` number of samples of each cluster, those that are not shown included.
        probabilities: ``(n, K)`` probability of each cluster for each sample shown.
        certainty: ``(n,)`` confidence in the most probable cluster, see ``docs/consensus.md``.
        points: ``(n, 2)`` place of each sample in the plane.
        stars: ``(K, 2)`` place of each prototype in the plane.
        exemplars: samples that show what each cluster is.
        outliers: samples that are far from all others.
        duplicates: groups of samples that are nearly the same.
        answers: ``(n,)`` the provider's label of each sample, -1 where it has none; ``None`` without labels.
        truth: classes of the samples, if they lie in class folders.
        sheets: files of sheets with a thumbnail of each sample; ``None`` if the samples are not images.
        questions: the first questions of a review; none if these samples have no review.
    """

    ids: tuple[str, ...]
    captions: tuple[str, ...]
    sizes: IntArray
    probabilities: FloatArray
    certainty: FloatArray
    points: NDArray[np.float64]
    stars: NDArray[np.float64]
    exemplars: list[Exemplars]
    outliers: IntArray
    duplicates: list[IntArray]
    answers: IntArray | None
    truth: GroundTruth | None
    sheets: tuple[bytes, ...] | None
    questions: Questions

    @property
    def n_clusters(self) -> int:
        """Number of clusters, K."""
        return len(self.sizes)

    @cached_property
    def clusters(self) -> IntArray:
        """Most probable cluster of each sample, ``(n,)``."""
        return np.asarray(self.probabilities.argmax(1), dtype=np.int64)

    @cached_property
    def rivals(self) -> IntArray:
        """Second most probable cluster of each sample, ``(n,)``; the cluster itself if there is only one."""
        return np.argsort(-self.probabilities, axis=1, kind="stable")[:, min(1, self.n_clusters - 1)]

    @cached_property
    def overruled(self) -> NDArray[np.bool_] | None:
        """Whether each sample lies apart from most others with the same label of the provider, ``(n,)``."""
        if self.answers is None:
            return None
        apart = np.zeros(len(self.answers), dtype=bool)
        for answer in np.unique(self.answers[self.answers >= 0]):
            same = np.flatnonzero(self.answers == answer)
            apart[same] = self.clusters[same] != np.bincount(self.clusters[same]).argmax()
        return apart

    @cached_property
    def scores(self) -> ClusteringScores | None:
        """Agreement of the clusters with the classes; ``None`` without classes."""
        return None if self.truth is None else score(self.clusters, self.truth.classes)


def find_facts(
    samples: Samples,
    shown: IntArray,
    sizes: IntArray,
    found: Outputs,
    prototypes: FloatArray,
    labels: ClusterLabels | None,
    images: Images | None,
    texts: Mapping[str, str],
    review: Review | None,
) -> Findings:
    """Compute what a report shows of the samples at the positions ``shown``, about which ``found`` speaks.

    ``sizes`` counts all samples, ``images`` has those of all, and ``texts`` are known by their ids.
    """
    places = np.lexsort((-found.confidence, found.probabilities.argmax(1)))  # stable: then by position
    features, probabilities, confidence = (each[places] for each in found)
    order = shown[places]
    ids = tuple(samples.ids[i] for i in order.tolist())
    sheets = small = None
    with ThreadPoolExecutor(1) as pool:  # places and thumbnails take most of the time, about as long each
        placed = pool.submit(place_all, features, prototypes, 0)
        if images is not None:
            pictures = shrink(images, order)
            small = np.stack([resize(each, _COMPARED_SIDE) for each in pictures])
            sheets = lay_out(pictures)
        points, stars = placed.result()
    nearest = find_nearest(features)
    truth, answers = read_ground_truth(samples), None
    if labels is not None:
        rows = find_places(ids, labels.ids)
        answers = np.where(rows < 0, -1, labels.labels[rows])
    return Findings(
        ids=ids,
        captions=tuple(texts.get(name, name) for name in ids),
        sizes=sizes,
        probabilities=probabilities,
        certainty=confidence,
        points=points,
        stars=stars,
        exemplars=find_exemplars(features, probabilities, EACH, confidence),
        outliers=find_outliers(nearest),
        duplicates=group_near_duplicates(nearest, small),
        answers=answers,
        truth=None if truth is None else GroundTruth(truth.names, truth.classes[order]),
        sheets=sheets,
        questions=Questions() if review is None else _find_questions(review, ids, features),
    )


def _find_questions(review: Review, ids: Sequence[str], features: FloatArray) -> Questions:
    """Choose the first questions of a review, and samples on the page that show their groups."""
    places = {name: i for i, name in enumerate(ids)}
    directions, asked = unit_rows(features), []
    for question in review.foresee(MOST_QUESTIONS):
        groups = [
            np.array([places[name] for name in group if name in places], np.int64)
            for group in question.groups
        ]
        if all(map(len, groups)):
            shown = [rows.tolist() for rows in choose_beside(directions, groups, EACH_GROUP)]
            asked.append(Asked(question, shown))
    return Questions(review.outlook, asked, {"format": FORMAT, "clusters": review.start.digest})
