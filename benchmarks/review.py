"""What a person's answers gain: accuracy after each of fifty answers, which are taken from the classes.

Every target is reviewed with `ucds.Review`, alone and with a provider's labels. A group of samples is
recognised if at least 60 % of it are of one class; otherwise the answer is "mixed". A cluster that is
offered is known by its most frequent class. A wrong answer is one of the others, drawn at random. Every
answer counts, "mixed" and "don't know" too. Ground truth is read for the answers and for the scores.

Two other uses of the same time stand beside it: right answers about a random part of a cluster and another
random cluster, and right answers about pairs of images, which active PCK-means chooses and uses
(`pip install active-semi-supervised-clustering`).

The most important runs come first. Runs that are recorded in `review.jsonl` are left out; the page and the
figure are written anew from all of them.

    python benchmarks/review.py DATA ... --weights ENCODER=FILE [--weights ENCODER=FILE] [--digits]
                                [--cache DIR] [--seeds 5]
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path

import numpy as np
from guard import PARTS, Bench, Clustered, Task, choose_part
from real_features import Domains, parser_of, read_by_encoder
from records import Records
from review_page import ANSWERS, AT, PAIRS, PERSONS, WITHOUT_LABELS, Person, Run, write_page
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from ucds import Review
from ucds.math.arrays import FloatArray, IntArray
from ucds.math.consensus import Partition
from ucds.math.metrics import clustering_accuracy
from ucds.target.consensus import average_labels
from ucds.target.guard import KnownLabels
from ucds.target.questions import Answer, Question
from ucds.target.remembered import Remembered, write_features, write_remembered

RECOGNISED = 0.6
WRONG: Mapping[Person, float] = {"5 % wrong": 0.05, "10 % wrong": 0.1}
UNKNOWN: Mapping[Person, float] = {"20 % unknown": 0.2}


class Reviewed:
    """A clustering under review by a person who sees the classes.

    Args:
        remembered: clustering, as a run remembers it.
        features: ``(n, d)`` features of the samples.
        classes: class of each sample.
        person: what the answers are like.
        seed: seed of wrong answers.
    """

    def __init__(
        self, remembered: Remembered, features: FloatArray, classes: IntArray, person: Person, seed: int
    ) -> None:
        self._classes, self._person, self._rng = classes, person, np.random.default_rng(seed)
        self._parts = remembered.parts
        self._folder = tempfile.TemporaryDirectory()
        write_remembered(Path(self._folder.name), remembered)
        write_features(Path(self._folder.name), features)
        self.review = Review(self._folder.name, keep_clusters=person == "K kept")

    @property
    def clusters(self) -> IntArray:
        """Cluster of each sample after all answers."""
        return np.fromiter(self.review.clusters.values(), dtype=np.int64)

    def answer(self) -> None:
        """Answer the next question, if there is one."""
        if self._person == "random groups":
            self._answer_at_random()
            return
        question, chance = self.review.question(), self._rng.random()
        if question is None:
            return
        if chance < UNKNOWN.get(self._person, 0):
            self.review.answer("skip")
            return
        right = self._right_answer(question)
        wrong = right != "mixed" and chance < WRONG.get(self._person, 0)
        self.review.answer(self._another_answer(question, right) if wrong else right)

    def _right_answer(self, question: Question) -> Answer:
        known = [np.bincount(self._classes[[int(name) for name in group]]) for group in question.groups]
        group, *offered = (int(counts.argmax()) for counts in known)
        if known[0].max() < RECOGNISED * known[0].sum():
            return "mixed"
        if question.kind == "one-or-two":
            return "one" if group == offered[0] else "two"
        return offered.index(group) if group in offered else "new"

    def _another_answer(self, question: Question, right: Answer) -> Answer:
        if question.kind == "one-or-two":
            return "two" if right == "one" else "one"
        others: list[Answer] = [*range(len(question.offered)), "new"]
        others.remove(right)
        return others[self._rng.integers(len(others))]

    def _answer_at_random(self) -> None:
        """Answer whether a random part of a cluster belongs to a random other cluster."""
        clusters = self.clusters
        part = self._parts == self._rng.choice(np.unique(self._parts))
        own = int(clusters[part][0])
        others = np.setdiff1d(clusters, own)
        counts = np.bincount(self._classes[part])
        if not len(others) or counts.max() < RECOGNISED * counts.sum():
            return
        other = int(self._rng.choice(others))
        if np.bincount(self._classes[clusters == other]).argmax() != counts.argmax():
            return
        if (clusters[part] == own).sum() == (clusters == own).sum():
            self.review.join(own, other)
        else:
            self.review.move([str(row) for row in np.flatnonzero(part)], other)


def remember(found: Clustered, labels: Partition | None, n_clusters: int) -> Remembered:
    """Return what a run would remember of a clustering."""
    partitions = np.array([one for space in found.vote.by_space for one in space])
    everything = np.arange(partitions.shape[1])
    averaged = None
    if labels is not None:
        known = KnownLabels(labels, everything, n_clusters)
        averaged = average_labels(found.spaces, known).toarray()
    own = found.vote.partition.astype(np.int64)
    return Remembered(tuple(map(str, everything)), partitions, own, n_clusters, averaged)


def purity(clusters: Partition, classes: IntArray) -> float:
    """Compute the share of samples that are of the most frequent class of their cluster."""
    most = (np.bincount(classes[clusters == one]).max() for one in np.unique(clusters))
    return float(sum(most) / len(classes))


def cluster_by_pairs(vectors: FloatArray, classes: IntArray, answers: int, seed: int) -> Partition:
    """Cluster by active PCK-means, which asks whether two images are of one class."""
    from active_semi_clustering.active.pairwise_constraints import (
        ExampleOracle,
        ExploreConsolidate,
    )
    from active_semi_clustering.semi_supervised.pairwise_constraints import PCKMeans

    np.random.seed(seed)  # noqa: NPY002 - the package draws from the global generator
    n_clusters, same, different = int(classes.max()) + 1, [], []
    if answers:
        learner = ExploreConsolidate(n_clusters=n_clusters)
        learner.fit(vectors, oracle=ExampleOracle(classes, max_queries_cnt=answers))
        same, different = learner.pairwise_constraints_
    found = PCKMeans(n_clusters=n_clusters).fit(vectors, ml=same, cl=different)
    return np.asarray(found.labels_, dtype=np.int64)


def scores_of(
    found: Clustered, classes: IntArray, labels: Partition | None, person: Person, seed: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the accuracies and purities of a review."""
    principal = found.spaces.principal
    if person == PAIRS:
        each = [cluster_by_pairs(principal, classes, answers, seed) for answers in AT]
    else:
        remembered = remember(found, labels, int(classes.max()) + 1)
        reviewed = Reviewed(remembered, principal, classes, person, seed)
        each = [reviewed.clusters]
        for _ in range(ANSWERS):
            reviewed.answer()
            each.append(reviewed.clusters)
    accuracies = (round(clustering_accuracy(clusters, classes), 4) for clusters in each)
    at_some = each if person == PAIRS else [each[answers] for answers in AT]
    return tuple(accuracies), tuple(round(purity(clusters, classes), 4) for clusters in at_some)


def cells() -> Iterator[tuple[str, int, Person, bool]]:
    """List part, place of the client's encoder, person, and labels or not; the most important first."""
    for person in PERSONS:
        for given in (False,) if person in WITHOUT_LABELS else (True, False):
            if person != PAIRS:
                yield "whole", 0, person, given
    for client, part, given in product((1, 0), PARTS, (True, False)):
        if (part, client) != ("whole", 0):
            yield part, client, "right", given
    yield "whole", 0, PAIRS, False  # takes longest


def review_all(
    domains: Domains,
    cell: tuple[str, int, Person, bool],
    bench: Bench,
    seed: int,
    records: Records[Run],
) -> None:
    """Run and record one cell for the domains of a data set."""
    part, place, person, given = cell
    provider, client = next(iter(domains)), list(domains)[place]
    known = {run.key for run in records.runs}
    for domain in domains[client]:
        key = (domain.name, part, client, given, person, seed)
        if key in known:
            continue
        rows, n_clusters = choose_part(domain, part, seed), int(domain.classes.max()) + 1
        task = Task(domain.name, client, provider, part)
        labels = bench.labels(task, rows, n_clusters) if given else None
        found = bench.clustered(domain.name, client, part, n_clusters)
        records.add(Run(*key, *scores_of(found, domain.classes[rows], labels, person, seed)))


def main() -> None:
    options = parser_of("Measure what a person's answers gain.").parse_args()
    records, data = Records(__file__, Run), read_by_encoder(options)
    with threadpool_limits(1):
        benches = {(i, seed): Bench(one, seed) for i, one in enumerate(data) for seed in range(options.seeds)}
        for cell, seed, i in product(cells(), range(options.seeds), range(len(data))):
            if cell[1] < len(data[i]):
                review_all(data[i], cell, benches[i, seed], seed, records)
    write_page(Path(__file__), records)


if __name__ == "__main__":
    main()
