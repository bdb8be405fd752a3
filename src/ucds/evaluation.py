"""Scores a trained model against ground truth, which is read after training only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ucds.data.ground_truth import read_ground_truth
from ucds.data.samples import Samples
from ucds.data.sources import Source
from ucds.data.vectors import read_arrays
from ucds.errors import DamagedFileError, InputError
from ucds.files import write_text_atomically
from ucds.math.metrics import ClusteringScores, score
from ucds.training.loaded import load
from ucds.training.options import Compute


@dataclass(frozen=True)
class Oracle:
    """The evaluation whose model ground truth would have chosen; it is shown and never used.

    Attributes:
        stage: name of the evaluation's stage.
        evaluation: number of the evaluation in its stage, from 1.
        accuracy: clustering accuracy of its predictions.
        snapshots: number of evaluations that it was chosen from.
        samples: number of samples scored; in a source run those that were set aside.
    """

    stage: str
    evaluation: int
    accuracy: float
    snapshots: int
    samples: int


def find_oracle(run: Path, samples: Samples, classes: NDArray[np.int64]) -> Oracle | None:
    """Find the kept predictions of a run that agree best with ground truth.

    Args:
        run: run folder.
        samples: samples with known classes.
        classes: ``(n,)`` classes of the samples.

    Returns:
        The best evaluation; ``None`` when the run kept no predictions of these samples.

    Raises:
        DamagedFileError: the kept predictions cannot be read.
    """
    path = run / "evaluations.npz"
    if not path.exists():
        return None
    # By content too: another data set may well have files of the same names.
    position = {known: i for i, known in enumerate(zip(samples.ids, samples.keys, strict=True))}
    try:
        stored = read_arrays(path)
        seen = zip(stored["ids"].tolist(), map(bytes, stored["keys"]), strict=True)
        rows = [(row, position[known]) for row, known in enumerate(seen) if known in position]
        snapshots = {key: labels for key, labels in stored.items() if key.endswith("/labels")}
    except (OSError, DamagedFileError, KeyError, ValueError, TypeError):  # TypeError: of no dimension
        raise DamagedFileError(f"{path} is damaged") from None
    if not rows:
        return None
    kept, known = (np.array(column) for column in zip(*rows, strict=True))
    return best_snapshot({key: labels[:, kept] for key, labels in snapshots.items()}, classes[known])


def best_snapshot(snapshots: Mapping[str, NDArray[np.int64]], classes: NDArray[np.int64]) -> Oracle:
    """Choose the most accurate of the predictions ``(evaluations, n)`` of several stages."""
    scored = [
        (score(labels, classes).accuracy, key.removesuffix("/labels"), place)
        for key, stage in snapshots.items()
        for place, labels in enumerate(stage, start=1)
    ]
    accuracy, stage, place = max(scored)
    samples = next(iter(snapshots.values())).shape[1]
    return Oracle(stage, place, accuracy, len(scored), samples)


@dataclass(frozen=True)
class Report:
    """Agreement of a model's clusters with the classes of some data.

    Attributes:
        run: name of the run.
        samples: number of samples scored.
        n_clusters: number of clusters of the model, K.
        n_classes: number of classes in the data.
        overall: scores over all samples.
        domains: scores of each domain by itself, by name.
        oracle: evaluation that ground truth would have chosen; ``None`` if the run kept none of this data.
    """

    run: str
    samples: int
    n_clusters: int
    n_classes: int
    overall: ClusteringScores
    domains: dict[str, ClusteringScores]
    oracle: Oracle | None

    def to_dict(self) -> dict[str, Any]:
        """Return the entries as JSON types."""
        return asdict(self)

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
        if self.oracle is not None:
            lines.append(
                f"  oracle (not used): {100 * self.oracle.accuracy:.1f} on {self.oracle.samples:,} samples, "
                f"which ground truth would have chosen from {self.oracle.snapshots} snapshots: "
                f"evaluation {self.oracle.evaluation} of {self.oracle.stage}"
            )
        return "\n".join(lines)


def evaluate(
    run: str | Path,
    data: Source,
    out: str | Path | None = None,
    *,
    compute: Compute | None = None,
) -> Report:
    """Score a run's model on samples in class folders; ``ucds evaluate`` does the same.

    Args:
        run: folder of a finished run, of either side.
        data: images in class folders; for a source run, inside one folder a domain. Lists and tables of paths
            count the folders in the paths.
        out: JSON file to write; ``evaluation.json`` in the run folder if ``None``.
        compute: device, precision, cache and reporter; the defaults if ``None``.

    Raises:
        InputError: the samples have no class folders, or do not fit the model.
        DamagedFileError: a file of the run cannot be read.
        NoSpaceError: the scores cannot be written.
    """
    run = Path(run)
    model = load(run, compute=compute)
    opened = model.open(data, model.role)
    samples = opened.samples
    truth = read_ground_truth(samples)
    if truth is None:
        raise InputError(f"{data} has no class folders to score against")
    labels, _ = model.decide(opened)
    report = Report(
        run=model.stored.card.name,
        samples=len(samples),
        n_clusters=model.n_clusters,
        n_classes=truth.n_classes,
        overall=score(labels, truth.classes),
        domains={
            name: score(labels[samples.domain == d], truth.classes[samples.domain == d])
            for d, name in enumerate(samples.domain_names)
        },
        oracle=find_oracle(run, samples, truth.classes),
    )
    path = run / "evaluation.json" if out is None else Path(out)
    write_text_atomically(path, json.dumps(report.to_dict(), indent=2) + "\n")
    return report
