"""The demo: three clinics sort handwritten digits, each alone and with the help of a provider.

The small clinic has few pictures, and gains from the provider's labels; in the large one they have little
weight. The turned clinic has the pictures of the large one, turned by a scanner that stands on its side: the
provider has not learned from such pictures, and the guard sets its labels aside. The paper's methods
follow, for comparison. The demo ends with a report to open.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ucds.backbones import build_backbone
from ucds.backbones.oriented_edges import NAME as BACKBONE
from ucds.config import PCDSettings
from ucds.data.dataset import Dataset
from ucds.data.folders import scan_domains
from ucds.data.ground_truth import GroundTruth, read_ground_truth
from ucds.data.images import ImageSamples
from ucds.data.samples import Samples, subset
from ucds.demo import text
from ucds.demo.clinics import (
    LARGE,
    N_CLUSTERS,
    PROVIDER,
    SMALL,
    SOURCES,
    STYLE_OF,
    Place,
    Visit,
    draw,
    visit_all,
)
from ucds.demo.digits import STYLES
from ucds.errors import InputError
from ucds.experiments.methods import PAPER_METHODS, run_methods
from ucds.experiments.pipeline import FEATURE_BATCH, Outcome, Task, TaskOptions
from ucds.files import write_text_atomically
from ucds.math.metrics import match_clusters, proportions_by_class, score
from ucds.reports import figures
from ucds.reports.figures import require_seaborn
from ucds.reports.page.report import report
from ucds.training.features import frozen_features
from ucds.training.inputs import stored_size, view_for
from ucds.training.loaded import load
from ucds.training.options import CacheOptions
from ucds.training.progress import Reporter
from ucds.training.runtime import Runtime

SETTINGS = (PCDSettings(tune="head"),)
TARGET = STYLE_OF[LARGE]
"""Style of the pictures on which the paper's methods are compared."""

_OURS = {
    "digits",
    "small-clinic-images",
    "turned-clinic-images",
    "cache",
    "runs",
    "metrics.json",
    "figures",
}


def run_demo(out: Path, seed: int, reporter: Reporter) -> str:
    """Draw the digits, let the clinics cluster theirs, and write reports, figures and metrics.

    Args:
        out: folder for ``digits/`` (the pictures), ``small-clinic-images/`` and ``turned-clinic-images/``
            (parts of them, copied and turned), ``runs/`` (models and reports), ``metrics.json`` and
            ``figures/``. What an earlier demo left there is written again.
        seed: seed of every random choice but the drawing.
        reporter: receives progress messages.

    Returns:
        What the demo found, for the terminal.

    Raises:
        InputError: ``out`` holds other things than a demo, or seaborn is not installed.
    """
    check_folder(out)
    require_seaborn()
    place = Place(out, seed, reporter)
    draw(place)
    visits = visit_all(place)
    reporter.say("the paper's methods on the pictures of the large clinic")
    data = open_digits(out)
    options = TaskOptions(SETTINGS, seed, accelerator="cpu", cache=out / "cache", reporter=reporter)
    outcomes = list(run_methods(demo_task(data), options, PAPER_METHODS))
    truth = read_ground_truth(data.samples)
    assert truth is not None
    metrics = compute_metrics(visits, outcomes, truth.classes[_is_of(data.samples, TARGET)], seed)
    write_text_atomically(out / "metrics.json", json.dumps(metrics, indent=2) + "\n")
    _draw_figures(place, data.samples, truth)
    for clinic in (LARGE, SMALL):
        page = report(
            place.run(clinic), accelerator="cpu", cache=CacheOptions(out / "cache"), reporter=reporter
        )
    return "\n".join(
        [
            *text.describe_clinics(visits),
            *text.describe_methods(metrics["methods"]),
            *text.describe_ledger(place.run(PROVIDER)),
            f"Pictures, figures, models and metrics are in {out}.",
            f"Open {page.path} in a browser: it shows what the small clinic found.",
        ]
    )


def check_folder(out: Path) -> None:
    """Make sure that a folder is new, is empty, or holds an earlier demo.

    Raises:
        InputError: it holds something else, or is a file.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: choose another --out")
    if out.exists() and any(entry.name not in _OURS for entry in out.iterdir()):
        raise InputError(f"{out} holds other things than a demo: choose another --out")


def open_digits(out: Path) -> Dataset:
    """Open the pictures that were drawn below ``out``."""
    spec = build_backbone(BACKBONE, weights="none").spec
    samples = ImageSamples.open(scan_domains(out / "digits"), out / "cache", size=stored_size(spec))
    return Dataset(samples, view_for(spec))


def demo_task(data: Dataset) -> Task:
    """Make the task with the style of the large clinic as target and those of the provider as sources."""
    return Task(
        source=Dataset(subset(data.samples, np.flatnonzero(_is_of(data.samples, *SOURCES))), data.view),
        target=Dataset(subset(data.samples, np.flatnonzero(_is_of(data.samples, TARGET))), data.view),
        backbone=lambda: build_backbone(BACKBONE, weights="none"),
        n_clusters=N_CLUSTERS,
    )


def _is_of(samples: Samples, *styles: str) -> NDArray[np.bool_]:
    return np.isin(samples.domain, [samples.domain_names.index(style) for style in styles])


def compute_metrics(
    visits: Mapping[str, Visit], outcomes: Sequence[Outcome], classes: NDArray[np.int64], seed: int
) -> dict[str, Any]:
    """Collect what became of the clinics, and score the paper's methods.

    Args:
        visits: results of the clinics, by name.
        outcomes: outcomes of the paper's methods on the pictures of the large clinic.
        classes: ``(n,)`` class of each of these pictures.
        seed: seed of the demo.
    """
    methods = {}
    for outcome in outcomes:
        found = score(outcome.labels, classes)
        methods[outcome.method] = {
            "accuracy": round(found.accuracy, 4),
            "nmi": round(found.nmi, 4),
            "ari": round(found.ari, 4),
            "seconds": round(outcome.seconds, 2),
        }
    return {
        "dataset": "digits",
        "target": TARGET,
        "n_clusters": N_CLUSTERS,
        "seed": seed,
        "clinics": {name: visit.to_dict() for name, visit in visits.items()},
        "methods": methods,
    }


def _draw_figures(place: Place, samples: Samples, truth: GroundTruth) -> None:
    """Draw pictures of each style, and the map and proportions of the large clinic's model."""
    place.reporter.say("drawing figures")
    folder = place.out / "figures"
    folder.mkdir(exist_ok=True)
    figures.samples_per_domain(_some_of_each(samples), folder / "samples")
    classes = truth.classes[_is_of(samples, TARGET)]
    model = load(place.run(LARGE), accelerator="cpu", cache=CacheOptions(place.out / "cache"))
    data = model.open(place.images(LARGE))
    features, probabilities, _ = model.outputs(data)
    figures.proportions(
        np.bincount(classes, minlength=truth.n_classes) / len(classes),
        proportions_by_class(
            model.stored.proportions.mean(0).numpy(),
            match_clusters(probabilities.argmax(1), classes),
            truth.n_classes,
        ),
        truth.names,
        folder / "proportions",
    )
    backbone, runtime = build_backbone(BACKBONE, weights="none"), Runtime(accelerator="cpu")
    frozen = frozen_features(backbone, data, runtime, place.out / "cache", batch_size=FEATURE_BATCH).samples
    figures.tsne_before_after(
        frozen.read(np.arange(len(frozen))).numpy(),
        features,
        model.stored.model.prototypes.detach().numpy(),
        classes,
        folder / "tsne",
        place.seed,
        names=truth.names,
        titles=("fixed edge filters", "consensus"),
    )


def _some_of_each(samples: Samples, count: int = 12) -> dict[str, NDArray[np.uint8]]:
    rows = {}
    for style in STYLES:
        positions = np.flatnonzero(samples.domain == samples.domain_names.index(style))
        chosen = np.random.default_rng(0).choice(positions, count, replace=False)
        rows[style] = samples.read(chosen).permute(0, 2, 3, 1).numpy()
    return rows
