"""How far chance and rounding change the accuracy of the consensus method.

Each domain is clustered with 10 seeds, and with one seed but 10 draws of noise on its features.

    python benchmarks/stability.py DATA ... [--weights ENCODER=FILE] [--cache DIR] [--seeds 10]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pandas as pd
from real_features import Domain, parser_of, read_domains
from records import Row, complete, spread, table

from ucds import TargetClustering, clustering_accuracy

NOISE = 1e-7
INTRODUCTION = """# How far chance and rounding change the accuracy

Made by `python benchmarks/stability.py` from `stability.jsonl`; not edited by hand. Each domain is clustered
alone, on frozen features, with the right number of clusters. Accuracy in percent: mean +- standard deviation,
and the least. *Seeds*: so many seeds. *Noise*: seed 0, with so many draws of relative noise of 1e-7 on the
features, which is about what another processor or library version changes.
"""
KINDS = {"seed": ("seeds", "worst seed"), "rounding": ("noise", "worst noise")}
"""Titles of the columns of mean and minimum, by what is drawn."""


def measure(domain: Domain, kind: str, draw: int) -> Iterator[Row]:
    """Cluster a domain with a seed of its own, or with seed 0 and features that are rounded otherwise."""
    vectors, seed = domain.vectors, draw
    if kind == "rounding":
        noise = NOISE * np.random.default_rng(draw).standard_normal(vectors.shape)
        vectors, seed = (vectors * (1 + noise)).astype(np.float32), 0
    estimator = TargetClustering(len(np.unique(domain.classes)), random_state=seed, accelerator="cpu")
    accuracy = round(clustering_accuracy(estimator.fit(vectors).labels_, domain.classes), 4)
    run = {"domain": domain.name, "kind": kind, "draw": draw}
    yield run | {"samples": len(vectors), "accuracy": accuracy}


def page(runs: Sequence[Row]) -> str:
    """Write the table of all runs."""
    rows = []
    for domain, own in pd.DataFrame(runs).groupby("domain", sort=False):
        samples, draws = own["samples"].iloc[0], own["draw"].nunique()
        rows.append({"domain": domain, "samples": f"{samples:,}", "runs of each": draws})
        for kind, (middle, worst) in KINDS.items():
            found = 100 * own.loc[own["kind"] == kind, "accuracy"]
            rows[-1] |= {middle: spread(found), worst: f"{found.min():.1f}"}
    return f"{INTRODUCTION}\n{table(rows, 'lrrrrrr')}\n"


if __name__ == "__main__":
    options = parser_of("Measure how far chance and rounding change the accuracy.", seeds=10).parse_args()
    jobs = (
        ({"domain": one.name, "kind": kind, "draw": draw}, partial(measure, one, kind, draw))
        for domains in read_domains(options)
        for one in domains
        for draw in range(options.seeds)
        for kind in KINDS
    )
    complete(__file__, jobs, page)
