"""Accuracy of a service's labels for a key that is not calibrated, is calibrated, and for a whole folder.

Each domain of a data set in turn is the client's; a provider of the method `consensus` has learned from the
others, on frozen features. A calibration is the mean of so many of the client's images, drawn at random. The
last column is what `ucds label` does with a whole folder. Ground truth is read for the scores only. Runs that
are recorded in `calibration.jsonl` are left out; the page is written anew from all of them each time.

    python benchmarks/calibration.py DATA ... [--backbone NAME --weights FILE] [--cache DIR] [--seeds 5]
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import mean, stdev

import numpy as np
from real_features import Domain, parser_of, read_domains
from records import Records
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

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


def measure(domains: list[Domain], client: Domain, seed: int) -> list[Run]:
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
    runs = []
    for size in (*(size for size in SIZES if size <= len(order)), len(order)):
        own = np.full(client.vectors.shape[1], np.nan, np.float32)
        seen = labeller.mean(client.vectors[order[:size]]) if size else own
        labels = label_all(labeller, client.vectors, seen)
        accuracy = score(labels, client.classes).accuracy
        runs.append(Run(client.name, seed, size, round(accuracy, 4)))
    return runs


def row(domain: str, runs: list[Run]) -> str:
    """Write the line of one domain."""
    cells = [domain, str(len({run.seed for run in runs}))]
    for size in (*SIZES, max(run.samples for run in runs)):
        found = [100 * run.accuracy for run in runs if run.samples == size]
        cells.append(f"{mean(found):.1f} +- {stdev(found):.1f}" if len(found) > 1 else "missing")
    return f"| {' | '.join(cells)} |\n"


def main() -> None:
    parser = parser_of("Measure what calibrating a key gains.")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    options = parser.parse_args()
    records = Records(__file__, Run)
    known = {(run.domain, run.seed) for run in records.runs}
    with threadpool_limits(1):
        for _, together in groupby(read_domains(options), key=lambda domain: domain.name.split()[0]):
            domains = list(together)
            for seed in range(options.seeds):
                for client in domains:
                    if (client.name, seed) in known:
                        continue
                    for run in measure(domains, client, seed):
                        records.add(run)
    names = dict.fromkeys(run.domain for run in records.runs)
    rows = [row(name, [run for run in records.runs if run.domain == name]) for name in names]
    records.write_page(INTRODUCTION + "".join(rows))


if __name__ == "__main__":
    main()
