"""What differential privacy costs a provider and its clients, and what attacks find in labels.

On frozen features of Office-31 and PACS. In the grid of epsilon a domain is the client's, and all others are
the provider's. In the audits half of the images of every domain are the provider's. Ground truth is read for
the scores only. In the grid the noise comes from NumPy, so that the figures can be had again; in the audits
it comes from OpenDP.

    python benchmarks/privacy.py DATA --measure labels --targets webcam,dslr [--weights FILE] [--cache DIR]
    python benchmarks/privacy.py DATA --measure clients --targets webcam,dslr
    python benchmarks/privacy.py DATA --measure audits --kinds "consensus;over-fitted"

Every cell is a line of privacy.jsonl, and privacy.md is written anew from all lines. Nothing is measured
without --measure.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from privacy_page import DELTA, KINDS, Audit, Cell, Rival, page
from real_features import Domain, parser_of, read_data_set
from records import Records

import ucds
from ucds.auditing.audit import Effort, audit
from ucds.math.arrays import FloatArray
from ucds.math.domain_transport import cluster_domains
from ucds.math.metrics import score
from ucds.math.privacy import rho_of
from ucds.math.private_prototypes import learn_private_prototypes
from ucds.math.spaces import unit_rows
from ucds.source.private import public_directions
from ucds.training.options import Compute, EncoderOptions

EFFORT = Effort(samples=1000, variants=6, boundary=30, shadows=16)
DEFAULT_KINDS = {"labels": KINDS[1:], "clients": KINDS, "audits": ("consensus",)}


@dataclass(frozen=True)
class DataSet:
    """Frozen features of the domains of a data set, and the encoder's directions."""

    name: str
    domains: Sequence[Domain]
    directions: NDArray[np.float64] | None

    @property
    def clusters(self) -> int:
        """Number of classes."""
        return max(int(one.classes.max()) for one in self.domains) + 1

    def split(self, target: str) -> tuple[list[Domain], Domain]:
        """The provider's domains and the client's."""
        (client,) = (one for one in self.domains if one.name == f"{self.name} {target}")
        return [one for one in self.domains if one is not client], client

    def take(self, mask: NDArray[np.bool_]) -> list[Domain]:
        """Some of the samples, of all domains one after the other."""
        ends = np.cumsum([len(one.vectors) for one in self.domains])[:-1]
        return [
            Domain(one.name, one.vectors[some], one.classes[some])
            for one, some in zip(self.domains, np.split(mask, ends), strict=True)
        ]


def seeded_noise(seed: int) -> Callable[[NDArray[np.float64], float], NDArray[np.float64]]:
    rng = np.random.default_rng([seed, 7])
    return lambda values, scale: values + scale * rng.standard_normal(values.shape)


def rho_for(epsilon: float) -> float:
    """The budget in zCDP; noise alone at epsilon 0, and none at infinity."""
    return {0.0: 1e-9, math.inf: math.inf}.get(epsilon) or rho_of(epsilon, DELTA)


def label_folder(client: Domain, axes: FloatArray, prototypes: FloatArray) -> NDArray[np.int64]:
    unit = unit_rows(client.vectors)
    return np.asarray(((unit - unit.mean(0)) @ axes @ prototypes).argmax(1), dtype=np.int64)


def make_labels(data: DataSet, target: str, seed: int, kind: str) -> NDArray[np.int64]:
    """Labels of a client by the default method ("consensus"), or with privacy ("epsilon E")."""
    source, client = data.split(target)
    vectors, rng = [one.vectors for one in source], np.random.default_rng(seed)
    if not kind.startswith("epsilon"):
        found = cluster_domains(vectors, data.clusters, rng)
        return label_folder(client, found.axes, found.prototypes)
    private = learn_private_prototypes(
        np.concatenate(vectors),
        np.repeat(np.arange(len(source)), [len(rows) for rows in vectors]),
        np.ones(sum(map(len, vectors))),
        data.clusters,
        rho_for(float(kind.split()[1])),
        seeded_noise(seed),
        rng,
        directions=data.directions,
    )
    return label_folder(client, private.axes, private.prototypes)


def measure_labels(data: DataSet, target: str, seed: int, kind: str) -> float:
    """Accuracy of a provider's labels in percent."""
    return accuracy(data.split(target)[1], make_labels(data, target, seed, kind))


def measure_client(data: DataSet, target: str, seed: int, kind: str) -> float:
    """Accuracy in percent of a client's own clustering with a provider's labels, or with none."""
    client = data.split(target)[1]
    labels = None if kind == "none" else make_labels(data, target, seed, kind)
    own = ucds.TargetClustering(data.clusters, random_state=seed, accelerator="cpu")
    return accuracy(client, own.fit(client.vectors, source_labels=labels).labels_)


def accuracy(client: Domain, labels: NDArray[np.int64]) -> float:
    return round(100 * score(client.classes, labels).accuracy, 2)


def run_audit(data: DataSet, kind: str, seed: int) -> dict[str, Any]:
    """Audit a model of half of the images of every domain.

    Kinds: "consensus", "PCD" and "epsilon E" are ways to train; "over-fitted" has few images and half as many
    prototypes; "other data" was trained on further images, so that nothing can be found out.
    """
    rng = np.random.default_rng([seed, 11])
    part = rng.integers(0, 3 if kind == "other data" else 2, sum(len(one.vectors) for one in data.domains))
    members, others = part == 0, part == 1
    if kind == "over-fitted":
        members &= rng.random(len(members)) < 400 / len(members)
    trained = data.take(part == 2 if kind == "other data" else members)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train(trained, data.clusters, kind, seed, folder)
        write_domains(data.take(members), folder / "members.npz")
        write_domains(data.take(others), folder / "others.npz")
        paths = [folder / name for name in ("run", "members.npz", "others.npz", "report.html")]
        compute = Compute("cpu", cache=folder)
        return audit(*paths, effort=EFFORT, seed=seed, compute=compute).to_dict()


def write_domains(domains: Sequence[Domain], path: Path) -> None:
    """Write an archive of embeddings with one array a domain."""
    arrays: dict[str, Any] = {one.name: one.vectors for one in domains}
    np.savez(path, **arrays)


def train(domains: Sequence[Domain], n_clusters: int, kind: str, seed: int, folder: Path) -> None:
    """Train the provider's model of one kind, in the run folder `run` below a folder."""
    settings: ucds.ConsensusSettings | ucds.PCDSettings = ucds.ConsensusSettings()
    if kind == "PCD":
        settings = ucds.PCDSettings(tune="head")
    elif kind == "over-fitted":  # no domain alone has as many images as there are prototypes
        vectors = np.concatenate([one.vectors for one in domains])
        settings, n_clusters = ucds.ConsensusSettings(starts=1), len(vectors) // 2
        domains = [Domain("all", vectors, np.zeros(len(vectors), np.int64))]
    elif kind.startswith("epsilon"):
        settings = ucds.ConsensusSettings(dp_epsilon=float(kind.split()[1]))
    write_domains(domains, folder / "trained.npz")
    inputs, options = folder / "trained.npz", ucds.RunOptions(seed)
    compute = Compute("cpu")
    ucds.train_source(inputs, folder / "run", n_clusters, settings=settings, options=options, compute=compute)


def run_cells(options: argparse.Namespace) -> Iterator[Cell | Audit]:
    """Measure each seed, target and kind, kind after kind of the same target and seed."""
    encoder = EncoderOptions(options.backbone, options.weights)
    kinds = options.kinds.split(";") if options.kinds else DEFAULT_KINDS[options.measure]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for path in options.data:
        domains = list(read_data_set(path, encoder, options.cache))
        data = DataSet(path.name, domains, public_directions(encoder.build()))
        for seed, target, kind in product(seeds, options.targets.split(","), kinds):
            if options.measure == "audits":
                yield Audit("audits", data.name, kind, seed, run_audit(data, kind, seed))
            else:
                measure = measure_labels if options.measure == "labels" else measure_client
                value = measure(data, target, seed, kind)
                yield Cell(options.measure, data.name, kind, seed, target, value)


def main() -> None:
    parser = parser_of("Measure what privacy costs, and what attacks find.")
    parser.add_argument("--measure", choices=list(DEFAULT_KINDS), help="what is measured; nothing by default")
    parser.add_argument("--targets", default="", help="domains that are the client's in turn")
    parser.add_argument("--kinds", help="kinds of the provider, separated by semicolons")
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    records = Records(__file__, Cell | Rival | Audit)
    for one in run_cells(options) if options.measure else ():
        records.add(one)
    records.write_page(page(records.runs))


if __name__ == "__main__":
    main()
