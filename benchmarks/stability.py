"""How far chance and rounding change the accuracy of the consensus method.

Each domain is clustered alone, with frozen features and the right number of clusters: with 20 seeds, and
with one seed but 20 draws of relative noise of 1e-7 on the features, which is about what another processor or
library version may change. Runs that are recorded in `stability.jsonl` are left out, so that the work can be
done in pieces; the page is written anew from all of them each time.

    python benchmarks/stability.py DATA ... [--backbone NAME --weights FILE] [--cache DIR] [--draws 20]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean, stdev

import numpy as np
from real_features import Domain, add_options, read_domains
from records import Records
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from ucds import TargetClustering
from ucds.math.metrics import score

NOISE = 1e-7
INTRODUCTION = """# How far chance and rounding change the accuracy

Made by `python benchmarks/stability.py` from `stability.jsonl`; not edited by hand. Each domain is clustered
alone, on frozen features, with the right number of clusters. Accuracy in percent: mean +- standard deviation,
and the least. *Seeds*: so many seeds. *Noise*: seed 0, with so many draws of relative noise of 1e-7 on the
features, which is about what another processor or library version changes.

| domain | samples | runs of each | seeds | worst seed | noise | worst noise |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""


@dataclass(frozen=True)
class Run:
    """One clustering of a domain: ``kind`` is what differs from draw to draw."""

    domain: str
    kind: str
    draw: int
    samples: int
    accuracy: float


def by_seed(domain: Domain, clusters: int, draw: int) -> np.ndarray:
    """Cluster by the consensus method with a seed."""
    return TargetClustering(clusters, random_state=draw, accelerator="cpu").fit(domain.vectors).labels_


def by_rounding(domain: Domain, clusters: int, draw: int) -> np.ndarray:
    """Cluster by the consensus method with seed 0, and features that are rounded otherwise."""
    noise = NOISE * np.random.default_rng(draw).standard_normal(domain.vectors.shape)
    vectors = (domain.vectors * (1 + noise)).astype(np.float32)
    return TargetClustering(clusters, random_state=0, accelerator="cpu").fit(vectors).labels_


KINDS: dict[str, Callable[[Domain, int, int], np.ndarray]] = {
    "seed": by_seed,
    "rounding": by_rounding,
}


def row(domain: str, runs: list[Run]) -> str:
    """Write the line of one domain."""
    cells = [domain, f"{runs[0].samples:,}", str(len({run.draw for run in runs}))]
    for kind in KINDS:
        found = [100 * run.accuracy for run in runs if run.kind == kind]
        cells.append(f"{mean(found):.1f} +- {stdev(found):.1f}" if len(found) > 1 else "missing")
        cells.append(f"{min(found):.1f}" if found else "missing")
    return f"| {' | '.join(cells)} |\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how far chance and rounding change the accuracy.")
    add_options(parser)
    parser.add_argument("--draws", type=int, default=20, help="number of draws of each kind")
    options = parser.parse_args()
    records = Records(__file__, Run)
    known = {(run.domain, run.kind, run.draw) for run in records.runs}
    with threadpool_limits(1):
        for domain in read_domains(options):
            for draw in range(options.draws):
                for kind, cluster in KINDS.items():
                    if (domain.name, kind, draw) in known:
                        continue
                    found = cluster(domain, len(np.unique(domain.classes)), draw)
                    accuracy = score(found, domain.classes).accuracy
                    records.add(Run(domain.name, kind, draw, len(found), round(accuracy, 4)))
    names = dict.fromkeys(run.domain for run in records.runs)
    rows = [row(name, [run for run in records.runs if run.domain == name]) for name in names]
    records.write_page(INTRODUCTION + "".join(rows))


if __name__ == "__main__":
    main()
