"""Tests of scoring against ground truth."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from quick import quick

from ucds.data.folders import scan_domains
from ucds.errors import UserError
from ucds.evaluation import RunScores, evaluate
from ucds.math.metrics import ClusteringScores, score
from ucds.source.train import train_source
from ucds.training.loaded import load
from ucds.training.options import Compute, EncoderOptions

ENCODER, CPU = EncoderOptions("ucds/oriented_edges", "none"), Compute("cpu", cache=None)


def test_a_report_in_words() -> None:
    scores, whole = ClusteringScores(0.75, 0.5, 0.25), ClusteringScores(1.0, 1.0, 1.0)
    report = RunScores("clinic", 1234, 3, 2, scores, {"a": scores, "longer": whole})
    head, *rows = report.summary().splitlines()
    assert head == "clinic: 1,234 samples, 3 clusters, 2 classes"
    assert rows == [
        "  all     accuracy  75.0  NMI  50.0  ARI  25.0",
        "  a       accuracy  75.0  NMI  50.0  ARI  25.0",
        "  longer  accuracy 100.0  NMI 100.0  ARI 100.0",
    ]
    one = replace(report, domains={"a": scores})
    assert len(one.summary().splitlines()) == 2  # a single domain is not told twice


def test_scores_are_those_of_the_models_predictions_domain_by_domain(
    tmp_path: Path, write_images: Callable[..., list[Path]]
) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    places = [("one", number) for number in range(24)] + [("two", number) for number in range(16)]
    write_images(data, (f"{domain}/{'bright' if n % 3 else 'dark'}/{n}.png" for domain, n in places))
    train_source(data, run, 3, encoder=ENCODER, settings=quick(bottleneck_width=8), compute=CPU)

    labels = load(run, compute=CPU).predict(data)
    assert len(set(labels.tolist())) > 1
    classes = np.array([int("dark" in name) for name in scan_domains(data).ids])
    found = evaluate(run, data, compute=CPU)
    assert found.overall == score(labels, classes)
    assert found.domains == {
        "one": score(labels[:24], classes[:24]),
        "two": score(labels[24:], classes[24:]),
    }
    assert (found.run, found.samples, found.n_clusters, found.n_classes) == ("run", 40, 3, 2)
    assert json.loads((run / "evaluation.json").read_text()) == asdict(found)
    assert evaluate(run, data, tmp_path / "scores.json", compute=CPU) == found
    assert json.loads((tmp_path / "scores.json").read_text()) == asdict(found)
    for path in (data / "one/dark/0.png", data / "two/dark/0.png"):
        path.rename(path.parents[1] / "outside.png")
    with pytest.raises(UserError, match="has no class folders to score against"):
        evaluate(run, data, compute=CPU)
