"""How far chance and rounding change the accuracy of the consensus method.

Each domain is clustered alone, with frozen features and the right number of clusters: with 20 seeds, and
with one seed but 20 draws of relative noise of 1e-7 on the features, which is about what another processor or
library version may change. Runs that are recorded in `stability.jsonl` are left out, so that the work can be
done in pieces; the page is written anew from all of them each time.

    python benchmarks/stability.py DATA ... [--backbone NAME --weights FILE] [--cache DIR] [--seeds 20]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from real_features import Domain, parser_of, read_domains
from records import Records, grouped, line, spread

from ucds import TargetClustering
from ucds.math.metrics import clustering_accuracy

NOISE = 1e-7
INTRODUCTION = """# How far chance and rounding change the accuracy

Made by `python benchmarks/stability.py` from `stability.jsonl`; not edited by hand. Each domain is clustered
alone, on frozen features, with the right number of clusters. Accuracy in percent: mean +- standard deviation,
and the least. *Seeds*: so many seeds. *Noise*: seed 0, with so many draws of relative noise of 1e-7 on the
features, which is about what another processor or library version changes.

| domain | samples | runs of each | seeds | worst seed | noise | worst noise |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""
KINDS = ("seed", "rounding")


@dataclass(frozen=True)
class Run:
    """One clustering of a domain: ``kind`` is what differs from draw to draw."""

    domain: str
    kind: str
    draw: int
    samples: int
    accuracy: float


def measure(domain: Domain, kind: str, draw: int) -> Iterator[Run]:
    """Cluster a domain with a seed of its own, or with seed 0 and features that are rounded otherwise."""
    vectors, seed = domain.vectors, draw
    if kind == "rounding":
        noise = NOISE * np.random.default_rng(draw).standard_normal(vectors.shape)
        vectors, seed = (vectors * (1 + noise)).astype(np.float32), 0
    estimator = TargetClustering(len(np.unique(domain.classes)), random_state=seed, accelerator="cpu")
    accuracy = clustering_accuracy(estimator.fit(vectors).labels_, domain.classes)
    yield Run(domain.name, kind, draw, len(vectors), round(accuracy, 4))


def row(domain: str, runs: Sequence[Run]) -> str:
    """Write the line of one domain."""
    cells = [domain, f"{runs[0].samples:,}", str(len({run.draw for run in runs}))]
    for kind in KINDS:
        found = [100 * run.accuracy for run in runs if run.kind == kind]
        cells += [spread(found), f"{min(found):.1f}" if found else "missing"]
    return line(cells)


def page(runs: Sequence[Run]) -> str:
    """Write the table of all runs."""
    return INTRODUCTION + "".join(row(*each) for each in grouped(runs, "domain").items())


def main() -> None:
    options = parser_of("Measure how far chance and rounding change the accuracy.", seeds=20).parse_args()
    jobs = (
        ({"domain": one.name, "kind": kind, "draw": draw}, partial(measure, one, kind, draw))
        for one in read_domains(options)
        for draw in range(options.seeds)
        for kind in KINDS
    )
    Records(__file__, Run).complete(jobs, page)


if __name__ == "__main__":
    main()
