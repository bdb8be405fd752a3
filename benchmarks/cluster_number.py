"""How well `--clusters auto` finds the number of classes, in blobs and in domains with class folders.

For each task and seed it records the number that was chosen, its interval, and the seconds of processor time
that the choice took, one line of JSON each. Tasks that have a record already are left out, so that the work
can be done in pieces; the page is written anew from all records each time.

    python benchmarks/cluster_number.py [DATA ...] [--backbone NAME --weights FILE] [--cache DIR] [--seeds 5]

DATA is a data set's folder, with one folder a domain and in it one a class. Without any, blobs are measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np
from real_features import Domain, parser_of, read_domains
from records import Records, grouped, line

from ucds.math.cluster_number import choose_cluster_number, most_clusters

BLOBS = (3, 5, 8, 12, 20, 30, 40)
SUBSET = 10  # classes of a domain that has more than twice as many
CHOSEN_ON = ("blobs", "webcam", "photo")
"""Tasks on which the constants of the method were chosen, by the beginning or the end of their names."""


@dataclass(frozen=True)
class Run:
    """One choice of a number of clusters."""

    task: str
    seed: int
    samples: int
    truth: int
    number: int
    low: int
    high: int
    clear: bool
    seconds: float

    @property
    def error(self) -> float:
        """Difference from the number of classes, as a share of it."""
        return abs(self.number - self.truth) / self.truth

    @property
    def covers(self) -> bool:
        """Whether the interval holds the number of classes."""
        return self.low <= self.truth <= self.high


def blobs(k: int, seed: int) -> Domain:
    """Twenty to eighty embeddings a cluster, of which the directions of the clusters take up a small part."""
    rng = np.random.default_rng(seed)
    centres, truth = rng.normal(size=(k, 512)) / 4, rng.integers(k, size=max(200, 20 * k))
    noise = 1.2 / np.sqrt(1 + np.arange(512) / 16) * rng.normal(size=(len(truth), 512))
    return Domain(f"blobs in {k}", (centres[truth] + noise).astype(np.float32), truth)


def tasks_of(domain: Domain, seed: int) -> Iterator[Domain]:
    """The domain itself, and ten of its classes drawn by the seed if it has many."""
    yield domain
    classes = np.unique(domain.classes)
    if len(classes) > 2 * SUBSET:
        kept = np.isin(domain.classes, np.random.default_rng(seed).choice(classes, SUBSET, replace=False))
        yield Domain(f"{domain.name}, {SUBSET} classes", domain.vectors[kept], domain.classes[kept])


def measure(task: Domain, seed: int) -> Iterator[Run]:
    """Choose a number of clusters."""
    count, truth, started = len(task.vectors), len(np.unique(task.classes)), time.process_time()
    found = choose_cluster_number([task.vectors], 2, most_clusters(count), np.random.default_rng(seed))
    seconds = round(time.process_time() - started, 2)
    yield Run(task.name, seed, count, truth, found.number, found.low, found.high, found.clear, seconds)


def page(runs: Sequence[Run]) -> str:
    """Write the tables of all runs."""
    confirmed = [one for one in runs if not is_chosen_on(one.task)]
    groups = {
        "all": runs,
        "constants chosen on (*)": [one for one in runs if is_chosen_on(one.task)],
        "confirmed on": confirmed,
        "confirmed on, where a number stands out": [one for one in confirmed if one.clear],
    }
    sums = [
        line([name, str(len(own)), f"{median(one.error for one in own):.0%}", f"{covered(own):.0%}"])
        for name, own in groups.items()
        if own
    ]
    rows = [row(*each) for each in grouped(runs, "task").items()]
    return INTRODUCTION + "".join(sums) + HEAD + "".join(rows)


INTRODUCTION = """# The number of clusters that is chosen

Made by `python benchmarks/cluster_number.py` from `cluster_number.jsonl`; not edited by hand. How the number
is chosen: [docs/consensus.md](../docs/consensus.md).

| tasks | choices | median error | interval holds the truth |
| --- | ---: | ---: | ---: |
"""

HEAD = """
A row is a task. A seed draws the blobs or the classes, and the parts of the samples. "Clear" counts the seeds
without the warning that no number stands out. Seconds are processor time of the choice.

| task | samples | classes | chosen | interval | median error | holds the truth | clear | seconds |
| --- | ---: | ---: | --- | --- | ---: | ---: | ---: | ---: |
"""


def covered(runs: Sequence[Run]) -> float:
    """Return the share of the choices whose interval holds the truth."""
    return sum(one.covers for one in runs) / len(runs)


def row(task: str, own: Sequence[Run]) -> str:
    """Write the line of one task."""
    cells = [
        task + " *" * is_chosen_on(task),
        f"{round(median(one.samples for one in own)):,}",
        str(own[0].truth),
        ", ".join(str(one.number) for one in own),
        ", ".join(f"{one.low}-{one.high}" for one in own),
        f"{median(one.error for one in own):.0%}",
        f"{sum(one.covers for one in own)} of {len(own)}",
        f"{sum(one.clear for one in own)} of {len(own)}",
        f"{median(one.seconds for one in own):.1f}",
    ]
    return line(cells)


def is_chosen_on(task: str) -> bool:
    """Whether constants were chosen on a task."""
    return task.startswith(CHOSEN_ON) or task.removesuffix(f", {SUBSET} classes").endswith(CHOSEN_ON)


def main() -> None:
    options = parser_of("Measure how well the number of clusters is chosen.").parse_args()
    domains = list(read_domains(options))
    jobs = (
        ({"task": task.name, "seed": seed}, partial(measure, task, seed))
        for seed in range(options.seeds)
        for domain in domains or [blobs(k, seed) for k in BLOBS]
        for task in (tasks_of(domain, seed) if domains else [domain])
    )
    Records(__file__, Run).complete(jobs, page)


if __name__ == "__main__":
    main()
