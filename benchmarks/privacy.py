"""What differential privacy costs a provider and its clients, and what attacks find in labels.

On frozen features of Office-31 and PACS. In the grid of epsilon a domain is the client's, and all others are
the provider's. In the audits half of the images of every domain are the provider's. Ground truth is read for
the scores only. In the grid the noise comes from NumPy, so that the figures can be had again; in the audits
it comes from OpenDP.

    python benchmarks/privacy.py prepare DATA --backbone NAME --weights FILE --out office31.npz
    python benchmarks/privacy.py labels office31.npz --targets webcam,dslr
    python benchmarks/privacy.py clients office31.npz --targets webcam,dslr
    python benchmarks/privacy.py audits office31.npz --kinds "consensus;over-fitted"
    python benchmarks/privacy.py page

Every cell is a line of privacy.jsonl. All commands but the first write privacy.md anew from all lines.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from privacy_page import DELTA, KINDS, Audit, Cell, Rival, page
from records import Records

import ucds
from ucds.auditing.audit import Effort, audit
from ucds.data.ground_truth import read_ground_truth
from ucds.data.sources import find_samples
from ucds.math.arrays import FloatArray
from ucds.math.domain_transport import cluster_domains
from ucds.math.metrics import score
from ucds.math.privacy import rho_of
from ucds.math.private_prototypes import learn_private_prototypes
from ucds.math.spaces import unit_rows
from ucds.source.private import public_directions
from ucds.training.features import frozen_features
from ucds.training.inputs import open_for_training
from ucds.training.options import Compute, EncoderOptions
from ucds.training.runtime import Runtime

EFFORT = Effort(samples=1000, variants=6, boundary=30, shadows=16)


@dataclass(frozen=True)
class Features:
    """Frozen features of a data set, with domains and classes as numbers, and the encoder's directions."""

    vectors: FloatArray
    domain: NDArray[np.int64]
    classes: NDArray[np.int64]
    names: tuple[str, ...]
    directions: NDArray[np.float64]

    def split(self, target: str) -> tuple[Features, Features]:
        """The provider's features and the client's."""
        chosen = self.domain == self.names.index(target)
        return self.take(~chosen), self.take(chosen)

    def take(self, mask: NDArray[np.bool_]) -> Features:
        """Some samples, their domains numbered anew."""
        present, domain = np.unique(self.domain[mask], return_inverse=True)
        names = tuple(self.names[d] for d in present)
        vectors, classes = self.vectors[mask], self.classes[mask]
        return Features(vectors, domain.astype(np.int64), classes, names, self.directions)


def prepare(options: argparse.Namespace) -> None:
    """Compute the features of a folder of domains once, and keep them with the classes."""
    compute = Compute("cpu", cache=options.cache)
    encoder = EncoderOptions(options.backbone, options.weights)
    inputs = open_for_training(find_samples(options.data, by_domain=True), encoder, compute)
    found = frozen_features(inputs.backbone, inputs.data, Runtime(compute), batch_size=64).samples
    truth = read_ground_truth(found)
    assert truth is not None
    vectors = found.read(np.arange(len(found))).numpy()
    names = np.array(found.domain_names)
    directions = public_directions(inputs.backbone)
    assert directions is not None
    np.savez(
        options.out,
        vectors=vectors,
        domain=found.domain,
        classes=truth.classes,
        names=names,
        directions=directions,
    )


@lru_cache
def load(path: Path) -> Features:
    with np.load(path) as file:
        vectors = np.asarray(file["vectors"], dtype=np.float32)
        names = tuple(map(str, file["names"]))
        return Features(vectors, file["domain"], file["classes"], names, file["directions"])


def clusters_in(features: Features) -> int:
    return int(features.classes.max()) + 1


def seeded_noise(seed: int) -> Callable[[NDArray[np.float64], float], NDArray[np.float64]]:
    rng = np.random.default_rng([seed, 7])
    return lambda values, scale: values + scale * rng.standard_normal(values.shape)


def rho_for(epsilon: float) -> float:
    """The budget in zCDP; noise alone at epsilon 0, and none at infinity."""
    return {0.0: 1e-9, math.inf: math.inf}.get(epsilon) or rho_of(epsilon, DELTA)


def private_labels(source: Features, client: Features, epsilon: float, seed: int) -> NDArray[np.int64]:
    """Labels of a client's folder, seen from its own mean, by a source with differential privacy."""
    found = learn_private_prototypes(
        source.vectors,
        source.domain,
        np.ones(len(source.vectors)),
        clusters_in(client),
        rho_for(epsilon),
        seeded_noise(seed),
        np.random.default_rng(seed),
        directions=source.directions,
    )
    return label_folder(client, found.axes, found.prototypes)


def label_folder(client: Features, axes: FloatArray, prototypes: FloatArray) -> NDArray[np.int64]:
    unit = unit_rows(client.vectors)
    return np.asarray(((unit - unit.mean(0)) @ axes @ prototypes).argmax(1), dtype=np.int64)


def make_labels(path: Path, target: str, seed: int, kind: str) -> NDArray[np.int64]:
    """Labels of a client by the default method ("consensus"), or with privacy ("epsilon E")."""
    source, client = load(path).split(target)
    if kind.startswith("epsilon"):
        return private_labels(source, client, float(kind.split()[1]), seed)
    domains = [source.vectors[source.domain == d] for d in range(len(source.names))]
    found = cluster_domains(domains, clusters_in(client), np.random.default_rng(seed))
    return label_folder(client, found.axes, found.prototypes)


def measure_labels(path: Path, target: str, seed: int, kind: str) -> float:
    """Accuracy of a provider's labels in percent."""
    return accuracy(load(path).split(target)[1], make_labels(path, target, seed, kind))


def measure_client(path: Path, target: str, seed: int, kind: str) -> float:
    """Accuracy in percent of a client's own clustering with a provider's labels, or with none."""
    client = load(path).split(target)[1]
    labels = None if kind == "none" else make_labels(path, target, seed, kind)
    own = ucds.TargetClustering(clusters_in(client), random_state=seed, accelerator="cpu")
    return accuracy(client, own.fit(client.vectors, source_labels=labels).labels_)


def accuracy(client: Features, labels: NDArray[np.int64]) -> float:
    return 100 * score(client.classes, labels).accuracy


def run_audit(features: Features, kind: str, seed: int) -> dict[str, Any]:
    """Audit a model of half of the images of every domain.

    Kinds: "consensus", "PCD" and "epsilon E" are ways to train; "over-fitted" has few images and half as many
    prototypes; "other data" was trained on further images, so that nothing can be found out.
    """
    rng = np.random.default_rng([seed, 11])
    part = rng.integers(0, 3 if kind == "other data" else 2, len(features.vectors))
    members, others = part == 0, part == 1
    if kind == "over-fitted":
        members &= rng.random(len(members)) < 400 / len(members)
    trained = features.take(part == 2 if kind == "other data" else members)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train(trained, kind, seed, folder)
        write_domains(features.take(members), folder / "members.npz")
        write_domains(features.take(others), folder / "others.npz")
        paths = [folder / name for name in ("run", "members.npz", "others.npz", "report.html")]
        compute = Compute("cpu", cache=folder)
        return audit(*paths, effort=EFFORT, seed=seed, compute=compute).to_dict()


def write_domains(features: Features, path: Path) -> None:
    """Write an archive of embeddings with one array a domain."""
    arrays: dict[str, Any] = {
        name: features.vectors[features.domain == d] for d, name in enumerate(features.names)
    }
    np.savez(path, **arrays)


def train(features: Features, kind: str, seed: int, folder: Path) -> None:
    """Train the provider's model of one kind, in the run folder `run` below a folder."""
    n_clusters = clusters_in(features)
    settings: ucds.ConsensusSettings | ucds.PCDSettings = ucds.ConsensusSettings()
    if kind == "PCD":
        settings = ucds.PCDSettings(tune="head")
    elif kind == "over-fitted":  # no domain alone has as many images as there are prototypes
        settings, n_clusters = ucds.ConsensusSettings(starts=1), len(features.vectors) // 2
        features = replace(features, domain=np.zeros_like(features.domain), names=("all",))
    elif kind.startswith("epsilon"):
        settings = ucds.ConsensusSettings(dp_epsilon=float(kind.split()[1]))
    write_domains(features, folder / "trained.npz")
    inputs, options = folder / "trained.npz", ucds.RunOptions(seed)
    compute = Compute("cpu")
    ucds.train_source(inputs, folder / "run", n_clusters, settings=settings, options=options, compute=compute)


def cells_of(options: argparse.Namespace) -> Iterator[tuple[int, str, str]]:
    """List seed, target and kind of each cell, kind after kind of the same target and seed."""
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    return product(seeds, options.targets.split(","), options.kinds.split(";"))


def run_cells(options: argparse.Namespace) -> Iterator[Cell]:
    """Measure labels or clients."""
    measure = measure_labels if options.command == "labels" else measure_client
    for seed, target, kind in cells_of(options):
        value = round(measure(options.features, target, seed, kind), 2)
        yield Cell(options.command, options.features.stem, kind, seed, target, value)


def run_audits(options: argparse.Namespace) -> Iterator[Audit]:
    features = load(options.features)
    for seed, _, kind in cells_of(options):
        yield Audit("audits", options.features.stem, kind, seed, run_audit(features, kind, seed))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("prepare")
    making.add_argument("data", type=Path)
    making.add_argument("--backbone", required=True)
    making.add_argument("--weights", required=True)
    making.add_argument("--cache", type=Path)
    making.add_argument("--out", type=Path, required=True)
    for name, measure, kinds in (
        ("labels", run_cells, KINDS[1:]),
        ("clients", run_cells, KINDS),
        ("audits", run_audits, ("consensus",)),
    ):
        cells = commands.add_parser(name)
        cells.add_argument("features", type=Path)
        cells.add_argument("--targets", default="")
        cells.add_argument("--kinds", default=";".join(kinds))
        cells.add_argument("--seeds", type=int, default=5)
        cells.add_argument("--first-seed", type=int, default=0)
        cells.set_defaults(measure=measure)
    commands.add_parser("page").set_defaults(measure=lambda _: ())
    options = parser.parse_args()
    if options.command == "prepare":
        prepare(options)
        return
    records = Records(__file__, Cell | Rival | Audit)
    for one in options.measure(options):
        records.add(one)
    records.write_page(page(records.runs))


if __name__ == "__main__":
    main()
