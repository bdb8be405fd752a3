"""What the demo prints: the clinics, recorded runs beside them, the paper's methods, and the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ucds.demo.clinics import LARGE, N_CLUSTERS, SMALL, SOURCES, STYLE_OF, TURNED, Visit
from ucds.serving.ledger import Ledger

RECORDED_ALONE = (75.0, 75.0, 79.0, 80.0, 72.0)
RECORDED_ASKED = (83.0, 77.0, 78.0, 82.0, 80.0)
"""Accuracy in percent of the small clinic, alone and with the labels, for each recorded seed.

The records are in `results/digits-small/runs.jsonl`; a test compares them."""

METHODS = {
    "kmeans": "k-means on the same features",
    "po": "PO   the encoder alone",
    "so": "SO   source only",
    "to": "TO   target only",
    "ao": "AO   adaptation only",
    "pcd": "PCD  all three stages",
}


def describe_clinics(visits: Mapping[str, Visit]) -> list[str]:
    """Write what became of the clinics in this run, and of the small one in the recorded runs."""
    small, large, turned = visits[SMALL], visits[LARGE], visits[TURNED]
    count, alone, asked = len(RECORDED_ALONE), _mean(RECORDED_ALONE), _mean(RECORDED_ASKED)
    gains = [b - a for a, b in zip(RECORDED_ALONE, RECORDED_ASKED, strict=True)]
    small_style, large_style, sources = STYLE_OF[SMALL], STYLE_OF[LARGE], " and ".join(SOURCES)
    return [
        f"Three clinics sort handwritten digits into {N_CLUSTERS} clusters. The pictures of the small clinic",
        f"are drawn in {small_style}, those of the large one in {large_style}. The turned clinic has",
        "the pictures of the large one, but its scanner stands on its side: each is turned by 90 degrees.",
        f"Nobody tells the clinics a class. A provider has learned from the styles {sources},",
        "all upright, and gives one integer for each picture. The encoder of all is a bank of fixed",
        "edge filters: nothing is pre-trained.",
        "",
        f"  {'accuracy in %, this run':<28}{'alone':>8}{'labels':>8}{'with the labels':>17}",
        *(_row(name, visit) for name, visit in visits.items()),
        "",
        f"Small clinic: {small.sentence}.",
        f"Large clinic: {large.sentence}.",
        f"Turned clinic: {turned.sentence}.",
        "",
        f"In this run asking changed the small clinic's accuracy by {small.gain:+.1f} points.",
        f"Over {count} seeds, in recorded runs, it is {alone:.1f} alone and {asked:.1f} with the labels: "
        f"{asked - alone:+.1f} points ({min(gains):+.1f} to {max(gains):+.1f}).",
        "",
    ]


def _row(name: str, visit: Visit) -> str:
    title = f"{name.replace('-', ' ')}, {visit.images} pictures"
    alone, labels, asked = (100 * each.accuracy for each in (visit.alone, visit.provider, visit.asked))
    return f"  {title:<28}{alone:>8.1f}{labels:>8.1f}{asked:>17.1f}"


def _mean(values: tuple[float, ...]) -> float:
    return sum(values) / len(values)


def describe_methods(methods: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Write the scores of the paper's methods as a table."""
    style = STYLE_OF[LARGE]
    return [
        f"The paper's methods on the large clinic's pictures, this run ({style}, the same encoder):",
        f"  {'method':<32}{'accuracy':>10}{'NMI':>8}{'seconds':>10}",
        *(
            f"  {METHODS[name]:<32}{100 * m['accuracy']:>10.1f}{100 * m['nmi']:>8.1f}{m['seconds']:>10.1f}"
            for name, m in methods.items()
        ),
        "",
    ]


def describe_ledger(run: Path) -> list[str]:
    """Sum up in one line what a provider's ledger holds about its clients' queries."""
    ledger = Ledger(str(run))
    try:
        (holder,), verdict = ledger.list_keys(), ledger.verify()
    finally:
        ledger.close()
    state = "as they were written" if not verdict.faults else f"NOT as written: {verdict.faults[0]}"
    return [
        f"The provider's ledger: {holder.name} asked about {holder.used} of {holder.limit} samples; "
        f"{verdict.head.entries} entries, all {state}."
    ]
