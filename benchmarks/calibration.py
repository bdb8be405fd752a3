"""Accuracy of a service's labels for a key that is not calibrated, is calibrated, and for a whole folder.

A provider of the method `consensus` has learned from all domains but the client's, on frozen features.

    python benchmarks/calibration.py DATA ... [--weights ENCODER=FILE] [--cache DIR] [--seeds 5]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pandas as pd
from real_features import Domain, parser_of, read_domains
from records import Row, complete, spread, table

from ucds import SourceClustering, clustering_accuracy
from ucds.serving.labeller import ModelLabeller

SIZES = (0, 32, 64, 128, 256)
INTRODUCTION = """# What calibrating a key gains

Made by `python benchmarks/calibration.py` from `calibration.jsonl`; not edited by hand. Accuracy in percent
of a service's labels for a client's domain: mean +- standard deviation over seeds. A provider of the method
`consensus` has learned from the other domains. The numbers are those of the images of the calibration, drawn
at random; "none" is a key that is not calibrated, and "folder" what `ucds label` does with all images.
"""


def measure(domains: Sequence[Domain], client: Domain, seed: int) -> Iterator[Row]:
    """Train a provider on all domains but the client's, and label the client's with each mean."""
    others = [one for one in domains if one is not client]
    clusters = max(one.n_classes for one in domains)
    source = SourceClustering(clusters, random_state=seed, accelerator="cpu").fit(
        np.concatenate([one.vectors for one in others]),
        sample_domain=np.repeat([one.name for one in others], [len(one.vectors) for one in others]),
    )
    count, width = client.vectors.shape
    labeller = ModelLabeller(source.stored_, batch_size=count)
    order = np.random.default_rng(seed).permutation(count)
    for size in (*(size for size in SIZES if size <= count), count):
        own = np.full(width, np.nan, np.float32)
        seen = labeller.mean(client.vectors[order[:size]]) if size else own
        labels = labeller.label(client.vectors, np.tile(seen, (count, 1)))
        accuracy = round(clustering_accuracy(labels, client.classes), 4)
        yield {"domain": client.name, "seed": seed, "samples": size, "accuracy": accuracy}


def page(runs: Sequence[Row]) -> str:
    """Write the table of all runs."""
    rows = []
    for domain, own in pd.DataFrame(runs).groupby("domain", sort=False):
        by_size = (100 * own["accuracy"]).groupby(own["samples"]).agg(spread)
        row = {"client's domain": domain, "seeds": own["seed"].nunique(), "none": by_size[0]}
        rows.append(row | {size: by_size[size] for size in SIZES[1:]} | {"folder": by_size.iloc[-1]})
    return f"{INTRODUCTION}\n{table(rows, 'lrrrrrrr')}\n"


if __name__ == "__main__":
    options = parser_of("Measure what calibrating a key gains.").parse_args()
    jobs = (
        ({"domain": client.name, "seed": seed}, partial(measure, domains, client, seed))
        for domains in read_domains(options)
        for seed in range(options.seeds)
        for client in domains
    )
    complete(__file__, jobs, page)
