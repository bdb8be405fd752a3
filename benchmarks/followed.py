"""How often clusters are said to follow a column, where it is the domain, and where it is random.

    python benchmarks/followed.py DATA ... [--weights ENCODER=FILE] [--cache DIR] [--seeds 4]

DATA is a data set's folder, with one folder a domain and in it one a class. Pairs of its domains are mixed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from real_features import Domain, parser_of, read_domains
from records import Row, complete, table

from ucds.config import ConsensusSettings
from ucds.data.about import About
from ucds.target.agreement import agree
from ucds.target.followed import what_is_followed

MOST = 300  # images of a domain that are drawn
RIGHT = (1.0, 0.7, 0.6)
DRAWS, POWER_DRAWS = 50, 20  # of a seed
LONGEST = 30  # images of a group
PAGE = """# What clusters are said to follow

Made by `python benchmarks/followed.py` from `followed.jsonl`; not edited by hand. Two domains of a data set,
{most} images of each at most, are clustered together into as many clusters as there are classes. What is
tested, and how: [docs/following.md](../docs/following.md).

**Followed** is the share of the draws in which the clusters are said to follow the column. The column is the
domain of each image; for 70 and 60 % it is right for so many images, and the other domain for the rest. The
effect is that of the whole domain.

**Warnings** counts the draws in which any of four random columns is said to be followed: categories of 2 and
of 10 values, numbers, and dates. In the first column of counts each image has values of its own. In the
others the images of a group, up to {longest} that follow each other in one class folder, have the same
values; the last one does not name the groups. A test with a rate of 5 % gives at most 17 warnings in 200
draws with a probability of 98 %.

{tasks}
"""


def tables_of(rng: np.random.Generator, groups: NDArray[np.int64]) -> About:
    """Draw four columns that are constant within groups and otherwise random."""
    count = int(groups.max()) + 1
    days = np.datetime64("2024-01-01") + rng.integers(900, size=count)
    columns = {
        "site": rng.choice(2, count, p=[0.3, 0.7]),
        "device": rng.integers(10, size=count),
        "age": rng.normal(50, 15, count).round(1),
        "date": days,
    }
    return {name: [str(values[group]) for group in groups] for name, values in columns.items()}


def runs_of(rng: np.random.Generator, classes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cut the images of each class, in their order, into groups of 1 to some thirty images."""
    groups, last, left = np.empty(len(classes), np.int64), -1, 0
    for place in np.argsort(classes, kind="stable"):
        if left == 0:
            last, left = last + 1, int(rng.integers(1, LONGEST + 1))
        groups[place], left = last, left - 1
    return groups


def is_any_followed(clusters: NDArray[np.int64], about: About, group: str | None = None) -> bool:
    """Whether any column is said to be followed."""
    return any(one.is_followed for one in what_is_followed(clusters, about, group))


def measure(one: Domain, other: Domain, seed: int) -> Iterator[Row]:
    """Cluster two domains together, and test columns of every kind."""
    rng = np.random.default_rng(seed)
    chosen = [np.sort(rng.permutation(len(each.vectors))[:MOST]) for each in (one, other)]
    pairs = list(zip((one, other), chosen, strict=True))
    vectors = np.concatenate([each.vectors[rows] for each, rows in pairs])
    classes = np.concatenate([each.classes[rows] for each, rows in pairs])
    domain = np.repeat([0, 1], [len(rows) for rows in chosen])
    clusters = agree(vectors, int(classes.max()) + 1, ConsensusSettings(), rng).partition
    row: Row = {"pair": f"{one.name} and {other.name.split()[-1]}", "seed": seed, "samples": len(domain)}
    for right in RIGHT:
        found = []
        for _ in range(1 if right == 1 else POWER_DRAWS):
            wrong = rng.permutation(len(domain)) >= round(right * len(domain))
            found += what_is_followed(clusters, {"domain": [str(value) for value in domain ^ wrong]})
        row[f"{right:.0%}"] = round(float(np.mean([each.is_followed for each in found])), 3)
        row[f"effect {right:.0%}"] = round(float(np.mean([each.effect for each in found])), 3)
    warnings = np.zeros(3, int)
    for _ in range(DRAWS):
        groups = runs_of(rng, classes + domain * (int(classes.max()) + 1))
        grouped = tables_of(rng, groups) | {"patient": [str(group) for group in groups]}
        warnings[0] += is_any_followed(clusters, tables_of(rng, np.arange(len(domain))))
        warnings[1] += is_any_followed(clusters, grouped, "patient")
        del grouped["patient"]
        warnings[2] += is_any_followed(clusters, grouped)
    yield row | dict(zip(("random", "in groups", "groups unnamed"), warnings.tolist(), strict=True))


def page(rows: Sequence[Row]) -> str:
    """Write the table of all runs."""
    runs = pd.DataFrame(rows)
    tasks = [
        {
            "domains": pair,
            "images": f"{own['samples'].max():,}",
            "effect": f"{own['effect 100%'].mean():.2f}",
            "followed: domain": f"{own['100%'].mean():.0%}",
            "right for 70 %": f"{own['70%'].mean():.0%}",
            "for 60 %": f"{own['60%'].mean():.0%}",
            "draws": DRAWS * len(own),
            "warnings: random": own["random"].sum(),
            "in groups": own["in groups"].sum(),
            "groups not named": own["groups unnamed"].sum(),
        }
        for pair, own in (*runs.groupby("pair", sort=False), ("all", runs))
    ]
    return PAGE.format(most=MOST, longest=LONGEST, tasks=table(tasks, "lrrrrrrrrr"))


if __name__ == "__main__":
    options = parser_of("Measure what clusters are said to follow.", seeds=4).parse_args()
    complete(
        __file__,
        (
            (
                {"pair": f"{one.name} and {other.name.split()[-1]}", "seed": seed},
                partial(measure, one, other, seed),
            )
            for seed in range(options.seeds)
            for domains in read_domains(options)
            for one, other in combinations(domains, 2)
        ),
        page,
    )
