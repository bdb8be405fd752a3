"""What a second encoder gains: each of two alone, and both together.

A task is a target domain and a part of its images. The steps are those of the method, without a provider,
and the clusters those of its vote (`ucds.math.joint_vote`), before a model is fitted to them. Ground truth is
read for the scores, and to make imbalanced parts.

Runs that are recorded in `two_encoders.jsonl` are left out; the page is written anew from all of them. With
--keep, the clusterings of single encoders are kept in a folder, or taken from there: those of
`benchmarks/guard.py` are the same.

    python benchmarks/two_encoders.py DATA ... --weights ENCODER=FILE --weights ENCODER=FILE
                                      [--cache DIR] [--keep DIR] [--seeds 5]
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import guard
import numpy as np
from real_features import Domain, read_data_set
from records import Records, kept_results
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from ucds.math.joint_vote import join_votes
from ucds.math.metrics import clustering_accuracy
from ucds.training.options import EncoderOptions


@dataclass(frozen=True)
class Run:
    """One target, part and seed: weight of the second encoder, and accuracies.

    Attributes:
        target: data set and domain.
        part: the target's images that take part, one of `guard.PARTS`.
        seed: seed of all that is random.
        samples: number of images.
        weight: weight of the second encoder, 0 to 1.
        first: accuracy of the first encoder alone.
        second: accuracy of the second encoder alone.
        joined: accuracy of both with the method's weights.
    """

    target: str
    part: str
    seed: int
    samples: int
    weight: float
    first: float
    second: float
    joined: float

    @property
    def gain(self) -> float:
        """Points that the second encoder gains."""
        return 100 * (self.joined - self.first)


def run(
    domains: Mapping[str, Sequence[Domain]],
    target: str,
    part: str,
    seed: int,
    cluster: Callable[..., guard.Clustered],
) -> Run:
    """Cluster a part of a target with each encoder, and with both."""
    classes, found = np.empty(0, np.int64), []
    n_clusters = 0
    for of_encoder in domains.values():
        domain = next(one for one in of_encoder if one.name == target)
        rows, n_clusters = guard.choose_part(domain, part, seed), int(domain.classes.max()) + 1
        classes = domain.classes[rows]
        found.append(cluster(domain.vectors[rows], n_clusters, seed))
    votes, spaces = [one.vote for one in found], [one.spaces for one in found]
    joined = join_votes(votes, spaces, n_clusters, np.random.default_rng(seed))
    partitions = [votes[0].partition, votes[1].partition, joined.partition]
    accuracies = (round(clustering_accuracy(one, classes), 4) for one in partitions)
    return Run(target, part, seed, len(classes), round(float(joined.weights[1]), 4), *accuracies)


INTRODUCTION = """# What a second encoder gains

Made by `python benchmarks/two_encoders.py` from `two_encoders.jsonl`; not edited by hand. Frozen features of
MobileNetV2 (first) and SqueezeNet (second), no provider. Accuracy in percent; each row is the mean over its
seeds. Accuracies are those of the consensus, before a model is fitted to it; pages in `results/` score the
fitted model, and differ by up to two points.

- *weight*: weight of the second encoder, without ground truth; *misjudged*: seeds in which the encoder with
  the smaller weight is the better one by more than two points.
- *both*: accuracy with these weights; *gain*: against the first encoder alone, in points; *worst run*: its
  least value.

The measure of an encoder's strength and its power were chosen on webcam, dslr, photo and art painting,
without **amazon, cartoon and sketch**. The second candidate for the consensus was added after a form without
it had lost on amazon.
"""
COLUMNS = ("seeds", "first", "second", "weight", "misjudged", "both", "gain", "worst run")


def misjudged(one: Run) -> bool:
    """Tell whether the better encoder has the smaller weight."""
    better = one.first - one.second
    return abs(better) > 0.02 and (better > 0) == (one.weight > 0.5)


def table(runs: Sequence[Run]) -> str:
    """Write a row for each task, and the mean of the tasks."""
    tasks: dict[str, list[Run]] = defaultdict(list)
    for one in runs:
        tasks[f"{one.target}, {one.part}"].append(one)
    head = f"\n| task | {' | '.join(COLUMNS)} |\n| --- |{' ---: |' * len(COLUMNS)}\n"
    rows = [row(name, [some]) for name, some in tasks.items()]
    parts = [
        row(f"**{part}**", [some for some in tasks.values() if some[0].part == part]) for part in guard.PARTS
    ]
    return head + "".join([*rows, *parts, row("**all**", list(tasks.values()))])


def row(name: str, tasks: Sequence[Sequence[Run]]) -> str:
    """Write the figures of some tasks; means are over tasks, of which each is a mean over its seeds."""

    def over(figure: Callable[[Run], float]) -> float:
        return mean(mean(map(figure, some)) for some in tasks)

    everything = [one for some in tasks for one in some]
    cells = [
        name,
        str(min(map(len, tasks))),
        f"{100 * over(lambda one: one.first):.1f}",
        f"{100 * over(lambda one: one.second):.1f}",
        f"{over(lambda one: one.weight):.2f}",
        f"{sum(map(misjudged, everything))} of {len(everything)}",
        f"{100 * over(lambda one: one.joined):.1f}",
        f"{over(lambda one: one.gain):+.1f}",
        f"{min(one.gain for one in everything):+.1f}",
    ]
    return f"| {' | '.join(cells)} |\n"


def page(runs: Iterable[Run]) -> str:
    """Write the tables of all records."""
    runs = sorted(runs, key=lambda one: (one.target, guard.PARTS.index(one.part), one.seed))
    parts = [INTRODUCTION]
    for title, held_out in (("Targets on which the choices were made", False), ("Other targets", True)):
        some = [one for one in runs if (one.target in guard.HELD_OUT) is held_out]
        if some:
            parts += [f"\n## {title}\n", table(some)]
    return "".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what a second encoder gains.")
    parser.add_argument("data", nargs="*", type=Path, help="folders of data sets: domain/class/image")
    parser.add_argument(
        "--weights", action="append", default=[], metavar="ENCODER=FILE", help="the first one first"
    )
    parser.add_argument("--cache", type=Path, help="folder of the cache of features")
    parser.add_argument("--keep", type=Path, help="folder in which clusterings are kept")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    options = parser.parse_args()
    encoders = [EncoderOptions(*one.split("=", 1)) for one in options.weights]
    records = Records(__file__, Run)
    known = {(one.target, one.part, one.seed) for one in records.runs}
    cluster = kept_results(options.keep).cache(guard.cluster)
    with threadpool_limits(1):
        for path in options.data:
            domains = {str(one.backbone): list(read_data_set(path, one, options.cache)) for one in encoders}
            targets = [one.name for one in domains[str(encoders[0].backbone)]]
            for seed in range(options.seeds):
                for target in targets:
                    for part in guard.PARTS:
                        if (target, part, seed) not in known:
                            records.add(run(domains, target, part, seed, cluster))
    records.write_page(page(records.runs))


if __name__ == "__main__":
    main()
