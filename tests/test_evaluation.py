"""Tests of scoring against ground truth."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from quick import quick

from ucds.data.folders import scan_domains
from ucds.errors import UserError
from ucds.evaluation import RunScores, evaluate
from ucds.math.metrics import ClusteringScores, score
from ucds.source.train import train_source
from ucds.training.loaded import load
from ucds.training.options import Compute, EncoderOptions

ENCODER = EncoderOptions("ucds/oriented_edges", "none")


def report(**changes: Any) -> RunScores:
    scores = ClusteringScores(0.75, 0.5, 0.25)
    values: dict[str, Any] = {
        "run": "clinic",
        "samples": 1234,
        "n_clusters": 3,
        "n_classes": 2,
        "overall": scores,
        "domains": {"a": scores, "longer": ClusteringScores(1.0, 1.0, 1.0)},
    }
    return RunScores(**values | changes)


def test_a_report_in_words() -> None:
    assert report().summary().splitlines() == [
        "clinic: 1,234 samples, 3 clusters, 2 classes",
        "  all     accuracy  75.0  NMI  50.0  ARI  25.0",
        "  a       accuracy  75.0  NMI  50.0  ARI  25.0",
        "  longer  accuracy 100.0  NMI 100.0  ARI 100.0",
    ]
    one = report(domains={"a": ClusteringScores(0.75, 0.5, 0.25)})
    assert len(one.summary().splitlines()) == 2  # a single domain is not told twice


@pytest.fixture
def root(tmp_path: Path, write_images: Callable[..., list[Path]]) -> Path:
    """Two domains of unequal size, with two classes of pictures, and a run on them."""
    places = [("one", number) for number in range(24)] + [("two", number) for number in range(16)]
    names = (f"{domain}/{'bright' if number % 3 else 'dark'}/{number}.png" for domain, number in places)
    write_images(tmp_path / "data", names)
    given: Any = {"settings": quick(bottleneck_width=8), "compute": Compute("cpu", cache=None)}
    train_source(tmp_path / "data", tmp_path / "run", 3, encoder=ENCODER, **given)
    return tmp_path


def evaluated(root: Path, data: str = "data", out: Path | None = None) -> RunScores:
    return evaluate(root / "run", root / data, out, compute=Compute("cpu", cache=root / "cache"))


def test_scores_are_those_of_the_models_predictions_domain_by_domain(root: Path) -> None:
    labels = load(root / "run", compute=Compute("cpu")).predict(root / "data")
    assert len(set(labels.tolist())) > 1
    classes = np.array([int("dark" in name) for name in scan_domains(root / "data").ids])
    found = evaluated(root)
    assert found.overall == score(labels, classes)
    assert found.domains == {
        "one": score(labels[:24], classes[:24]),
        "two": score(labels[24:], classes[24:]),
    }
    assert (found.run, found.samples, found.n_clusters, found.n_classes) == ("run", 40, 3, 2)
    assert json.loads((root / "run" / "evaluation.json").read_text()) == asdict(found)
    assert evaluated(root, out=root / "scores.json") == found
    assert json.loads((root / "scores.json").read_text()) == asdict(found)


def test_data_without_classes_cannot_be_scored(root: Path) -> None:
    for i in range(2):
        path = root / "flat" / f"domain{i}" / "x.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), (50 * i, 0, 0)).save(path)
    with pytest.raises(UserError, match="has no class folders to score against"):
        evaluated(root, "flat")
