"""The whole story on embedded data: three styles of handwriting teach a model to sort a fourth."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ucds.backbones import build_backbone
from ucds.backbones.oriented_edges import NAME as BACKBONE
from ucds.config import Config
from ucds.data.folders import scan_domains
from ucds.data.ground_truth import GroundTruth, read_ground_truth
from ucds.data.images import ImageSamples
from ucds.data.samples import Samples, subset
from ucds.errors import UserError
from ucds.experiments.digits import STYLES, write_digits
from ucds.experiments.methods import METHODS, Outcome, Setting, Task, run_methods
from ucds.files import write_text_atomically
from ucds.metrics import match_clusters, proportions_by_class, score
from ucds.reports import figures
from ucds.training.launch import stored_size, view_for
from ucds.training.prediction import encode
from ucds.training.progress import Reporter
from ucds.training.runtime import Runtime
from ucds.training.stage import TrainingData

TARGET = "neon"
N_CLUSTERS = 10
SETTINGS = Config(tune="head")

NAMES = {
    "kmeans": "frozen k-means",
    "po": "PO   pre-trained only",
    "so": "SO   source only",
    "to": "TO   target only",
    "ao": "AO   adaptation only",
    "pcd": "PCD  all three stages",
}


def run_demo(out: Path, seed: int, reporter: Reporter) -> str:
    """Draw the digits, run every method with ``neon`` as target, and write figures and metrics.

    Args:
        out: folder for ``digits/`` (the pictures), ``metrics.json`` and ``figures/``. What an earlier
            demo left there is written again.
        seed: of every random choice but the drawing.
        reporter: whom to tell.

    Returns:
        A table for the terminal.

    Raises:
        UserError: ``out`` is no folder of ours to write to.
    """
    _check_folder(out)
    write_digits(out / "digits")
    data = open_digits(out)
    task = demo_task(data)
    setting = Setting(SETTINGS, seed, accelerator="cpu", cache=out / "cache", reporter=reporter)
    outcomes = list(run_methods(task, setting))
    # Only here, when every method has given its answer, are the classes read.
    truth = read_ground_truth(data.samples)
    assert truth is not None
    classes = truth.classes[_is_target(data.samples)]
    metrics = _metrics(outcomes, classes, seed)
    write_text_atomically(out / "metrics.json", json.dumps(metrics, indent=2) + "\n")
    reporter.say("drawing figures")
    _draw(out / "figures", data.samples, outcomes, classes, truth, seed)
    return _table(metrics, out)


def _check_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file: choose another --out")
    ours = {"digits", "cache", "metrics.json", "figures"}
    if out.exists() and any(entry.name not in ours for entry in out.iterdir()):
        raise UserError(f"{out} holds other things than a demo: choose another --out")


def open_digits(out: Path) -> TrainingData:
    """Open the pictures that were drawn below ``out``."""
    spec = build_backbone(BACKBONE, weights="none").spec
    samples = ImageSamples.open(scan_domains(out / "digits"), out / "cache", size=stored_size(spec))
    return TrainingData(samples, view_for(spec))


def demo_task(data: TrainingData) -> Task:
    """The three other styles as sources, ``neon`` as target."""
    is_target = _is_target(data.samples)
    return Task(
        source=TrainingData(subset(data.samples, np.flatnonzero(~is_target)), data.view),
        target=TrainingData(subset(data.samples, np.flatnonzero(is_target)), data.view),
        backbone=lambda: build_backbone(BACKBONE, weights="none"),
        n_clusters=N_CLUSTERS,
    )


def _is_target(samples: Samples) -> NDArray[np.bool_]:
    target: NDArray[np.bool_] = samples.domain == samples.domain_names.index(TARGET)
    return target


def _metrics(outcomes: Sequence[Outcome], classes: NDArray[np.int64], seed: int) -> dict[str, Any]:
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
        "methods": {method: methods[method] for method in METHODS},
    }


def _draw(
    folder: Path,
    samples: Samples,
    outcomes: Sequence[Outcome],
    classes: NDArray[np.int64],
    truth: GroundTruth,
    seed: int,
) -> None:
    folder.mkdir(exist_ok=True)
    named = {outcome.method: outcome for outcome in outcomes}
    before, after = named["po"], named["pcd"]
    assert before.model is not None
    assert after.model is not None
    figures.samples_per_domain(_some_of_each(samples), folder / "samples")
    matching = match_clusters(after.labels, classes)
    figures.proportions(
        np.bincount(classes, minlength=truth.n_classes) / len(classes),
        proportions_by_class(after.stages[-1].state["proportions"][0].numpy(), matching, truth.n_classes),
        truth.names,
        folder / "proportions",
    )
    runtime = Runtime(accelerator="cpu")
    figures.tsne_before_after(
        encode(before.model, before.data.samples, before.data.view, runtime).numpy(),
        encode(after.model, after.data.samples, after.data.view, runtime).numpy(),
        after.model.prototypes.detach().numpy(),
        classes,
        folder / "tsne",
        seed,
        names=truth.names,
        titles=("pre-trained only", "PCD"),
    )


def _some_of_each(samples: Samples, count: int = 12) -> dict[str, NDArray[np.uint8]]:
    rows = {}
    for style in STYLES:
        positions = np.flatnonzero(samples.domain == samples.domain_names.index(style))
        chosen = np.random.default_rng(0).choice(positions, count, replace=False)
        rows[style] = samples.read(chosen).permute(0, 2, 3, 1).numpy()
    return rows


def _table(metrics: dict[str, Any], out: Path) -> str:
    sources = [style for style in STYLES if style != TARGET]
    lines = [
        f"Sorting {TARGET} digits into {N_CLUSTERS} clusters with help from {', '.join(sources)}, "
        "without a single label.",
        "",
        f"  {'method':<24}{'accuracy':>10}{'NMI':>8}{'seconds':>10}",
    ]
    lines += [
        f"  {NAMES[method]:<24}{100 * m['accuracy']:>10.1f}{100 * m['nmi']:>8.1f}{m['seconds']:>10.1f}"
        for method, m in metrics["methods"].items()
    ]
    accuracy = {method: 100 * m["accuracy"] for method, m in metrics["methods"].items()}
    gap = accuracy["pcd"] - accuracy["kmeans"]
    side = "above" if gap >= 0 else "below"
    lines += [
        "",
        f"PCD is {abs(gap):.1f} points {side} k-means on the same frozen features.",
        f"Pictures, figures and metrics.json are in {out}.",
    ]
    return "\n".join(lines)
