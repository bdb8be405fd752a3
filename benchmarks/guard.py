"""What asking a provider gains in many situations: each use of its labels, the guard's choice, an oracle's.

A task is a target domain, an encoder on each side, a part of the target's images, and a number of clusters of
the provider. In every task the target is clustered with each of the three uses of the labels
(`ucds.target.guard`), and the accuracy of the guard's choice is compared with that of setting the labels
aside. The clusterings in which tasks agree are computed once; the steps are those of the method, and the
clusters those of its vote (`ucds.target.consensus.agree`), before a model is fitted to them. Ground truth is
read for the scores, and to make imbalanced parts.

Runs that are recorded in `guard.jsonl` are left out; the page is written anew from all of them. With --keep,
the clusterings are kept in a folder, so that another guard can be tried in minutes.

    python benchmarks/guard.py DATA ... --weights ENCODER=FILE [--weights ENCODER=FILE] [--digits]
                               [--cache DIR] [--keep DIR] [--seeds 5]
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

import joblib  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray
from real_features import Domain, read_data_set
from records import Records, kept_results
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from ucds.data.ground_truth import GroundTruth
from ucds.demo.digits import write_digits
from ucds.experiments.subsets import imbalanced_subset, long_tail_subset, small_subset
from ucds.math.arrays import FloatArray
from ucds.math.consensus import Partition, Vote, average_linkage, blend, cluster_by_vote, refine
from ucds.math.domain_transport import join_domains
from ucds.math.metrics import clustering_accuracy
from ucds.math.spaces import Spaces, centre, make_spaces, unit_rows
from ucds.target.consensus import average_labels
from ucds.target.guard import WEIGHTS, Evidence, KnownLabels, Use, weigh_labels
from ucds.training.options import EncoderOptions

DIGITS_ENCODER = "ucds/oriented_edges"
WEAK = "torchvision/squeezenet1_1"
PARTS = ("whole", "100 images", "imbalanced", "long tail")
SHARES = (1.0, 0.65, 1.5)
LOSS = 3  # points; runs that lose more are counted
TUNED = "targets on which the guard was tuned"
NOT_TUNED = "amazon, cartoon and sketch"
FEW_CLASSES = "ten and eleven classes"
HELD_OUT = ("office31 amazon", "pacs cartoon", "pacs sketch")
"""Targets on which neither the weights of the uses nor the thresholds of the trust were chosen."""
GROUPED, GROUPS = "office31", ((0, 10), (10, 20), (20, 31))
"""Data set whose classes are taken in groups too, and the groups: first class and last, which is left out."""


@dataclass(frozen=True)
class Task:
    """One situation.

    Attributes:
        target: data set and domain.
        client: encoder of the target.
        provider: encoder of the source.
        part: the target's images that take part, one of :data:`PARTS`.
        share: clusters of the provider, as a multiple of the number of classes.
        shuffled: whether the labels are given to images at random.
    """

    target: str
    client: str
    provider: str
    part: str
    share: float = 1.0
    shuffled: bool = False


@dataclass(frozen=True)
class Run:
    """A task with a seed: accuracies of the labels and of each use of them, and what the guard measured."""

    task: Task
    seed: int
    samples: int
    labels: float
    uses: Mapping[str, float]
    own_agreement: float
    provider_agreement: float
    own_consistency: float
    provider_consistency: float

    @property
    def use(self) -> Use:
        """Use that the guard chooses by these figures."""
        clusters = (20, round(20 * self.task.share))  # their ratio alone counts
        figures = (self.own_agreement, self.provider_agreement, self.own_consistency)
        measured = (*figures, self.provider_consistency, *clusters, self.samples)
        return Evidence("own", *measured, "guarded").advised

    @property
    def gain(self) -> float:
        """Points of accuracy that the guard's choice gains against setting the labels aside."""
        return self.gain_of(self.use)

    @property
    def best(self) -> float:
        """Points that the best use of this run gains: an oracle that also profits from chance."""
        return max(map(self.gain_of, WEIGHTS))

    def gain_of(self, use: Use) -> float:
        """Points that a use gains against setting the labels aside, exact to the decimals of accuracies."""
        return round(100 * (self.uses[use] - self.uses["own"]), 4)


@dataclass(frozen=True)
class Clustered:
    """Spaces of the images of a domain, as an encoder sees them, and the vote."""

    spaces: Spaces
    vote: Vote


def cluster(vectors: FloatArray, n_clusters: int, seed: int) -> Clustered:
    """Cluster the samples of a domain by the steps 1 and 2 of the method."""
    spaces = make_spaces(vectors, n_clusters)
    return Clustered(spaces, cluster_by_vote(spaces, n_clusters, np.random.default_rng(seed)))


def choose_part(domain: Domain, part: str, seed: int) -> NDArray[np.int64]:
    """Return the positions of the images of a domain that take part."""
    everything = np.arange(len(domain.classes))
    classes = int(domain.classes.max()) + 1
    truth, alone = GroundTruth(tuple(map(str, range(classes))), domain.classes), np.zeros_like(everything)
    match part:
        case "100 images":
            return small_subset(everything, seed=seed)
        case "imbalanced":
            return imbalanced_subset(truth, alone)
        case "long tail":
            return long_tail_subset(truth, alone, seed=seed)
        case _:
            return everything


def take_classes(domain: Domain, first: int, end: int) -> Domain:
    """Return the samples of a domain whose classes lie in a group, and name the group."""
    mask = (domain.classes >= first) & (domain.classes < end)
    name = f"{domain.name}, classes {first + 1} to {end}"
    return Domain(name, domain.vectors[mask], domain.classes[mask] - first)


def of_few_classes(task: Task) -> bool:
    """Tell whether the target of a task is a group of classes."""
    return ", classes " in task.target


def tasks_of(target: str, encoders: Sequence[str]) -> Iterator[Task]:
    """List the situations of one target; the first encoder is the better one."""
    whole = [Task(target, client, provider, "whole") for client in encoders for provider in encoders]
    if of_few_classes(whole[0]):
        yield from whole
        return
    for task in whole:
        for part in PARTS:
            yield replace(task, part=part)
    for part in ("whole", "100 images"):
        for share in SHARES[1:]:
            yield Task(target, encoders[0], encoders[0], part, share)
        yield Task(target, encoders[0], encoders[0], part, shuffled=True)


class Bench:
    """The domains of one data set with one seed: every clustering is computed once.

    Args:
        domains: domains of the data set by encoder.
        seed: seed of all that is random.
        keep: computes a clustering, or finds it.
    """

    def __init__(self, domains: Mapping[str, Sequence[Domain]], seed: int, keep: joblib.Memory) -> None:
        self._domains = domains
        self._seed = seed
        self._cluster = keep.cache(cluster)
        self._found: dict[tuple[str, str, str, int], Clustered] = {}

    def run(self, task: Task) -> Run:
        """Cluster the target of a task with every use of the provider's labels."""
        domains = {one.name: one for one in self._domains[task.client]}
        classes = domains[task.target].classes
        n_clusters, rows = int(classes.max()) + 1, choose_part(domains[task.target], task.part, self._seed)
        rng = np.random.default_rng(self._seed)
        provider_clusters = round(task.share * n_clusters)
        labels = self.labels(task, rows, provider_clusters)
        if task.shuffled:
            labels = rng.permutation(labels)
        own = self.clustered(task.target, task.client, task.part, n_clusters)
        known = KnownLabels(labels, np.arange(len(rows)), provider_clusters)
        evidence = weigh_labels(own.vote, own.spaces.graph, known)
        others = average_labels(own.spaces, known)
        found: dict[str, Partition] = {"own": own.vote.partition}
        for use, weight in WEIGHTS.items():
            if weight > 0:
                votes = blend(own.vote.memberships, others, weight)
                found[use] = refine(votes, average_linkage(votes, n_clusters, rng), n_clusters)
        return Run(
            task,
            self._seed,
            len(rows),
            round(clustering_accuracy(labels, classes[rows]), 4),
            {use: round(clustering_accuracy(one, classes[rows]), 4) for use, one in found.items()},
            round(evidence.own_agreement, 6),
            round(evidence.provider_agreement, 6),
            round(evidence.own_consistency, 6),
            round(evidence.provider_consistency, 6),
        )

    def clustered(self, target: str, encoder: str, part: str, n_clusters: int) -> Clustered:
        """Return the clustering of one part of a domain without labels."""
        key = (target, encoder, part, n_clusters)
        if key not in self._found:
            domain = next(one for one in self._domains[encoder] if one.name == target)
            rows = choose_part(domain, part, self._seed)
            self._found[key] = self._cluster(domain.vectors[rows], n_clusters, self._seed)
        return self._found[key]

    def labels(self, task: Task, rows: NDArray[np.int64], n_clusters: int) -> Partition:
        """Return the provider's label of each image, seen from the mean of these images."""
        domains = self._domains[task.provider]
        sources = [one for one in domains if one.name != task.target]
        partitions = [
            self.clustered(one.name, task.provider, "whole", n_clusters).vote.partition for one in sources
        ]
        joined = join_domains([one.vectors for one in sources], partitions, n_clusters)
        images = next(one for one in domains if one.name == task.target).vectors[rows]
        labels: Partition = (unit_rows(centre(images) @ joined.axes) @ joined.prototypes).argmax(1)
        return labels


INTRODUCTION = f"""# What asking a provider gains

Made by `python benchmarks/guard.py` from `guard.jsonl`; not edited by hand. Frozen features; each row is the
mean over its tasks, and a task is the mean over its seeds. Accuracies are those of the consensus, before a
model is fitted to it; pages in `results/` score the fitted model, and differ by up to two points. Gains are
points of accuracy against setting the labels aside (*without labels*).

- *labels*: accuracy of the provider's labels as they are.
- *guard*: gain of the use that the guard chose, without ground truth; *worst task*, *worst run*: its
  least gain; *runs below -{LOSS}*: number of runs that lose more than {LOSS} points.
- *best fixed use*: gain of the use that is best on the task's mean; *oracle*: gain of a choice that knows
  the accuracy of every single run, and so also profits from chance; *share*: the guard's gain as a share of
  the oracle's.
- *always ...*: gain of one use everywhere. Weight of the labels in the vote:
  {", ".join(f"{use} {weight:g}" for use, weight in WEIGHTS.items())}.

*Weak*: SqueezeNet, where the other encoder is MobileNetV2. *Imbalanced*: half of the classes keep 30 % of
their images. *Long tail*: the shares of the classes fall geometrically from 1 to a tenth.

The weights of the uses and the thresholds of the trust were chosen on webcam, dslr, photo, art painting and
the digits, without **amazon, cartoon and sketch**. The least agreement was added with all of them in view.
The rule for own clusterings that agree nearly fully was made on ten classes of Office-31 (amazon, webcam and
dslr, one seed). The groups of ten and eleven classes here are others: the classes in alphabetical order.
"""
COLUMNS = (
    "tasks",
    "seeds",
    "labels",
    "without labels",
    "guard",
    "worst task",
    "worst run",
    f"runs below -{LOSS}",
    "best fixed use",
    "oracle",
    "share",
    *(f"always {use}" for use in WEIGHTS if use != "own"),
)


def situation(task: Task) -> str:
    """Name the situation of a task: which encoders, which part, which provider."""
    if task.shuffled:
        return f"shuffled labels, {task.part}"
    if task.share != 1:
        return f"provider of {task.share} K clusters, {task.part}"
    sides = {
        (True, True): "same encoder",
        (True, False): "same weak encoder",
        (False, True): "weak provider",
        (False, False): "weak client",
    }
    strong = task.client != WEAK
    part = "few classes" if of_few_classes(task) else task.part
    return f"{sides[task.client == task.provider, strong]}, {part}"


def table(title: str, runs: Sequence[Run], group: Callable[[Task], str]) -> str:
    """Write a row for each group of tasks, and one for all."""
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        groups[group(run.task)].append(run)
    rows = [row(name, some) for name, some in groups.items()]
    head = f"\n| {' | '.join((title, *COLUMNS))} |\n| --- |{' ---: |' * len(COLUMNS)}\n"
    return head + "".join([*rows, row("**all**", runs)])


def row(name: str, runs: Sequence[Run]) -> str:
    """Write the figures of some runs."""
    tasks: dict[Task, list[Run]] = defaultdict(list)
    for run in runs:
        tasks[run.task].append(run)

    def means(figure: Callable[[Run], float]) -> list[float]:
        return [mean(map(figure, some)) for some in tasks.values()]

    def of_use(use: Use) -> list[float]:
        return means(lambda run: run.gain_of(use))

    guard, best = means(lambda run: run.gain), means(lambda run: run.best)
    cells = [name, str(len(tasks)), str(min(map(len, tasks.values())))]
    cells += [
        f"{100 * mean(means(figure)):.1f}" for figure in (lambda run: run.labels, lambda run: run.uses["own"])
    ]
    cells += [f"{value:+.1f}" for value in (mean(guard), min(guard), min(run.gain for run in runs))]
    cells.append(str(sum(run.gain < -LOSS for run in runs)))
    cells += [f"{mean(map(max, *map(of_use, WEIGHTS))):+.1f}", f"{mean(best):+.1f}"]
    cells.append(f"{mean(guard) / mean(best):.0%}" if mean(best) > 0.05 and mean(guard) >= 0 else "-")
    cells += [f"{mean(of_use(use)):+.1f}" for use in WEIGHTS if use != "own"]
    return f"| {' | '.join(cells)} |\n"


def kind_of_target(task: Task) -> str:
    """Tell what was chosen on the target of a task, as a title."""
    if of_few_classes(task):
        return FEW_CLASSES
    return NOT_TUNED if task.target in HELD_OUT else TUNED


def page(runs: Iterable[Run]) -> str:
    """Write the tables of all records."""
    runs = list(runs)
    parts = [INTRODUCTION]
    for title in (TUNED, NOT_TUNED, FEW_CLASSES):
        some = [run for run in runs if kind_of_target(run.task) == title]
        if some:
            parts += [f"\n## By target: {title}\n", table("target", some, lambda task: task.target)]
            parts += [f"\n## By situation: {title}\n", table("situation", some, situation)]
    parts += ["\n## By situation: all targets\n", table("situation", runs, situation)]
    return "".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what asking a provider gains.")
    parser.add_argument("data", nargs="*", type=Path, help="folders of data sets: domain/class/image")
    parser.add_argument(
        "--weights", action="append", default=[], metavar="ENCODER=FILE", help="the better first"
    )
    parser.add_argument("--digits", action="store_true", help="the embedded digits too")
    parser.add_argument("--cache", type=Path, help="folder of the cache of features")
    parser.add_argument("--keep", type=Path, help="folder in which clusterings are kept")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    options = parser.parse_args()
    encoders = [EncoderOptions(*one.split("=", 1)) for one in options.weights]
    records, keep = Records(__file__, Run), kept_results(options.keep)
    with threadpool_limits(1), tempfile.TemporaryDirectory() as folder:
        sets = [(path, encoders) for path in options.data]
        if options.digits:
            write_digits(Path(folder) / "digits")
            sets.append((Path(folder) / "digits", [EncoderOptions(DIGITS_ENCODER)]))
        for path, used in sets:
            domains = {str(one.backbone): list(read_data_set(path, one, options.cache)) for one in used}
            groups = GROUPS if path.name == GROUPED else ()
            parts = [
                {name: [take_classes(one, *group) for one in found] for name, found in domains.items()}
                for group in groups
            ]
            for seed in range(options.seeds):
                for each in (domains, *parts):
                    record(each, seed, keep, records)
    records.write_page(page(records.runs))


def record(
    domains: Mapping[str, Sequence[Domain]], seed: int, keep: joblib.Memory, records: Records[Run]
) -> None:
    """Run and record the tasks of one data set and seed that are not recorded yet."""
    encoders, bench = list(domains), Bench(domains, seed, keep)
    known = {run.task for run in records.runs if run.seed == seed}
    for target in [one.name for one in domains[encoders[0]]]:
        for task in tasks_of(target, encoders):
            if task not in known:
                records.add(bench.run(task))


if __name__ == "__main__":
    main()
