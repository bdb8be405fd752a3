"""Accuracy of a service's labels for a key that is not calibrated, is calibrated, and for a whole folder.

Each domain of a data set in turn is the client's; a provider of the method `consensus` has learned from the
others, on frozen features. A calibration is the mean of so many of the client's images, drawn at random. The
last column is what `ucds label` does with a whole folder. Ground truth is read for the scores only. Runs that
are recorded in `calibration.jsonl` are left out; the page is written anew from all of them each time.

    python benchmarks/calibration.py DATA ... [--backbone NAME --weights FILE] [--cache DIR] [--seeds 5]
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np
from real_features import Domain, parser_of, read_domains
from records import Records, grouped, line, spread

from ucds import SourceClustering
from ucds.math.metrics import score
from ucds.serving.labeller import Labels, Means, ModelLabeller

SIZES = (0, 32, 64, 128, 256)
INTRODUCTION = """# What calibrating a key gains

Made by `python benchmarks/calibration.py` from `calibration.jsonl`; not edited by hand. Accuracy in percent
of a service's labels for a client's domain: mean +- standard deviation over seeds. A provider of the method
`consensus` has learned from the other domains. The numbers are those of the images of the calibration, drawn
at random; "none" is a key that is not calibrated, and "folder" what `ucds label` does with all images.

| client's domain | seeds | none | 32 | 64 | 128 | 256 | folder |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""


@dataclass(frozen=True)
class Run:
    """Accuracy of one provider's labels; ``samples`` is the size of the calibration."""

    domain: str
    seed: int
    samples: int
    accuracy: float


def label_all(labeller: ModelLabeller, rows: Means, seen: Means) -> Labels:
    """Label all rows, in full batches, as seen from a mean."""
    size, found = labeller.batch_size, []
    means = np.broadcast_to(seen, (size, len(seen))).copy()
    for start in range(0, len(rows), size):
        batch = np.zeros((size, rows.shape[1]), np.float32)
        part = rows[start : start + size]
        batch[: len(part)] = part
        found.append(labeller.label(batch, means)[: len(part)])
    return np.concatenate(found)


def measure(domains: list[Domain], client: Domain, seed: int) -> Iterator[Run]:
    """Train a provider on all domains but the client's, and label the client's with each mean."""
    others = [one for one in domains if one is not client]
    clusters = int(max(one.classes.max() for one in domains)) + 1
    source = SourceClustering(clusters, random_state=seed, accelerator="cpu").fit(
        np.concatenate([one.vectors for one in others]),
        sample_domain=np.repeat([one.name for one in others], [len(one.vectors) for one in others]),
    )
    with tempfile.TemporaryDirectory() as folder:
        source.save(Path(folder) / "provider")
        labeller = ModelLabeller.load(Path(folder) / "provider", "cpu", 256)
    order = np.random.default_rng(seed).permutation(len(client.vectors))
    for size in (*(size for size in SIZES if size <= len(order)), len(order)):
        own = np.full(client.vectors.shape[1], np.nan, np.float32)
        seen = labeller.mean(client.vectors[order[:size]]) if size else own
        labels = label_all(labeller, client.vectors, seen)
        accuracy = score(labels, client.classes).accuracy
        yield Run(client.name, seed, size, round(accuracy, 4))


def row(domain: str, runs: Sequence[Run]) -> str:
    """Write the line of one domain."""
    sizes = (*SIZES, max(run.samples for run in runs))
    cells = [spread([100 * run.accuracy for run in runs if run.samples == size]) for size in sizes]
    return line([domain, str(len({run.seed for run in runs})), *cells])


def page(runs: Sequence[Run]) -> str:
    """Write the table of all runs."""
    return INTRODUCTION + "".join(row(*each) for each in grouped(runs, "domain").items())


def main() -> None:
    options = parser_of("Measure what calibrating a key gains.").parse_args()
    sets = groupby(read_domains(options), key=lambda domain: domain.name.split()[0])
    jobs = (
        ({"domain": client.name, "seed": seed}, partial(measure, domains, client, seed))
        for domains in [list(together) for _, together in sets]
        for seed in range(options.seeds)
        for client in domains
    )
    Records(__file__, Run).complete(jobs, page)


if __name__ == "__main__":
    main()
