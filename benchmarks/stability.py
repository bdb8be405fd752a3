"""How far chance and rounding change the accuracy of the consensus method.

Each domain is clustered alone, with frozen features and the right number of clusters: with 20 seeds, and
with one seed but 20 draws of relative noise of 1e-7 on the features, which is about what another processor or
library version may change. Runs that are recorded in `stability.jsonl` are left out, so that the work can be
done in pieces; the page is written anew from all of them each time.

    python benchmarks/stability.py DATA ... [--weights ENCODER=FILE] [--cache DIR] [--seeds 20]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pandas as pd
from real_features import Domain, parser_of, read_domains
from records import Records, Row, line, spread

from ucds import TargetClustering, clustering_accuracy

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


def page(rows: Sequence[Row]) -> str:
    """Write the table of all runs."""
    text = INTRODUCTION
    for domain, runs in pd.DataFrame(rows).groupby("domain", sort=False):
        cells = [domain, f"{runs['samples'].iloc[0]:,}", str(runs["draw"].nunique())]
        for kind in KINDS:
            found = 100 * runs.loc[runs["kind"] == kind, "accuracy"]
            cells += [spread(found), f"{found.min():.1f}"]
        text += line(cells)
    return text


def main() -> None:
    options = parser_of("Measure how far chance and rounding change the accuracy.", seeds=20).parse_args()
    jobs = (
        ({"domain": one.name, "kind": kind, "draw": draw}, partial(measure, one, kind, draw))
        for domains in read_domains(options)
        for one in domains
        for draw in range(options.seeds)
        for kind in KINDS
    )
    Records(__file__, Row).complete(jobs, page)


if __name__ == "__main__":
    main()
