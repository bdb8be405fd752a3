"""What differential privacy costs a provider and its clients, and what attacks find in labels.

In the grid of epsilon a domain is the client's, and all others are the provider's. There the noise comes from
NumPy, so that the figures can be had again; in the audits it comes from OpenDP.

    python benchmarks/privacy.py DATA --measure labels --targets webcam,dslr [--weights ENCODER=FILE]
    python benchmarks/privacy.py DATA --measure clients --targets webcam,dslr [--cache DIR] [--seeds 5]
    python benchmarks/privacy.py DATA --measure audits --kinds "consensus;over-fitted"
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from real_features import Domain, encoders_of, parser_of, read_domains
from records import Row, complete, table

import ucds
from ucds.auditing.audit import Effort, audit
from ucds.data.samples import Samples, subset
from ucds.data.vectors import VectorSamples
from ucds.math.arrays import DoubleArray, FloatArray, IntArray
from ucds.math.domain_transport import SharedPrototypes, cluster_domains
from ucds.math.private_prototypes import learn_private_prototypes
from ucds.math.spaces import centre
from ucds.source.private import GaussianNoise, public_directions

DELTA = 1e-5
EPSILONS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, math.inf)
KINDS = ("none", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS), "consensus")
DEFAULT_KINDS = {"labels": KINDS[1:], "clients": KINDS, "audits": ("consensus",)}
ATTACKS = ("agreement", "boundary", "shadow clusterers", "domain (25 images)")
EFFORT = Effort(samples=1000, variants=6, boundary=30, shadows=16)

PAGE = """# What labels give away, and what privacy costs

Written by `python benchmarks/privacy.py` from `privacy.jsonl`. Frozen features of MobileNetV2, delta
{delta}.

## Accuracy of a provider's labels

Percent, mean +- deviation (seeds); a client's folder, seen from its own mean. "epsilon 0" is noise alone,
"epsilon inf" is the private algorithm without noise, and "consensus" is the provider's default method,
without privacy. The algorithm was chosen on webcam and photo; the other targets were scored once.
[Other private methods](trials.md#other-private-methods) were tried on four targets.

{labels}

## Accuracy of a client's own clustering with these labels

The client uses the method `consensus`, whose guard may set the labels aside; "none" asks nobody.

{clients}

## What attacks find

Half of the images of every domain are members. "over-fitted" has about 200 members and half as many
prototypes; "other data" was trained on a further third of the images, so that nothing can be found out. Area
under the curve: mean over the seeds, in brackets the lowest and highest end of the seeds' 95 % intervals.

{audits}

## What a copy costs

Percent of other samples on which a student agrees with the provider, by number of bought labels, mean +-
deviation (seeds). "all" are 667 labels, two thirds of the samples that the attack has.

{prices}
"""


def make_labels(
    vectors: Sequence[FloatArray],
    client: FloatArray,
    n_clusters: int,
    run: Row,
    directions: DoubleArray | None,
) -> IntArray | None:
    """Labels of a client by the default method ("consensus"), or with privacy ("epsilon E"), or none."""
    kind, rng = run["kind"], np.random.default_rng(run["seed"])
    noise = np.random.default_rng([run["seed"], 7])
    if kind == "none":
        return None
    found: SharedPrototypes
    if kind == "consensus":
        found = cluster_domains(vectors, n_clusters, rng)
    else:
        epsilon = float(kind.split()[1])
        found = learn_private_prototypes(
            np.concatenate(vectors),
            np.repeat(np.arange(len(vectors)), [len(rows) for rows in vectors]),
            np.ones(sum(map(len, vectors))),
            n_clusters,
            # In zCDP: noise alone at epsilon 0, and none at infinity.
            {0.0: 1e-9, math.inf: math.inf}.get(epsilon) or GaussianNoise().rho_of(epsilon, DELTA),
            lambda values, scale: values + scale * noise.standard_normal(values.shape),
            rng,
            directions=directions,
        )
    return np.asarray((centre(client) @ found.axes @ found.prototypes).argmax(1), dtype=np.int64)


def measure_accuracy(domains: Sequence[Domain], run: Row, directions: DoubleArray | None) -> Iterator[Row]:
    """Accuracy in percent of a provider's labels, or of a client's own clustering with them or with none."""
    (client,) = (one for one in domains if one.name == f"{run['dataset']} {run['target']}")
    vectors = [one.vectors for one in domains if one is not client]
    n_clusters = max(one.n_classes for one in domains)
    labels: ArrayLike | None = make_labels(vectors, client.vectors, n_clusters, run, directions)
    if run["what"] == "clients":
        own = ucds.TargetClustering(n_clusters, random_state=run["seed"], accelerator="cpu")
        labels = own.fit(client.vectors, source_labels=labels).labels_
    assert labels is not None, "no labels can be right"
    yield run | {"accuracy": round(100 * ucds.clustering_accuracy(client.classes, labels), 2)}


def measure_audit(domains: Sequence[Domain], run: Row) -> Iterator[Row]:
    """Audit a model of half of the images of every domain.

    Kinds: "consensus", "PCD" and "epsilon E" are ways to train; "over-fitted" has few images and half as many
    prototypes; "other data" was trained on further images, so that nothing can be found out.
    """
    kind, seed, n_clusters = run["kind"], run["seed"], max(one.n_classes for one in domains)
    rng = np.random.default_rng([seed, 11])
    samples = VectorSamples.from_arrays({one.name: one.vectors for one in domains})
    part = rng.integers(0, 3 if kind == "other data" else 2, len(samples))
    members, others = part == 0, part == 1
    if kind == "over-fitted":
        members &= rng.random(len(members)) < 400 / len(members)
    trained: Samples = subset(samples, np.flatnonzero(part == 2 if kind == "other data" else members))
    settings: ucds.ConsensusSettings | ucds.PCDSettings = ucds.ConsensusSettings()
    if kind == "PCD":
        settings = ucds.PCDSettings(tune="head")
    elif kind == "over-fitted":  # no domain alone has as many images as there are prototypes
        settings, n_clusters = ucds.ConsensusSettings(starts=1), len(trained) // 2
        trained = VectorSamples(trained.read(np.arange(len(trained))))
    elif kind.startswith("epsilon"):
        settings = ucds.ConsensusSettings(dp_epsilon=float(kind.split()[1]))
    with tempfile.TemporaryDirectory() as name:
        folder, compute = Path(name) / "run", ucds.Compute("cpu", cache=Path(name))
        options = ucds.RunOptions(seed)
        ucds.train_source(trained, folder, n_clusters, settings=settings, options=options, compute=compute)
        both = subset(samples, np.flatnonzero(members)), subset(samples, np.flatnonzero(others))
        found = audit(folder, *both, folder / "report.html", effort=EFFORT, seed=seed, compute=compute)
    yield run | {"found": found.to_dict()}


def spread(values: pd.Series) -> str:
    return f"{values.mean():.1f} +- {values.std(ddof=0):.1f} ({len(values)})"


def accuracy_table(runs: pd.DataFrame) -> str:
    """Accuracy by kind of provider and by target, mean +- deviation (seeds)."""
    cells = runs.groupby(["kind", "target"])["accuracy"].agg(spread).unstack()[runs["target"].unique()]
    cells = cells.loc[[kind for kind in KINDS if kind in cells.index]]
    return table(cells.fillna("-").rename_axis("provider").reset_index())


def audit_table(audits: pd.DataFrame) -> str:
    """Area under the curve by kind of model and by attack: mean over seeds, and the widest interval."""
    rows = []
    for (dataset, kind), runs in audits.groupby(["dataset", "kind"], sort=False):
        attacks = [
            pd.DataFrame([attack["success"] for attack in same])
            for same in zip(*([*one["membership"], one["domains"]] for one in runs["found"]), strict=True)
        ]
        row = {"data": dataset, "model": kind, "seeds": len(runs)}
        for name, one in zip(ATTACKS, attacks, strict=True):
            low, high = one["auc_low"].min(), one["auc_high"].max()
            row[name] = f"{one['auc'].mean():.2f} ({low:.2f} to {high:.2f})"
        at_1 = max(one["tpr_at_1"].mean() for one in attacks[:3])
        rows.append(row | {"most found at 1 % (%)": f"{100 * at_1:.1f}"})
    return table(rows)


def price_table(audits: pd.DataFrame) -> str:
    """Agreement of students with the provider by number of bought labels, in percent."""
    points = pd.json_normalize(
        audits[audits["kind"].isin(("consensus", "PCD"))].to_dict("records"),
        ["found", "prices"],
        ["dataset", "kind", "seed"],
    )
    most = points.groupby(["dataset", "kind", "seed"])["labels"].transform("max")
    points["labels"] = points["labels"].map(str).where(points["labels"] < most, "all")
    points["agreement"] *= 100
    cells = points.groupby(["dataset", "kind", "labels"], sort=False)["agreement"].agg(spread).unstack()
    cells = cells[["50", "100", "200", "500", "all"]].rename_axis(["data", "model"])
    return table(cells.fillna("-").reset_index())


def page(rows: Sequence[Row]) -> str:
    """Write the tables of all records."""
    runs = pd.DataFrame(rows)
    texts = {}
    for name, what, write in (
        ("labels", "labels", accuracy_table),
        ("clients", "clients", accuracy_table),
        ("audits", "audits", audit_table),
        ("prices", "audits", price_table),
    ):
        own = runs[runs["what"] == what]
        texts[name] = write(own) if len(own) else "Not measured."
    return PAGE.format(delta=f"{DELTA:g}", **texts)


def jobs_of(options: argparse.Namespace) -> Iterator[tuple[Row, Callable[[], Iterator[Row]]]]:
    """Yield each seed, target and kind, kind after kind of the same target and seed."""
    kinds = options.kinds.split(";") if options.kinds else DEFAULT_KINDS[options.measure]
    directions = public_directions(encoders_of(options)[0].find(ucds.Compute()))
    for domains in read_domains(options):
        dataset = domains[0].name.split()[0]
        for seed, target, kind in product(range(options.seeds), options.targets.split(","), kinds):
            run = {"what": options.measure, "dataset": dataset, "kind": kind, "seed": seed}
            if options.measure == "audits":
                yield run, partial(measure_audit, domains, run)
            else:
                run["target"] = target
                yield run, partial(measure_accuracy, domains, run, directions)


if __name__ == "__main__":
    parser = parser_of("Measure what privacy costs, and what attacks find.")
    parser.add_argument("--measure", choices=list(DEFAULT_KINDS), help="what is measured; nothing by default")
    parser.add_argument("--targets", default="", help="domains that are the client's in turn")
    parser.add_argument("--kinds", help="kinds of the provider, separated by semicolons")
    options = parser.parse_args()
    complete(__file__, jobs_of(options) if options.measure else (), page)
