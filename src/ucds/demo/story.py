"""The demo: three styles of handwriting help to cluster a fourth, with the methods of the package.

The provider's model is served over HTTP on loopback by a process of its own. The client sees labels only, and
pays for them with a key that has a budget.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ucds.backbones import Backbone, build_backbone
from ucds.backbones.oriented_edges import NAME as BACKBONE
from ucds.config import ConsensusSettings, PCDSettings
from ucds.data.dataset import Dataset
from ucds.data.folders import scan_domains
from ucds.data.ground_truth import GroundTruth, read_ground_truth
from ucds.data.images import ImageSamples
from ucds.data.samples import Samples, subset
from ucds.demo.digits import STYLES, write_digits
from ucds.demo.loopback import ask, label_service, make_key
from ucds.errors import InputError
from ucds.experiments.methods import METHODS, PAPER_METHODS, run_methods
from ucds.experiments.pipeline import Outcome, Task, TaskOptions
from ucds.files import write_text_atomically
from ucds.math.metrics import match_clusters, proportions_by_class, score
from ucds.reports import figures, tsne
from ucds.reports.canvas import require_matplotlib
from ucds.serving.ledger import Ledger
from ucds.training.inputs import stored_size, view_for
from ucds.training.model_file import StoredModel, save_model
from ucds.training.prediction import encode
from ucds.training.prepare import TrainedModel
from ucds.training.progress import Reporter
from ucds.training.run import describe_trained
from ucds.training.runtime import Runtime

TARGET = "neon"
PROVIDER, LABELS = "provider", "labels.json"
N_CLUSTERS = 10
SETTINGS = (PCDSettings(tune="head"), ConsensusSettings())

DEMO_METHODS = (*PAPER_METHODS, "consensus-alone", "consensus")

NAMES = {
    "kmeans": "frozen k-means",
    "po": "PO   pre-trained only",
    "so": "SO   source only",
    "to": "TO   target only",
    "ao": "AO   adaptation only",
    "pcd": "PCD  all three stages",
    "consensus-alone": "consensus, no provider",
    "consensus": "consensus",
}


def run_demo(out: Path, seed: int, reporter: Reporter) -> str:
    """Draw the digits, run every method with ``neon`` as target, and write figures and metrics.

    Args:
        out: folder for ``digits/`` (the pictures), ``provider/`` (model and ledger of the consensus method's
            provider), ``labels.json`` (its labels), ``metrics.json`` and ``figures/``. What an earlier demo
            left there is written again.
        seed: seed of every random choice but the drawing.
        reporter: receives progress messages.

    Returns:
        A table for the terminal.

    Raises:
        InputError: ``out`` holds other things than a demo, or matplotlib is not installed.
    """
    check_folder(out)
    require_matplotlib()
    write_digits(out / "digits")
    data = open_digits(out)
    task = demo_task(data)
    options = TaskOptions(SETTINGS, seed, accelerator="cpu", cache=out / "cache", reporter=reporter)
    outcomes = list(run_methods(task, options, DEMO_METHODS, ask=partial(_ask_service, out, task)))
    # The classes are read only here, after every method has given its clustering.
    truth = read_ground_truth(data.samples)
    assert truth is not None
    classes = truth.classes[_is_target(data.samples)]
    metrics = compute_metrics(outcomes, classes, seed)
    write_text_atomically(out / "metrics.json", json.dumps(metrics, indent=2) + "\n")
    reporter.say("drawing figures")
    _draw(out / "figures", data.samples, outcomes, classes, truth, seed)
    return "\n".join(
        [*format_table(metrics), "", *_ledger(out), f"Pictures, figures and metrics are in {out}."]
    )


def check_folder(out: Path) -> None:
    """Make sure that a folder is new, is empty, or holds an earlier demo.

    Raises:
        InputError: it holds something else, or is a file.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: choose another --out")
    ours = {"digits", "cache", "metrics.json", "figures", PROVIDER, LABELS}
    if out.exists() and any(entry.name not in ours for entry in out.iterdir()):
        raise InputError(f"{out} holds other things than a demo: choose another --out")


def open_digits(out: Path) -> Dataset:
    """Open the pictures that were drawn below ``out``."""
    spec = build_backbone(BACKBONE, weights="none").spec
    samples = ImageSamples.open(scan_domains(out / "digits"), out / "cache", size=stored_size(spec))
    return Dataset(samples, view_for(spec))


def demo_task(data: Dataset) -> Task:
    """Make the task with ``neon`` as target and the other styles as sources."""
    is_target = _is_target(data.samples)
    return Task(
        source=Dataset(subset(data.samples, np.flatnonzero(~is_target)), data.view),
        target=Dataset(subset(data.samples, np.flatnonzero(is_target)), data.view),
        backbone=lambda: build_backbone(BACKBONE, weights="none"),
        n_clusters=N_CLUSTERS,
    )


def _is_target(samples: Samples) -> NDArray[np.bool_]:
    target: NDArray[np.bool_] = samples.domain == samples.domain_names.index(TARGET)
    return target


def _ask_service(out: Path, task: Task, found: TrainedModel, backbone: Backbone) -> NDArray[np.int64]:
    """Serve the provider's model, and have it label each of the client's pictures over HTTP."""
    run, answers = out / PROVIDER, out / LABELS
    shutil.rmtree(run, ignore_errors=True)
    answers.unlink(missing_ok=True)
    card = describe_trained(found, backbone, "source", "three styles")
    save_model(run, StoredModel(card, found.model, found.proportions))
    key = make_key(run, "clinic", len(task.target.samples))
    with label_service(run, key) as service:
        labels = ask(service, out / "digits" / TARGET, answers)
    asked = tuple(name.removeprefix(f"{TARGET}/") for name in task.target.samples.ids)
    return labels.align(asked).labels


def compute_metrics(outcomes: Sequence[Outcome], classes: NDArray[np.int64], seed: int) -> dict[str, Any]:
    """Score the outcomes of all methods of the demo against the classes ``(n,)`` of the target samples."""
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
        "methods": {method: methods[method] for method in DEMO_METHODS},
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
        proportions_by_class(after.stages[-1].proportions[0].numpy(), matching, truth.n_classes),
        truth.names,
        folder / "proportions",
    )
    runtime = Runtime(accelerator="cpu")
    tsne.tsne_before_after(
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


def format_table(metrics: dict[str, Any]) -> list[str]:
    """Write the metrics of a demo as lines for the terminal."""
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
    return [*lines, "", _against_kmeans("pcd", accuracy), _against_kmeans("consensus", accuracy)]


def _against_kmeans(method: str, accuracy: dict[str, float]) -> str:
    gap = accuracy[method] - accuracy["kmeans"]
    side = "above" if gap >= 0 else "below"
    return f"{METHODS[method].title} is {abs(gap):.1f} points {side} k-means on the same frozen features."


def _ledger(out: Path) -> list[str]:
    """Sum up in one line what the provider's ledger holds about the client's queries."""
    ledger = Ledger(str(out / PROVIDER))
    try:
        (holder,), verdict = ledger.list_keys(), ledger.verify()
    finally:
        ledger.close()
    state = "as they were written" if not verdict.faults else f"NOT as written: {verdict.faults[0]}"
    return [
        f"The provider's ledger: {holder.name} asked about {holder.used} of {holder.limit} samples; "
        f"{verdict.head.entries} entries, all {state}."
    ]
