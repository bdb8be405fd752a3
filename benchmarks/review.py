"""What a person's answers gain: accuracy after each of fifty answers, which are taken from the classes.

Every target is reviewed with `ucds.Review`, alone and with a provider's labels. Every answer counts, "mixed"
and "don't know" too. Two other uses of the same time stand beside it, of which one needs
`pip install active-semi-supervised-clustering`.

The most important runs come first. A run has the accuracies at the start and after each answer, and the
purities at the numbers of answers in `AT`; of pairs of images both at these numbers. The figure of the page
is drawn in `review.svg`.

    python benchmarks/review.py DATA ... --weights ENCODER=FILE [--weights ENCODER=FILE] [--digits]
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from guard import PARTS, WEAK, Bench, Clustered, Task, choose_part
from matplotlib.figure import Figure
from real_features import Domain, Domains, parser_of, read_by_encoder
from records import Row, complete, table
from sklearn.metrics.cluster import contingency_matrix

from ucds import Review
from ucds.data.content import content_key
from ucds.files import write_atomically
from ucds.math.arrays import FloatArray, IntArray
from ucds.math.consensus import Partition
from ucds.math.metrics import clustering_accuracy
from ucds.target.agreement import average_labels
from ucds.target.guard import KnownLabels
from ucds.target.questions import Answer, Question
from ucds.target.remembered import Remembered, write_features, write_remembered

ANSWERS = 50
AT = (0, 3, 5, 10, 25, 50)
RECOGNISED = 0.6
GROUPS, PAIRS = "random groups", "pairs of images"
"""Other uses of a person's time, which labels cannot change."""
PERSONS = ("right", "5 % wrong", GROUPS, "10 % wrong", "20 % unknown")
WRONG, UNKNOWN = {"5 % wrong": 0.05, "10 % wrong": 0.1}, {"20 % unknown": 0.2}
CHOSEN_ON = ("office31 dslr", "office31 webcam", "pacs photo", "pacs art_painting")
"""Targets on which the constants of the questions were chosen."""
INTRODUCTION = f"""# What a person's answers gain

Made by `python benchmarks/review.py` from `review.jsonl`; not edited by hand. Accuracy in percent after so
many answers: means over targets of their means over seeds. *Worst dip*: lowest point of a target's mean
curve, against its start. The clusters before a model is fitted to them; frozen features.

Answers come from the classes: a group is recognised if at least 60 % of it are of one class, and is "mixed"
otherwise; a cluster that is offered is known by its most frequent class. *Wrong*: so many of the answers are
another one, drawn at random. *Unknown*: so many are "don't know". *Random groups*: right answers about a
random part of a cluster and another random cluster. *Pairs of images*: right answers whether two images are
of one class, chosen and used by active
PCK-means (package `active-semi-supervised-clustering`), which starts from plain k-means.

The constants of the questions were chosen on {", ".join(CHOSEN_ON)}, with one seed;
the others confirm them or do not.

![Accuracy after 0 to 50 answers](review.svg)
"""
LINES = {
    ("right", True): ("questions of ucds review, with a provider's labels", "#332288", "-"),
    ("right", False): ("questions of ucds review, without labels", "#117733", "-"),
    ("5 % wrong", True): ("with labels, 5 % of the answers wrong", "#332288", ":"),
    ("random groups", False): ("questions about random groups", "#666666", "--"),
}


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
        self, remembered: Remembered, features: FloatArray, classes: IntArray, person: str, seed: int
    ) -> None:
        self._classes, self._person, self._rng = classes, person, np.random.default_rng(seed)
        self._parts = remembered.doubts().parts
        self._folder = tempfile.TemporaryDirectory()
        write_remembered(Path(self._folder.name), remembered)
        write_features(Path(self._folder.name), features)
        self.review = Review(self._folder.name)

    @property
    def clusters(self) -> IntArray:
        """Cluster of each sample after all answers."""
        return np.fromiter(self.review.clusters.values(), dtype=np.int64)

    def answer(self) -> None:
        """Answer the next question, if there is one."""
        if self._person == GROUPS:
            self._answer_at_random()
            return
        question, chance = self.review.question(), self._rng.random()
        if question is None:
            return
        if chance < UNKNOWN.get(self._person, 0):
            self.review.answer("skip")
            return
        right = self._right_answer(question)
        if right != "mixed" and chance < WRONG.get(self._person, 0):
            others = [one for one in question.records if one not in (right, "mixed")]
            right = others[self._rng.integers(len(others))]
        self.review.answer(right)

    def _right_answer(self, question: Question) -> Answer:
        known = [np.bincount(self._classes[[int(name) for name in group]]) for group in question.groups]
        group, *offered = (int(counts.argmax()) for counts in known)
        if known[0].max() < RECOGNISED * known[0].sum():
            return "mixed"
        if question.kind == "one-or-two":
            return "one" if group == offered[0] else "two"
        return offered.index(group) if group in offered else "new"

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
            self.review.join([own, other])
        else:
            self.review.move([str(row) for row in np.flatnonzero(part)], other)


def remember(found: Clustered, labels: Partition | None, n_clusters: int) -> Remembered:
    """Return what a run would remember of a clustering."""
    partitions = np.array(found.vote.partitions)
    everything = np.arange(partitions.shape[1])
    averaged = None
    if labels is not None:
        known = KnownLabels(labels, everything, n_clusters)
        averaged = average_labels(found.spaces, known).toarray()
    own = found.vote.partition.astype(np.int64)
    ids = tuple(map(str, everything))
    keys = [content_key(name.encode()) for name in ids]
    return Remembered(ids, partitions, own, n_clusters, keys, averaged)


def cluster_by_pairs(vectors: FloatArray, classes: IntArray, answers: int, seed: int) -> Partition:
    """Cluster by active PCK-means, which asks whether two images are of one class."""
    from active_semi_clustering.active.pairwise_constraints import ExampleOracle, ExploreConsolidate
    from active_semi_clustering.semi_supervised.pairwise_constraints import PCKMeans

    np.random.seed(seed)  # noqa: NPY002 - the package draws from the global generator
    n_clusters, same, different = int(classes.max()) + 1, [], []
    if answers:
        learner = ExploreConsolidate(n_clusters=n_clusters)
        learner.fit(vectors, oracle=ExampleOracle(classes, max_queries_cnt=answers))
        same, different = learner.pairwise_constraints_
    found = PCKMeans(n_clusters=n_clusters).fit(vectors, ml=same, cl=different)
    return np.asarray(found.labels_, dtype=np.int64)


def measure(bench: Bench, domain: Domain, provider: str, run: Row) -> Iterator[Row]:
    """Review one target."""
    rows, n_clusters = choose_part(domain, run["part"], run["seed"]), domain.n_classes
    classes, labels = domain.classes[rows], None
    if run["labels"]:
        task = Task(domain.name, run["client"], provider, run["part"])
        labels = bench.labels(task, rows, n_clusters)
    found = bench.clustered(domain.name, run["client"], run["part"], n_clusters)
    principal = found.spaces.principal
    if run["person"] == PAIRS:
        each = at_some = [cluster_by_pairs(principal, classes, answers, run["seed"]) for answers in AT]
    else:
        remembered = remember(found, labels, n_clusters)
        reviewed = Reviewed(remembered, principal, classes, run["person"], run["seed"])
        each = [reviewed.clusters]
        for _ in range(ANSWERS):
            reviewed.answer()
            each.append(reviewed.clusters)
        at_some = [each[answers] for answers in AT]
    # Purity is the share of samples that are of the most frequent class of their cluster.
    most = (contingency_matrix(classes, clusters).max(axis=0).sum() for clusters in at_some)
    yield run | {
        "accuracy": [round(clustering_accuracy(clusters, classes), 4) for clusters in each],
        "purity": [round(float(one / len(classes)), 4) for one in most],
    }


def cells() -> Iterator[tuple[str, int, str, bool]]:
    """List part, place of the client's encoder, person, and labels or not; the most important first."""
    for person in PERSONS:
        for given in (False,) if person == GROUPS else (True, False):
            yield "whole", 0, person, given
    for client, part, given in product((1, 0), PARTS, (True, False)):
        if (part, client) != ("whole", 0):
            yield part, client, "right", given
    yield "whole", 0, PAIRS, False  # takes longest


def jobs_of(data: Sequence[Domains], seeds: int) -> Iterator[tuple[Row, Callable[[], Iterator[Row]]]]:
    """Yield each cell with each seed for the domains of each data set; the provider has the first encoder."""
    benches = {(i, seed): Bench(one, seed) for i, one in enumerate(data) for seed in range(seeds)}
    for (part, place, person, given), seed, (i, domains) in product(cells(), range(seeds), enumerate(data)):
        encoders = list(domains)
        for domain in domains[encoders[place]] if place < len(encoders) else ():
            run = {"target": domain.name, "part": part, "client": encoders[place], "labels": given}
            run |= {"person": person, "seed": seed}
            yield run, partial(measure, benches[i, seed], domain, encoders[0], run)


def mean_curves(runs: pd.DataFrame) -> np.ndarray:
    """Return the mean curve over seeds of each target, in percent."""
    targets = runs.groupby(["target", "situation"], sort=False)["accuracy"]
    return np.array([100 * np.mean(list(some), 0) for _, some in targets])


def row(runs: pd.DataFrame) -> Row:
    """Write the means after some answers, the worst dip of a target's mean, and the purity at both ends."""
    curves, purity = mean_curves(runs), 100 * np.mean(list(runs["purity"]), 0)
    places = range(len(AT)) if curves.shape[1] == len(AT) else AT
    figures = {str(answers): f"{curves.mean(0)[i]:.1f}" for answers, i in zip(AT, places, strict=True)}
    return {"targets": len(curves), "seeds": runs["target"].value_counts().min(), **figures} | {
        "worst dip": f"{(curves.min(1) - curves[:, 0]).min():+.1f}",
        "purity at first": f"{purity[0]:.1f}",
        "at last": f"{purity[-1]:.1f}",
    }


def section(title: str, runs: pd.DataFrame, by: str) -> str:
    """Write a table with a row for each person, target or situation, alone and with labels."""
    names = runs[by] + np.where(runs["labels"], ", with labels", ", alone")
    rows = [{"runs": name} | row(some) for name, some in runs.groupby(names, sort=False)]
    return f"\n## {title}\n\n{table(rows)}\n"


def page(rows: Sequence[Row]) -> str:
    """Write the tables of all records, and draw the figure."""
    runs = pd.DataFrame(rows)
    weak, whole = runs["client"] == WEAK, runs["part"] == "whole"
    runs["situation"] = runs["part"] + np.where(weak, ", weak client", ", same encoder")
    chief = runs[whole & ~weak & ~runs["target"].str.startswith("digits")]
    right = runs["person"] == "right"
    draw(chief)
    text = INTRODUCTION
    text += section("Office-31 and PACS, whole targets, the provider's encoder", chief, "person")
    text += section("By target, right answers", runs[right & whole & ~weak], "target")
    return text + section("By situation, right answers", runs[right], "situation")


def draw(runs: pd.DataFrame) -> None:
    """Draw the mean curves of the most important runs."""
    with matplotlib.rc_context({"svg.hashsalt": "ucds", "svg.fonttype": "none", "font.size": 10}):
        figure = Figure(figsize=(7, 3.6), layout="constrained")
        axes = figure.subplots()
        for (person, labels), (name, colour, style) in LINES.items():
            some = runs[(runs["person"] == person) & (runs["labels"] == labels)]
            if len(some):
                axes.plot(mean_curves(some).mean(0), color=colour, linestyle=style, label=name)
        axes.set(xlabel="answers of a person", ylabel="accuracy (%)", xlim=(0, ANSWERS))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
        low, high = axes.get_ylim()
        axes.set_ylim(low - 0.35 * (high - low), high)  # room for the legend below the curves
        axes.legend(frameon=False, loc="lower right")
        write_atomically(
            Path(__file__).with_suffix(".svg"),
            lambda file: figure.savefig(file, format="svg", metadata={"Date": None}),
        )


if __name__ == "__main__":
    options = parser_of("Measure what a person's answers gain.").parse_args()
    complete(__file__, jobs_of(read_by_encoder(options), options.seeds), page)
