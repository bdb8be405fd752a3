"""Writes the page of what labels give away, and of what privacy costs, from the records of privacy.py."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from private_rivals import RIVALS

from ucds.files import write_text_atomically

DELTA = 1e-5
EPSILONS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, math.inf)
KINDS = ("none", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS), "consensus")
RECORDS = Path(__file__).with_name("privacy.jsonl")

PAGE = """# What labels give away, and what privacy costs

Written by `python benchmarks/privacy.py page` from `privacy.jsonl`. Frozen features of MobileNetV2, delta
{delta}.

## Accuracy of a provider's labels

Percent, mean +- deviation (seeds); a client's folder, seen from its own mean. "epsilon 0" is noise alone,
"epsilon inf" is the private algorithm without noise, and "consensus" is the provider's default method,
without privacy. The algorithm was chosen on webcam and photo; the other targets were scored once.

{labels}

## Other private methods

Accuracy of labels in percent, mean +- deviation (seeds), by epsilon; `benchmarks/private_rivals.py` says what
each method does. Public images are 2,000 of the other data set, which has other classes. "PATE" gives 500
labels, and all other methods any number. "ours" are the rows of the table above.

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


def read_records() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORDS.read_text().splitlines()]


def table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def spread(values: Sequence[float]) -> str:
    return "-" if not values else f"{np.mean(values):.1f} +- {np.std(values):.1f} ({len(values)})"


def accuracy_table(records: Sequence[dict[str, Any]], what: str) -> str:
    """Accuracy by kind of provider and by target, mean +- deviation (seeds)."""
    chosen = [record for record in records if record["what"] == what]
    targets = list(dict.fromkeys(record["target"] for record in chosen))
    kinds = [kind for kind in KINDS if any(record["kind"] == kind for record in chosen)]
    rows = [
        [
            kind,
            *(
                spread([r["accuracy"] for r in chosen if (r["kind"], r["target"]) == (kind, t)])
                for t in targets
            ),
        ]
        for kind in kinds
    ]
    return table(rows, ["provider", *targets])


def rival_tables(records: Sequence[dict[str, Any]]) -> str:
    """A table for each target: accuracy by method and epsilon."""
    cells: dict[tuple[str, str, str], list[float]] = {}
    for record in records:
        if record["what"] == "rivals":
            key = (record["target"], record["kind"], record["epsilon"])
        elif record["what"] == "labels" and record["kind"].startswith("epsilon"):
            key = (record["target"], "ours", record["kind"].split()[1])
        else:
            continue
        cells.setdefault(key, []).append(record["accuracy"])
    columns = [f"{epsilon:g}" for epsilon in EPSILONS]
    return "\n\n".join(
        table(
            [
                [method, *(spread(cells.get((target, method, epsilon), [])) for epsilon in columns)]
                for method in ("ours", *RIVALS)
            ],
            [target, *columns],
        )
        for target in dict.fromkeys(target for target, method, _ in cells if method != "ours")
    )


def audit_table(records: Sequence[dict[str, Any]]) -> str:
    """Area under the curve by kind of model and by attack: mean over seeds, and the widest interval."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        if record["what"] == "audits":
            groups.setdefault((record["dataset"], record["kind"]), []).append(record["found"])
    rows = []
    for (dataset, kind), found in groups.items():
        attacks = [[one["membership"][i] for one in found] for i in range(3)]
        attacks.append([one["domains"] for one in found])
        cells = [_area([one["success"] for one in attack]) for attack in attacks]
        at_1 = max(np.mean([one["success"]["tpr_at_1"] for one in attack]) for attack in attacks[:3])
        rows.append([dataset, kind, str(len(found)), *cells, f"{100 * at_1:.1f}"])
    names = ["agreement", "boundary", "shadow clusterers", "domain (25 images)", "most found at 1 % (%)"]
    return table(rows, ["data", "model", "seeds", *names])


def _area(found: Sequence[dict[str, Any]]) -> str:
    low, high = min(one["auc_low"] for one in found), max(one["auc_high"] for one in found)
    return f"{np.mean([one['auc'] for one in found]):.2f} ({low:.2f} to {high:.2f})"


def price_table(records: Sequence[dict[str, Any]]) -> str:
    """Agreement of students with the provider by number of bought labels, in percent."""
    rows: dict[tuple[str, str], dict[str, list[float]]] = {}
    for record in records:
        if record["what"] == "audits" and record["kind"] in ("consensus", "PCD"):
            curve = rows.setdefault((record["dataset"], record["kind"]), {})
            most = max(point["labels"] for point in record["found"]["prices"])
            for point in record["found"]["prices"]:
                column = "all" if point["labels"] == most else str(point["labels"])
                curve.setdefault(column, []).append(100 * point["agreement"])
    columns = ("50", "100", "200", "500", "all")
    lines = [[*key, *(spread(curve.get(column, [])) for column in columns)] for key, curve in rows.items()]
    return table(lines, ["data", "model", *columns])


def write_page() -> None:
    """Write the page of all records."""
    records = read_records()
    text = PAGE.format(
        delta=f"{DELTA:g}",
        labels=accuracy_table(records, "labels"),
        rivals=rival_tables(records),
        clients=accuracy_table(records, "clients"),
        audits=audit_table(records),
        prices=price_table(records),
    )
    write_text_atomically(RECORDS.with_suffix(".md"), text)
