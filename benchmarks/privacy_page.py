"""Defines the records of privacy.py, and writes their page: what labels give away, and what privacy costs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from records import table

DELTA = 1e-5
EPSILONS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, math.inf)
RIVALS = (
    "public alone",
    "Lloyd, random start",
    "Lloyd, spread start",
    "Lloyd, public start",
    "histogram",
    "selected",
    "PATE",
)
KINDS = ("none", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS), "consensus")

PAGE = """# What labels give away, and what privacy costs

Written by `python benchmarks/privacy.py` from `privacy.jsonl`. Frozen features of MobileNetV2, delta
{delta}.

## Accuracy of a provider's labels

Percent, mean +- deviation (seeds); a client's folder, seen from its own mean. "epsilon 0" is noise alone,
"epsilon inf" is the private algorithm without noise, and "consensus" is the provider's default method,
without privacy. The algorithm was chosen on webcam and photo; the other targets were scored once.

{labels}

## Other private methods

Accuracy of labels in percent, mean +- deviation (seeds), by epsilon. These rows were made once, at revision
c5f0f01, by a script that is no longer here: "public alone" clusters public images; "Lloyd" takes noisy steps
of Lloyd's algorithm from three starts; "histogram" lets samples vote for public images, which are clustered
by their noisy counts; "selected" draws one of 16 sets of public prototypes by the exponential mechanism;
"PATE" lets 40 models vote for 500 images; all other methods give any number of labels. Public images are
2,000 of the other data set, which has other classes. "ours" are the rows of the table above.

{rivals}

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


@dataclass(frozen=True)
class Cell:
    """Accuracy in percent of a provider's labels, or of a client's own clustering with them."""

    what: Literal["labels", "clients"]
    dataset: str
    kind: str
    seed: int
    target: str
    accuracy: float


@dataclass(frozen=True)
class Rival:
    """Accuracy in percent of the labels of another private method."""

    what: Literal["rivals"]
    dataset: str
    kind: str
    epsilon: str
    seed: int
    target: str
    accuracy: float


@dataclass(frozen=True)
class Audit:
    """What attacks found in the labels of one model, as `ucds audit` writes it."""

    what: Literal["audits"]
    dataset: str
    kind: str
    seed: int
    found: dict[str, Any]


def spread(values: Sequence[float]) -> str:
    return "-" if not values else f"{np.mean(values):.1f} +- {np.std(values):.1f} ({len(values)})"


def accuracy_table(cells: Sequence[Cell]) -> str:
    """Accuracy by kind of provider and by target, mean +- deviation (seeds)."""
    targets = list(dict.fromkeys(cell.target for cell in cells))
    found = defaultdict(list)
    for cell in cells:
        found[cell.kind, cell.target].append(cell.accuracy)
    kinds = [kind for kind in KINDS if any(cell.kind == kind for cell in cells)]
    rows = [[kind, *(spread(found[kind, target]) for target in targets)] for kind in kinds]
    return table(["provider", *targets], rows)


def rival_tables(labels: Sequence[Cell], rivals: Sequence[Rival]) -> str:
    """A table for each target: accuracy by method and epsilon."""
    found = defaultdict(list)
    for rival in rivals:
        found[rival.target, rival.kind, rival.epsilon].append(rival.accuracy)
    for cell in labels:
        if cell.kind.startswith("epsilon"):
            found[cell.target, "ours", cell.kind.split()[1]].append(cell.accuracy)
    columns = [f"{epsilon:g}" for epsilon in EPSILONS]
    return "\n\n".join(
        table(
            [target, *columns],
            [
                [method, *(spread(found[target, method, epsilon]) for epsilon in columns)]
                for method in ("ours", *RIVALS)
            ],
        )
        for target in dict.fromkeys(rival.target for rival in rivals)
    )


def audit_table(audits: Sequence[Audit]) -> str:
    """Area under the curve by kind of model and by attack: mean over seeds, and the widest interval."""
    groups = defaultdict(list)
    for audit in audits:
        groups[audit.dataset, audit.kind].append(audit.found)
    rows = []
    for key, found in groups.items():
        attacks = [[one["membership"][i] for one in found] for i in range(3)]
        attacks.append([one["domains"] for one in found])
        cells = [_area([one["success"] for one in attack]) for attack in attacks]
        at_1 = max(np.mean([one["success"]["tpr_at_1"] for one in attack]) for attack in attacks[:3])
        rows.append([*key, str(len(found)), *cells, f"{100 * at_1:.1f}"])
    names = ["agreement", "boundary", "shadow clusterers", "domain (25 images)", "most found at 1 % (%)"]
    return table(["data", "model", "seeds", *names], rows)


def _area(found: Sequence[dict[str, Any]]) -> str:
    low, high = min(one["auc_low"] for one in found), max(one["auc_high"] for one in found)
    return f"{np.mean([one['auc'] for one in found]):.2f} ({low:.2f} to {high:.2f})"


def price_table(audits: Sequence[Audit]) -> str:
    """Agreement of students with the provider by number of bought labels, in percent."""
    rows: dict[tuple[str, str], dict[str, list[float]]] = {}
    for audit in audits:
        if audit.kind in ("consensus", "PCD"):
            curve = rows.setdefault((audit.dataset, audit.kind), defaultdict(list))
            most = max(point["labels"] for point in audit.found["prices"])
            for point in audit.found["prices"]:
                column = "all" if point["labels"] == most else str(point["labels"])
                curve[column].append(100 * point["agreement"])
    columns = ("50", "100", "200", "500", "all")
    lines = [[*key, *(spread(curve[column]) for column in columns)] for key, curve in rows.items()]
    return table(["data", "model", *columns], lines)


def page(runs: Sequence[Cell | Rival | Audit]) -> str:
    """Write the tables of all records."""
    labels, clients = (
        [run for run in runs if isinstance(run, Cell) and run.what == what] for what in ("labels", "clients")
    )
    audits = [run for run in runs if isinstance(run, Audit)]
    return PAGE.format(
        delta=f"{DELTA:g}",
        labels=accuracy_table(labels),
        rivals=rival_tables(labels, [run for run in runs if isinstance(run, Rival)]),
        clients=accuracy_table(clients),
        audits=audit_table(audits),
        prices=price_table(audits),
    )
