"""Tests of scoring against ground truth, and of the oracle that is printed apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ucds.config import PCDSettings
from ucds.data.sources import find_samples
from ucds.data.vectors import VectorSamples
from ucds.errors import DamagedFileError, UserError
from ucds.evaluation import Oracle, Report, best_snapshot, evaluate, find_oracle
from ucds.math.metrics import ClusteringScores, score
from ucds.source.train import train_source
from ucds.training.inputs import Inputs, open_for_training
from ucds.training.model_file import load_model
from ucds.training.options import Compute, EncoderOptions, RunOptions
from ucds.training.prediction import predict
from ucds.training.runtime import Runtime

ENCODER = EncoderOptions("ucds/oriented_edges", "none")
CLASSES = np.array([0, 0, 1, 1])
GOOD, FAIR, BAD = [1, 1, 0, 0], [1, 1, 0, 1], [0, 1, 0, 1]


class Named(VectorSamples):
    """Samples with ids and contents; the content is a function of the id and of ``salt``."""

    @property
    def key_rows(self) -> np.ndarray:
        return np.frombuffer(b"".join(self.keys), np.uint8).reshape(len(self), -1)


def named(ids: tuple[str, ...], salt: float = 0.0) -> Named:
    return Named(np.array([[ord(name[0]) + salt] for name in ids], dtype=np.float32), ids=ids)


def keep(run: Path, ids: tuple[str, ...] = ("a", "b", "c", "d"), **stages: list[list[int]]) -> None:
    arrays: dict[str, Any] = {"ids": np.array(ids), "keys": named(ids).key_rows}
    for stage, labels in stages.items():
        arrays[f"{stage}/labels"] = np.array(labels)
        arrays[f"{stage}/information"] = np.zeros(len(labels))
    np.savez_compressed(run / "evaluations.npz", **arrays)


def test_the_best_snapshot_of_all_stages_by_hand() -> None:
    snapshots = {"one/labels": np.array([BAD, FAIR]), "two/labels": np.array([BAD, GOOD, FAIR])}
    assert best_snapshot(snapshots, CLASSES) == Oracle("two", 2, 1.0, 5, 4)
    assert best_snapshot({"one/labels": snapshots["one/labels"]}, CLASSES) == Oracle("one", 2, 0.75, 2, 4)


def test_finds_the_oracle_of_a_run(tmp_path: Path) -> None:
    keep(tmp_path, one=[BAD, GOOD], two=[FAIR])
    assert find_oracle(tmp_path, named(("a", "b", "c", "d")), CLASSES) == Oracle("one", 2, 1.0, 3, 4)


def test_samples_are_matched_by_id_whatever_their_order_and_number(tmp_path: Path) -> None:
    keep(tmp_path, one=[FAIR, GOOD])
    mixed = ("d", "x", "a", "c", "b")
    classes = np.array([1, 9, 0, 1, 0])
    assert find_oracle(tmp_path, named(mixed), classes) == Oracle("one", 2, 1.0, 2, 4)
    # Of a, b and c alone the first snapshot is perfect too; the later of equals is named.
    assert find_oracle(tmp_path, named(("a", "b", "c")), np.array([0, 0, 1])) == Oracle("one", 2, 1.0, 2, 3)
    assert find_oracle(tmp_path, named(("c", "d")), np.array([1, 1])) == Oracle("one", 2, 1.0, 2, 2)


def test_without_common_samples_or_predictions_there_is_no_oracle(tmp_path: Path) -> None:
    assert find_oracle(tmp_path, named(("a",)), np.array([0])) is None
    keep(tmp_path, one=[GOOD])
    assert find_oracle(tmp_path, named(("x", "y")), np.array([0, 1])) is None
    other_contents = named(("a", "b", "c", "d"), salt=0.5)
    assert find_oracle(tmp_path, other_contents, CLASSES) is None


@pytest.mark.parametrize("kind", ["empty", "text", "cut", "no ids"])
def test_damaged_predictions_are_an_error_in_words(tmp_path: Path, kind: str) -> None:
    keep(tmp_path, one=[GOOD])
    path = tmp_path / "evaluations.npz"
    whole = path.read_bytes()
    if kind == "no ids":
        np.savez(path, other=np.zeros(3))
    else:
        path.write_bytes({"empty": b"", "text": b"junk", "cut": whole[: len(whole) // 2]}[kind])
    with pytest.raises(DamagedFileError, match=r"evaluations\.npz is damaged"):
        find_oracle(tmp_path, named(("a", "b", "c", "d")), CLASSES)


def report(**changes: Any) -> Report:
    scores = ClusteringScores(0.75, 0.5, 0.25)
    values: dict[str, Any] = {
        "run": "clinic",
        "samples": 1234,
        "n_clusters": 3,
        "n_classes": 2,
        "overall": scores,
        "domains": {"a": scores, "longer": ClusteringScores(1.0, 1.0, 1.0)},
        "oracle": Oracle("learn-source", 7, 0.8, 10, 1234),
    }
    return Report(**values | changes)


def test_a_report_in_words() -> None:
    assert report().summary().splitlines() == [
        "clinic: 1,234 samples, 3 clusters, 2 classes",
        "  all     accuracy  75.0  NMI  50.0  ARI  25.0",
        "  a       accuracy  75.0  NMI  50.0  ARI  25.0",
        "  longer  accuracy 100.0  NMI 100.0  ARI 100.0",
        "  oracle (not used): 80.0 on 1,234 samples, which ground truth would have chosen from 10 snapshots: "
        "evaluation 7 of learn-source",
    ]
    one = report(domains={"a": ClusteringScores(0.75, 0.5, 0.25)}, oracle=None)
    assert len(one.summary().splitlines()) == 2  # a single domain is not told twice


def test_a_report_as_json() -> None:
    found = json.loads(json.dumps(report().to_dict()))
    assert found["domains"]["longer"] == {"accuracy": 1.0, "nmi": 1.0, "ari": 1.0}
    assert found["oracle"]["stage"] == "learn-source"
    assert found.keys() == {"run", "samples", "n_clusters", "n_classes", "overall", "domains", "oracle"}


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
        settings=PCDSettings(tune="head", source_epochs=2, bottleneck_width=8),
        options=RunOptions(),
        compute=Compute(cache=root / "cache"),
    )
    return root


def opened(root: Path) -> Inputs:
    return open_for_training(
        find_samples(root / "data", by_domain=True), ENCODER, Compute(cache=root / "cache")
    )


def evaluated(root: Path, data: str = "data", out: Path | None = None) -> Report:
    return evaluate(root / "run", root / data, out, compute=Compute("cpu", cache=root / "cache"))


@pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning")
def test_scores_are_those_of_the_models_predictions_domain_by_domain(source_run: Path) -> None:
    stored = load_model(source_run / "run")
    inputs = opened(source_run)
    samples = inputs.data.samples
    runtime = Runtime(Compute("cpu", cache=None))
    labels = predict(stored.model, inputs.data, runtime, 7).argmax(-1).numpy()
    classes = np.array([int("dark" in name) for name in samples.ids])
    found = evaluated(source_run)
    assert found.overall == score(labels, classes)
    assert found.domains == {
        "one": score(labels[:12], classes[:12]),
        "two": score(labels[12:], classes[12:]),
    }
    assert (found.run, found.samples, found.n_clusters, found.n_classes) == ("run", 20, 3, 2)
    assert found.oracle is not None  # of the samples that were set aside for validation
    assert found.oracle.snapshots == 2
    assert json.loads((source_run / "run" / "evaluation.json").read_text()) == found.to_dict()


def test_the_scores_are_written_where_asked(source_run: Path, tmp_path: Path) -> None:
    found = evaluated(source_run, out=tmp_path / "scores.json")
    assert json.loads((tmp_path / "scores.json").read_text()) == found.to_dict()


def test_data_without_classes_cannot_be_scored(source_run: Path) -> None:
    for i in range(2):
        path = source_run / "flat" / f"domain{i}" / "x.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), (50 * i, 0, 0)).save(path)
    with pytest.raises(UserError, match="has no class folders to score against"):
        evaluated(source_run, "flat")
