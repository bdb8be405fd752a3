"""The facts that a report shows: read from the run folder, and computed from a model and its samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ucds.data.content import find_places, keys_of
from ucds.data.dataset import Dataset
from ucds.data.ground_truth import GroundTruth, read_ground_truth
from ucds.data.samples import subset
from ucds.data.sources import is_feature_folder
from ucds.data.vectors import read_arrays
from ucds.errors import DamagedFileError, NoSpaceError
from ucds.files import digest_of, read_object, write_atomically
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.arrays import FloatArray, IntArray
from ucds.math.cluster_number import ClusterNumber
from ucds.math.corrections import ASIDE
from ucds.math.embedding import place_all
from ucds.math.exemplars import find_nearest, find_outliers, group_near_duplicates
from ucds.math.spaces import unit_rows
from ucds.page.thumbnails import Images, Thumbnails, resize, shrink
from ucds.target.known import places_in
from ucds.target.remembered import Remembered
from ucds.target.review import Review
from ucds.training.cluster_choice import read_choice
from ucds.training.loaded import Model
from ucds.training.run_folder import LABELS_FILE, MAP_FILE, STABILITY_FILE, TRANSFER_FILE, read_run

MOST_SHOWN = 10_000
"""Largest number of samples that a page shows; from more, it shows a random choice."""

_COMPARED_SIDE = 32  # pixels of the pictures that near-duplicates are looked for on
_STABILITY = {"own_agreement": float | int, "second_opinion": {"sentence": str}}  # what is told of it


@dataclass(frozen=True)
class RunRecord:
    """Contents of a run folder besides the model; entries that the run did not write are empty."""

    described: dict[str, Any]  # method, settings, seed, digest of the data
    labels: ClusterLabels | None  # that a provider gave
    transfer: dict[str, Any] | None  # use of these labels, with the evidence
    stability: dict[str, Any] | None  # agreement of the client's own clusterings, and what it puts in doubt
    choice: ClusterNumber | None  # evidence for the number of clusters; None if the number was given

    def split_places(self, named: Path | None) -> tuple[Path | None, Path | None]:
        """Return the new place of the samples, or of the images of a folder of features; one is ``None``."""
        of_features = any(map(is_feature_folder, places_in(self.described)))
        return (None, named) if of_features else (named, None)


def read_record(run: Path) -> RunRecord:
    """Read what a run folder holds beside the model."""
    labels = run / LABELS_FILE
    return RunRecord(
        read_run(run),
        ClusterLabels.load(labels) if labels.exists() else None,
        read_object(run / TRANSFER_FILE, {"sentence": str}),
        read_object(run / STABILITY_FILE, _STABILITY),
        read_choice(run),
    )


@dataclass(frozen=True, eq=False)
class Findings:
    """Facts about samples and their clusters. The samples shown are in the order of their clusters."""

    ids: tuple[str, ...]  # of the samples shown
    captions: tuple[str, ...]  # text of each sample shown; its id where it has none
    total: int  # samples, those that are not shown included
    sizes: IntArray  # (K,) samples of each cluster, those that are not shown included
    clusters: IntArray  # (n,) of each sample shown; -1 where it is in none
    probabilities: FloatArray  # (n, K) of each cluster for each sample shown
    certainty: FloatArray  # (n,) confidence in the most probable cluster, see docs/consensus.md
    points: NDArray[np.float64]  # (n, 2) place of each sample in the plane
    typicality: FloatArray  # (n,) cosine of each sample to the mean direction of its cluster
    neighbours: IntArray  # (n, m) most similar samples of each, the most similar first
    outliers: IntArray  # samples that are far from all others
    duplicates: list[IntArray]  # groups of samples that are nearly the same
    answers: IntArray | None  # (n,) labels of the provider, -1 where a sample has none; None without labels
    truth: GroundTruth | None  # classes of the samples, if they lie in class folders
    thumbnails: Thumbnails | None  # of the samples; None without images
    outlook: str  # what a review would ask, in words; empty if these samples have no review

    @property
    def n_clusters(self) -> int:
        """Number of clusters, K."""
        return len(self.sizes)

    @cached_property
    def rivals(self) -> IntArray:
        """Second most probable cluster of each sample, ``(n,)``; the cluster itself if there is only one."""
        return np.argsort(-self.probabilities, axis=1, kind="stable")[:, min(1, self.n_clusters - 1)]

    @cached_property
    def overruled(self) -> NDArray[np.bool_]:
        """Whether each sample lies apart from most others with the same label of the provider, ``(n,)``."""
        apart = np.zeros(len(self.ids), dtype=bool)
        if self.answers is not None:
            for answer in np.unique(self.answers[self.answers >= 0]):
                same = np.flatnonzero(self.answers == answer)
                usual = np.bincount(self.clusters[same] + 1).argmax() - 1
                apart[same] = self.clusters[same] != usual
        return apart


def find_facts(
    model: Model,
    data: Dataset,
    labels: ClusterLabels | None,
    images: Images | None,
    texts: Mapping[str, str],
    review: Review | None,
    remembered: Remembered | None,
    strangers: IntArray,
) -> Findings:
    """Compute what a page says of samples; ``images`` holds the images of all, ``texts`` their texts by id.

    What a person has reviewed replaces the model's answers for ``remembered`` samples. Samples of a
    ``review`` have the same places on the map as in the review. The ``strangers`` are positions of samples
    that fit no cluster.
    """
    samples = data.samples
    shown = np.sort(np.random.default_rng(0).permutation(len(samples))[:MOST_SHOWN])
    whole = len(shown) == len(samples)
    found = model.outputs(data if whole else Dataset(subset(samples, shown), data.view))
    clusters = found.probabilities.argmax(1)
    everyone = (clusters, found.confidence) if whole else model.decide(data)
    if remembered is not None:
        if not whole:
            remembered.correct(samples.keys, *everyone)
        keys = keys_of(samples.keys).take(shown)
        remembered.correct(keys, clusters, found.confidence, found.probabilities)
    everyone[0][strangers] = clusters[np.isin(shown, strangers)] = ASIDE
    sizes = np.bincount(everyone[0][everyone[0] >= 0], minlength=model.n_clusters)
    places = np.lexsort((-found.confidence, clusters))  # stable: then by position
    features, probabilities, confidence = (each[places] for each in found)
    order = shown[places]
    ids = tuple(samples.ids[i] for i in order.tolist())
    with ThreadPoolExecutor(2) as pool:  # places and thumbnails take most of the time, about as long each
        placed = pool.submit(_place, ids, features, review)
        drawn = None if images is None else pool.submit(shrink, images, order)
        outlook = "" if review is None else review.outlook
        if review is not None:
            model.compute.reporter.say(f"{outlook} (ucds review {review.run})")
        model.compute.reporter.say("drawing the report")
        nearest = find_nearest(features)
        points, thumbnails = placed.result(), None if drawn is None else drawn.result()
    small = None if thumbnails is None else np.stack([resize(each, _COMPARED_SIDE) for each in thumbnails])
    truth, answers = read_ground_truth(samples), None
    if labels is not None:
        rows = find_places(ids, labels.ids)
        answers = np.where(rows < 0, -1, labels.labels[rows])
    return Findings(
        ids=ids,
        captions=tuple(texts.get(name, name) for name in ids),
        total=len(samples),
        sizes=sizes,
        clusters=clusters[places],
        probabilities=probabilities,
        certainty=confidence,
        points=points,
        typicality=_typicality(features, clusters[places]),
        neighbours=nearest.positions,
        outliers=find_outliers(nearest),
        duplicates=group_near_duplicates(nearest, small),
        answers=answers,
        truth=None if truth is None else GroundTruth(truth.names, truth.classes[order]),
        thumbnails=thumbnails,
        outlook=outlook,
    )


def place_remembered(run: Path, features: FloatArray) -> NDArray[np.float64]:
    """Return the place ``(n, 2)`` on the map of each sample that a run remembers; the run keeps them."""
    digest = np.frombuffer(digest_of(np.ascontiguousarray(features).data).encode(), np.uint8)
    with suppress(OSError, DamagedFileError, KeyError):
        kept = read_arrays(run / MAP_FILE)
        points = kept["points"]
        fits = points.shape == (len(features), 2) and points.dtype == np.float64
        if fits and np.isfinite(points).all() and np.array_equal(kept["digest"], digest):
            return points
    points = place_all(features)
    with suppress(NoSpaceError):  # a folder that nobody can write to is looked at all the same
        write_atomically(run / MAP_FILE, lambda file: np.savez(file, points=points, digest=digest))
    return points


def _place(ids: Sequence[str], features: FloatArray, review: Review | None) -> NDArray[np.float64]:
    """Return the place ``(n, 2)`` of each sample on the map."""
    if review is not None:
        rows = find_places(ids, review.start.ids)
        if (rows >= 0).all():
            return place_remembered(review.run, review.features)[rows]
    return place_all(features)


def _typicality(features: FloatArray, clusters: IntArray) -> FloatArray:
    """Compute the cosine of each sample to the mean direction of its cluster, ``(n,)``."""
    directions = unit_rows(features)
    numbers, place = np.unique(clusters, return_inverse=True)
    means = np.zeros((len(numbers), directions.shape[1]), directions.dtype)
    np.add.at(means, place, directions)
    return np.asarray((directions * unit_rows(means)[place]).sum(1), dtype=np.float32)
