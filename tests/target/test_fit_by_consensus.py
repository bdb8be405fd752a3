"""Tests of `fit_target_by_consensus`: alone, with labels, stopped and resumed."""

import json
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from quick import Listener, quick

from ucds.choices import OpinionChoices
from ucds.config import MethodSettings
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.encoders.encoder import IdentityEncoder
from ucds.heads import Head, softmax
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.metrics import score
from ucds.target.remembered import read_remembered
from ucds.target.train import fit_target
from ucds.training.fitting import LOGIT_SCALE
from ucds.training.options import Compute
from ucds.training.results import StageResult
from ucds.training.run_folder import RunFolder
from ucds.training.work import Work

N, K, WIDTH = 80, 4, 8
TRUTH = np.arange(N) % K
PROVIDERS = (TRUTH + 1) % K


def blob_data(n: int = N) -> Dataset:
    rng = np.random.default_rng(0)
    vectors = np.eye(WIDTH)[np.arange(n) % K] + 0.08 * rng.normal(size=(n, WIDTH)) + 2
    return Dataset(VectorSamples(vectors.astype(np.float32)))


def given(labels: np.ndarray, rows: np.ndarray | None = None) -> ClusterLabels:
    rows = np.arange(N) if rows is None else rows
    return ClusterLabels(tuple(str(i) for i in rows), labels[rows], K, "p")


class Trained(NamedTuple):
    """A fitted head, the results of its stages, and what was said meanwhile."""

    head: Head
    results: Sequence[StageResult]
    said: list[str]


def train(
    labels: ClusterLabels | None = None,
    *,
    folder: Path | None = None,
    data: Dataset | None = None,
    seed: int = 0,
    **given: Any,
) -> Trained:
    settings = quick(**{"bottleneck_width": 10} | given)
    data, run, listener = data or blob_data(), None, Listener()
    aligned = None if labels is None else labels.align(data.samples.ids)
    with ExitStack() as stack:
        if folder is not None:
            run = stack.enter_context(closing(RunFolder(folder)))
            run.open({}, resume=folder.exists())
        compute = Compute("cpu", cache=None, reporter=listener)
        work: Work[MethodSettings] = Work(settings, compute, seed=seed, folder=run)
        head = fit_target(work, IdentityEncoder(WIDTH), data, K, aligned).head
        return Trained(head, work.results, listener.said)


def predicted(head: Head, data: Dataset | None = None) -> np.ndarray:
    vectors = (data or blob_data()).samples
    return head.logits(head.features(vectors.read(np.arange(len(vectors))))).argmax(1)


def accuracy(head: Head) -> float:
    return score(predicted(head), TRUTH).accuracy


@pytest.mark.parametrize("labels", [None, given(PROVIDERS)], ids=["alone", "with labels"])
def test_blobs_are_found_and_every_stage_says_so(labels: ClusterLabels | None) -> None:
    head, results, _ = train(labels)
    assert accuracy(head) == 1
    assert [result.name for result in results] == ["agree", "fit-target"]
    for result in results:
        np.testing.assert_allclose(result.proportions, np.full((1, K), 1 / K), atol=0.02)
        np.testing.assert_array_equal(result.evaluations[result.selected].labels, predicted(head))
    agreed = results[0].assignments
    np.testing.assert_allclose(agreed.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(agreed.argmax(1), predicted(head))


def test_the_start_looks_from_the_mean_at_the_middle_of_each_cluster() -> None:
    """The cosine-like logits by hand: no axis is left out, so that axes are a rotation."""
    start = train().results[0]
    moved = blob_data().samples.read(np.arange(N))
    moved = moved / np.linalg.norm(moved, axis=1, keepdims=True)
    moved -= moved.mean(0)
    middles = start.assignments.T @ (moved / np.linalg.norm(moved, axis=1, keepdims=True))
    middles /= np.linalg.norm(middles, axis=1, keepdims=True)
    expected = softmax(LOGIT_SCALE * moved @ middles.T)
    entropy = float(-(expected * np.log(expected)).sum(1).mean())
    assert start.evaluations[0].conditional_entropy == pytest.approx(entropy, rel=1e-4)


def test_the_stability_of_the_clusters_is_told_and_written(tmp_path: Path) -> None:
    said, second = train(folder=tmp_path / "run", second_opinion=OpinionChoices()).said
    assert not (tmp_path / "run" / "transfer.json").exists()
    assert json.loads((tmp_path / "run" / "stability.json").read_text()) == {
        "own_agreement": pytest.approx(1),
        "doubtful": False,
        "overconfident": False,
        "second_opinion": {"taken": True, "agreement": pytest.approx(1), "sentence": second},
    }
    assert "agrees with the clusters to 1.00 of 1, and was taken into account" in second
    assert "agree well (1.00 of 1)" in said


def test_what_the_vote_knew_is_remembered(tmp_path: Path) -> None:
    train(given(PROVIDERS), folder=tmp_path / "run", transfer="equal")
    known, _ = read_remembered(tmp_path / "run")
    assert known.ids == tuple(blob_data().samples.ids)
    assert known.labels is not None
    assert known.labels.shape == (N, PROVIDERS.max() + 1)
    assert (tmp_path / "run" / "votes.npz").stat().st_size < 2**20
    train(None, folder=tmp_path / "alone")
    assert read_remembered(tmp_path / "alone")[0].labels is None


@pytest.mark.parametrize(
    ("limit", "doubt", "words"),
    [
        ("GROUPLESS", "doubtful", "the clusters may be chance"),
        ("SETTLED", "overconfident", "fewer samples are in the right cluster than the confidence"),
    ],
)
def test_a_client_is_told_what_to_doubt(
    limit: str, doubt: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"ucds.target.agreement.{limit}", 1.1)
    said = train(folder=tmp_path / "run").said
    assert json.loads((tmp_path / "run" / "stability.json").read_text())[doubt]
    assert words in said[0]


@pytest.mark.filterwarnings("ignore:30 of 400 samples have a label")
def test_of_many_samples_some_are_clustered_and_the_model_answers_for_all(tmp_path: Path) -> None:
    data, truth = blob_data(400), np.arange(400) % K
    asked = np.arange(300, 330)
    labels = ClusterLabels(tuple(str(i) for i in asked), truth[asked], K, "p")
    head, results, said = train(labels, folder=tmp_path / "run", data=data, most_samples=120)
    assert (predicted(head, data) == predicted(head, data)[:K][truth]).all()
    assert results[0].assignments.shape == (120, K)
    assert "120 of 400 samples, drawn at random (setting most_samples), are clustered" in said[0]
    inside = "the model agrees with the clustering on 100.0% of the clustered samples"
    assert f"{inside}, and on an estimated 100.0% of the others" in said
    ids = set(read_remembered(tmp_path / "run")[0].ids)
    assert {str(i) for i in asked} < ids
    assert json.loads((tmp_path / "run" / "transfer.json").read_text())["labelled"] == 30


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_as_many_samples_as_clusters_are_enough() -> None:
    """They need not all stay apart: a sample is averaged with one neighbour at least."""
    head, results, _ = train(data=blob_data(K))
    assert set(predicted(head, blob_data(K))) <= set(range(K))
    assert np.isfinite(head.prototypes).all()
    np.testing.assert_allclose(results[0].assignments.sum(1), 1, rtol=1e-5)


def test_the_seed_decides() -> None:
    noise = np.random.default_rng(3).normal(size=(N, WIDTH)).astype(np.float32)
    data = Dataset(VectorSamples(noise))
    found = [train(data=data, seed=seed).head.prototypes for seed in (0, 0, 1)]
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])
