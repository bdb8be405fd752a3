"""How well `--clusters auto` finds the number of classes, in blobs and in domains with class folders.

    python benchmarks/cluster_number.py [DATA ...] [--weights ENCODER=FILE] [--digits] [--cache DIR]

DATA is a data set's folder, with one folder a domain and in it one a class. Without any, blobs are measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pandas as pd
from real_features import Domain, parser_of, read_domains
from records import Row, complete, table

from ucds.math.cluster_number import choose_cluster_number, most_clusters

BLOBS = (3, 5, 8, 12, 20, 30, 40)
SUBSET = 10  # classes of a domain that has more than twice as many
CHOSEN_ON = ("blobs", "webcam", "photo")
"""Tasks on which the constants of the method were chosen, by the beginning or the end of their names."""

PAGE = """# The number of clusters that is chosen

Made by `python benchmarks/cluster_number.py` from `cluster_number.jsonl`; not edited by hand. How the number
is chosen: [docs/consensus.md](../docs/consensus.md).

{groups}

A row is a task. A seed draws the blobs or the classes, and the parts of the samples. "Clear" counts the seeds
without the warning that no number stands out. Seconds are processor time of the choice.

{tasks}
"""


def blobs(k: int, count: int, seed: int) -> Domain:
    """Embeddings of which the directions of the clusters take up a small part."""
    rng = np.random.default_rng(seed)
    centres, truth = rng.normal(size=(k, 512)) / 4, rng.integers(k, size=count)
    noise = 1.2 / np.sqrt(1 + np.arange(512) / 16) * rng.normal(size=(len(truth), 512))
    return Domain(f"blobs in {k}", (centres[truth] + noise).astype(np.float32), truth)


def tasks_of(domain: Domain, seed: int) -> Iterator[Domain]:
    """The domain itself, and ten of its classes drawn by the seed if it has many."""
    yield domain
    classes = np.unique(domain.classes)
    if len(classes) > 2 * SUBSET and not domain.name.startswith("blobs"):
        kept = np.isin(domain.classes, np.random.default_rng(seed).choice(classes, SUBSET, replace=False))
        yield Domain(f"{domain.name}, {SUBSET} classes", domain.vectors[kept], domain.classes[kept])


def measure(task: Domain, seed: int) -> Iterator[Row]:
    """Choose a number of clusters."""
    count, started = len(task.vectors), time.process_time()
    found = choose_cluster_number([task.vectors], 2, most_clusters(count), np.random.default_rng(seed))
    seconds = round(time.process_time() - started, 2)
    run = {"task": task.name, "seed": seed, "samples": count, "truth": len(np.unique(task.classes))}
    run |= {"number": found.number, "low": found.low, "high": found.high, "clear": found.clear}
    yield run | {"seconds": seconds}


def page(rows: Sequence[Row]) -> str:
    """Write the tables of all runs."""
    runs = pd.DataFrame(rows)
    runs["error"] = (runs["number"] - runs["truth"]).abs() / runs["truth"]
    runs["holds"] = runs["truth"].between(runs["low"], runs["high"])
    chosen_on = runs["task"].map(is_chosen_on)
    groups = [
        {
            "tasks": name,
            "choices": len(own),
            "median error": f"{own['error'].median():.0%}",
            "interval holds the truth": f"{own['holds'].mean():.0%}",
        }
        for name, own in (
            ("all", runs),
            ("constants chosen on (*)", runs[chosen_on]),
            ("confirmed on", runs[~chosen_on]),
            ("confirmed on, where a number stands out", runs[~chosen_on & runs["clear"]]),
        )
    ]
    tasks = [
        {
            "task": task + " *" * is_chosen_on(task),
            "samples": f"{own['samples'].median():,.0f}",
            "classes": own["truth"].iloc[0],
            "chosen": ", ".join(own["number"].map(str)),
            "interval": ", ".join(own["low"].map(str) + "-" + own["high"].map(str)),
            "median error": f"{own['error'].median():.0%}",
            "holds the truth": f"{own['holds'].sum()} of {len(own)}",
            "clear": f"{own['clear'].sum()} of {len(own)}",
            "seconds": f"{own['seconds'].median():.1f}",
        }
        for task, own in runs.groupby("task", sort=False)
    ]
    return PAGE.format(groups=table(groups, "lrrr"), tasks=table(tasks, "lrrllrrrr"))


def is_chosen_on(task: str) -> bool:
    """Whether constants were chosen on a task."""
    return task.startswith(CHOSEN_ON) or task.removesuffix(f", {SUBSET} classes").endswith(CHOSEN_ON)


if __name__ == "__main__":
    options = parser_of("Measure how well the number of clusters is chosen.").parse_args()
    domains = [one for domains in read_domains(options) for one in domains]
    jobs = (
        ({"task": task.name, "seed": seed}, partial(measure, task, seed))
        for seed in range(options.seeds)
        for domain in domains or [blobs(k, max(200, 20 * k), seed) for k in BLOBS]
        for task in tasks_of(domain, seed)
    )
    complete(__file__, jobs, page)
