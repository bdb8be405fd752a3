"""The demo: three clinics sort handwritten digits, each alone and with the help of a provider.

The small clinic has few pictures, and gains from the provider's labels; in the large one they have little
weight. The turned clinic has the pictures of the large one, turned by a scanner that stands on its side: the
provider has not learned from such pictures, and the guard sets its labels aside. The paper's methods
follow, for comparison. The demo ends with a report to open.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ucds.config import PCDSettings
from ucds.data.ground_truth import read_ground_truth
from ucds.demo.clinics import (
    ENCODER,
    LARGE,
    N_CLUSTERS,
    PROVIDER,
    SMALL,
    SOURCES,
    STYLE_OF,
    TURNED,
    Place,
    draw,
    visit_all,
)
from ucds.errors import InputError
from ucds.experiments.methods import METHODS, PAPER_METHODS, run_methods
from ucds.experiments.pipeline import Task, TaskOptions
from ucds.files import write_text_atomically
from ucds.math.metrics import score
from ucds.reports.page.report import report
from ucds.serving.ledger import Ledger
from ucds.serving.verify import verify
from ucds.training.inputs import open_for_training
from ucds.training.progress import Reporter

_OURS = {"digits", "cache", "runs", "metrics.json", *(f"{clinic}-images" for clinic in STYLE_OF)}


def run_demo(out: Path, seed: int, reporter: Reporter) -> str:
    """Draw the digits, let the clinics cluster theirs, and write reports and metrics.

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
    reporter.say("the paper's methods on the pictures of the large clinic")
    methods = compare_methods(place, PAPER_METHODS)
    metrics = {"n_clusters": N_CLUSTERS, "seed": seed, "clinics": clinics, "methods": methods}
    write_text_atomically(out / "metrics.json", json.dumps(metrics, indent=2) + "\n")
    for clinic in (LARGE, SMALL):
        page = report(place.run(clinic), compute=place.compute)
    lines = [*describe_clinics(clinics), *describe_methods(methods), describe_ledger(place.run(PROVIDER))]
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


def compare_methods(place: Place, names: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Run methods of the paper on the pictures of the large clinic, with the provider's styles as sources.

    Args:
        place: folders of the demo, with the pictures drawn.
        names: names of the methods.

    Returns:
        Accuracy, NMI and seconds of each method, by name.
    """
    encoder, compute = ENCODER, place.compute
    source = open_for_training(place.digits, "source", encoder, compute, SOURCES)
    target = open_for_training(place.images(LARGE), "target", encoder, compute)
    options = TaskOptions(
        (PCDSettings(tune="head"),),
        place.seed,
        compute,
    )
    task = Task(source.data, target.data, encoder.build, N_CLUSTERS)
    outcomes = list(run_methods(task, options, names))
    truth = read_ground_truth(target.data.samples)
    assert truth is not None
    scores = {outcome.method: score(outcome.labels, truth.classes) for outcome in outcomes}
    return {
        outcome.method: {
            "accuracy": round(scores[outcome.method].accuracy, 4),
            "nmi": round(scores[outcome.method].nmi, 4),
            "seconds": round(outcome.seconds, 2),
        }
        for outcome in outcomes
    }


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


def describe_methods(methods: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Write the scores of the paper's methods as a table."""
    return [
        "The paper's methods on the large clinic's pictures, with the same encoder:",
        f"  {'method':<32}{'accuracy':>10}{'NMI':>8}{'seconds':>10}",
        *(
            f"  {METHODS[name].title:<32}{100 * found['accuracy']:>10.1f}"
            f"{100 * found['nmi']:>8.1f}{found['seconds']:>10.1f}"
            for name, found in methods.items()
        ),
        "",
    ]


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
