"""Tests of scoring against ground truth."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from quick import quick

from ucds.data.sources import find_samples
from ucds.errors import UserError
from ucds.evaluation import Report, evaluate
from ucds.math.metrics import ClusteringScores, score
from ucds.source.train import train_source
from ucds.training.inputs import open_for_training
from ucds.training.model_file import load_model
from ucds.training.options import Compute, EncoderOptions, RunOptions

ENCODER = EncoderOptions("ucds/oriented_edges", "none")


def report(**changes: Any) -> Report:
    scores = ClusteringScores(0.75, 0.5, 0.25)
    values: dict[str, Any] = {
        "run": "clinic",
        "samples": 1234,
        "n_clusters": 3,
        "n_classes": 2,
        "overall": scores,
        "domains": {"a": scores, "longer": ClusteringScores(1.0, 1.0, 1.0)},
    }
    return Report(**values | changes)


def test_a_report_in_words() -> None:
    assert report().summary().splitlines() == [
        "clinic: 1,234 samples, 3 clusters, 2 classes",
        "  all     accuracy  75.0  NMI  50.0  ARI  25.0",
        "  a       accuracy  75.0  NMI  50.0  ARI  25.0",
        "  longer  accuracy 100.0  NMI 100.0  ARI 100.0",
    ]
    one = report(domains={"a": ClusteringScores(0.75, 0.5, 0.25)})
    assert len(one.summary().splitlines()) == 2  # a single domain is not told twice


@pytest.fixture(scope="module")
def source_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on two domains of unequal size, with bright and dark pictures as classes."""
    root = tmp_path_factory.mktemp("evaluation")
    rng = np.random.default_rng(0)
    for domain, count in (("one", 12), ("two", 8)):
        for i in range(count):
            klass = "bright" if i % 3 else "dark"
            pixels = rng.integers(128, size=(40, 40, 3)) + (128 if klass == "bright" else 0)
            path = root / "data" / domain / klass / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.astype(np.uint8)).save(path)
    train_source(
        root / "data",
        root / "run",
        3,
        encoder=ENCODER,
        settings=quick(bottleneck_width=8),
        options=RunOptions(),
        compute=Compute(cache=root / "cache"),
    )
    return root


def evaluated(root: Path, data: str = "data", out: Path | None = None) -> Report:
    return evaluate(root / "run", root / data, out, compute=Compute("cpu", cache=root / "cache"))


@pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning")
def test_scores_are_those_of_the_models_predictions_domain_by_domain(
    source_run: Path, tmp_path: Path
) -> None:
    stored = load_model(source_run / "run")
    found = find_samples(source_run / "data", by_domain=True)
    inputs = open_for_training(found, ENCODER, Compute(cache=source_run / "cache"))
    samples = inputs.data.samples
    below = stored.encoder(inputs.data.view.test(samples.read(np.arange(len(samples)))))
    labels = stored.head.logits(stored.head.features(below)).argmax(1)
    classes = np.array([int("dark" in name) for name in samples.ids])
    found = evaluated(source_run)
    assert found.overall == score(labels, classes)
    assert found.domains == {
        "one": score(labels[:12], classes[:12]),
        "two": score(labels[12:], classes[12:]),
    }
    assert (found.run, found.samples, found.n_clusters, found.n_classes) == ("run", 20, 3, 2)
    assert json.loads((source_run / "run" / "evaluation.json").read_text()) == asdict(found)
    assert evaluated(source_run, out=tmp_path / "scores.json") == found
    assert json.loads((tmp_path / "scores.json").read_text()) == asdict(found)


def test_data_without_classes_cannot_be_scored(source_run: Path) -> None:
    for i in range(2):
        path = source_run / "flat" / f"domain{i}" / "x.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), (50 * i, 0, 0)).save(path)
    with pytest.raises(UserError, match="has no class folders to score against"):
        evaluated(source_run, "flat")
