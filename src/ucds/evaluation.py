"""Scores a trained model against ground truth, which is read after training only."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from ucds.arguments import checked
from ucds.data.ground_truth import read_ground_truth
from ucds.data.sources import Source
from ucds.errors import InputError
from ucds.files import write_text_atomically
from ucds.math.metrics import ClusteringScores, score
from ucds.showing import shows
from ucds.training.centring import as_trained
from ucds.training.loaded import load
from ucds.training.options import Compute
from ucds.training.run_folder import place_of_output


@shows()
@dataclass(frozen=True)
class RunScores:
    """Agreement of a model's clusters with the classes of some data.

    Attributes:
        run: name of the run.
        samples: number of samples scored.
        n_clusters: number of clusters of the model, K.
        n_classes: number of classes in the data.
        overall: scores over all samples.
        domains: scores of each domain by itself, by name.
    """

    run: str
    samples: int
    n_clusters: int
    n_classes: int
    overall: ClusteringScores
    domains: dict[str, ClusteringScores]

    def summary(self) -> str:
        """Write the scores as a few lines of text."""
        lines = [
            f"{self.run}: {self.samples:,} samples, {self.n_clusters} clusters, {self.n_classes} classes"
        ]
        rows = {"all": self.overall} | (self.domains if len(self.domains) > 1 else {})
        width = max(map(len, rows))
        lines += [
            f"  {name:<{width}}  "
            f"accuracy {100 * found.accuracy:5.1f}  NMI {100 * found.nmi:5.1f}  ARI {100 * found.ari:5.1f}"
            for name, found in rows.items()
        ]
        return "\n".join(lines)


@checked
def evaluate(
    run: str | Path,
    data: Source,
    out: str | Path | None = None,
    *,
    compute: Compute | None = None,
) -> RunScores:
    """Score a run's model on samples in class folders; ``ucds evaluate`` does the same.

    Args:
        run: folder of a finished run, of either side.
        data: samples in class folders; for a source run, these lie in domain folders. For lists and tables,
            the folders in the paths count.
        out: JSON file to write; ``evaluation.json`` in the run folder if ``None``.
        compute: device, precision, cache and reporter; the defaults if ``None``.

    Raises:
        InputError: the samples have no class folders, or do not fit the model.
        DamagedFileError: a file of the run cannot be read.
        NoSpaceError: the scores cannot be written.
    """
    run = Path(run)
    path = place_of_output(run, "evaluation.json", out, (".json",), data)
    model = load(run, compute=compute)
    opened = model.open(data, model.role)
    samples = opened.samples
    truth = read_ground_truth(samples)
    if truth is None:
        what = data if isinstance(data, str | Path) else "the input"
        raise InputError(f"{what} has no class folders to score against, or files outside them")
    labels, _ = model.decide(as_trained(run, model, opened))
    report = RunScores(
        run=model.stored.card.name,
        samples=len(samples),
        n_clusters=model.n_clusters,
        n_classes=truth.n_classes,
        overall=score(labels, truth.classes),
        domains={
            name: score(labels[samples.domain == d], truth.classes[samples.domain == d])
            for d, name in enumerate(samples.domain_names)
        },
    )
    write_text_atomically(path, json.dumps(asdict(report), indent=2) + "\n")
    return report
