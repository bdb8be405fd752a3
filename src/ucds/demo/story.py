"""The demo: three clinics sort handwritten digits, alone, with a provider's labels, and with a person's help.

The small clinic has few pictures, and gains from the provider's labels; in the large one they have little
weight. The turned clinic has the pictures of the large one, turned by a scanner that stands on its side: the
provider has not learned from such pictures, and the guard sets its labels aside. A person who answers a few
questions helps there. The demo ends with reports to open.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ucds.demo.clinics import (
    LARGE,
    N_CLUSTERS,
    PROVIDER,
    SMALL,
    SOURCES,
    STYLE_OF,
    TURNED,
    Place,
    ask_a_person,
    draw,
    visit_all,
)
from ucds.errors import InputError
from ucds.files import write_text_atomically
from ucds.reports.page.report import report
from ucds.serving.ledger import Ledger
from ucds.serving.verify import verify
from ucds.training.progress import Reporter

_OURS = {"digits", "cache", "runs", "metrics.json", *(f"{clinic}-images" for clinic in STYLE_OF)}


def run_demo(out: Path, seed: int, reporter: Reporter) -> str:
    """Draw the digits, let the clinics cluster theirs, ask a person, and write reports and metrics.

    Args:
        out: folder for ``digits/`` (the pictures), ``CLINIC-images/`` (those of each clinic), ``runs/``
            (models and reports) and ``metrics.json``. What an earlier demo left there is written again.
        seed: seed of every random choice but the drawing.
        reporter: receives progress messages.

    Returns:
        What the demo found, for the terminal.

    Raises:
        InputError: ``out`` holds other things than a demo.
    """
    check_folder(out)
    place = Place(out, seed, reporter)
    draw(place)
    clinics = visit_all(place)
    reporter.say("a person answers questions about the clusters of the turned clinic")
    review = ask_a_person(place, TURNED)
    metrics = {"n_clusters": N_CLUSTERS, "seed": seed, "clinics": clinics, "review": review}
    write_text_atomically(out / "metrics.json", json.dumps(metrics, indent=2) + "\n")
    for clinic in (f"{TURNED}-reviewed", LARGE, SMALL):
        page = report(place.run(clinic), compute=place.compute)
    lines = [*describe_clinics(clinics), describe_review(review), describe_ledger(place.run(PROVIDER))]
    lines += [f"Pictures, models and metrics are in {out}."]
    lines += [f"Open {page.path} in a browser: it shows what the small clinic found."]
    return "\n".join(lines)


def check_folder(out: Path) -> None:
    """Make sure that a folder is new, is empty, or holds an earlier demo.

    Raises:
        InputError: it holds something else, or is a file.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: choose another --out")
    if out.exists() and any(entry.name not in _OURS for entry in out.iterdir()):
        raise InputError(f"{out} holds other things than a demo: choose another --out")


def describe_clinics(clinics: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Write what became of the clinics."""
    rows = []
    for name, found in clinics.items():
        title = f"{name.replace('-', ' ')}, {found['images']} pictures"
        alone, labels, asked = (100 * found[each] for each in ("alone", "provider", "asked"))
        rows.append(f"  {title:<28}{alone:>8.1f}{labels:>8.1f}{asked:>17.1f}")
    small, large, turned = (clinics[name]["sentence"] for name in (SMALL, LARGE, TURNED))
    return [
        f"Three clinics sort handwritten digits into {N_CLUSTERS} clusters. The pictures of the small clinic",
        f"are drawn in {STYLE_OF[SMALL]}, those of the large one in {STYLE_OF[LARGE]}. The turned clinic has",
        "the pictures of the large one, but its scanner stands on its side: each is turned by 90 degrees.",
        f"Nobody tells the clinics a class. A provider has learned from the styles {' and '.join(SOURCES)},",
        "all upright, and gives one integer for each picture. The encoder of all is a bank of fixed",
        "edge filters: nothing is pre-trained.",
        "",
        f"  {'accuracy in %, this run':<28}{'alone':>8}{'labels':>8}{'with the labels':>17}",
        *rows,
        "",
        f"Small clinic: {small}.",
        f"Large clinic: {large}.",
        f"Turned clinic: {turned}.",
        "",
        "One run is one draw: give another --seed, or read results/digits-small.md, which has five.",
        "",
    ]


def describe_review(review: Mapping[str, Any]) -> str:
    """Write what the answers of the person changed."""
    return (
        f"Then somebody answers {review['answers']} questions about the clusters of the "
        f"{review['clinic'].replace('-', ' ')}, as `ucds review` asks them.\n"
        "Here the answers are taken from the digits that the pictures show, as if a person saw them: the\n"
        f"accuracy goes from {review['before']:.1%} to {review['after']:.1%}.\n"
    )


def describe_ledger(run: Path) -> str:
    """Sum up what a provider's ledger holds about its clients' queries."""
    ledger = Ledger(str(run))
    try:
        (holder,) = ledger.list_keys()
    finally:
        ledger.close()
    verdict = verify(run)
    state = "as they were written" if not verdict.faults else f"NOT as written: {verdict.faults[0]}"
    return (
        f"The provider's ledger: {holder.name} asked about {holder.used} of {holder.terms.budget} samples; "
        f"{verdict.number} entries, all {state}."
    )
