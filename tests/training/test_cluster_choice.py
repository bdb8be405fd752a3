"""Tests of numbers of clusters that are chosen: commands, functions and estimators choose alike."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quick import quick

import ucds
from ucds import InputError, SourceClustering, TargetClustering, UcdsWarning
from ucds.choices import ClusterRange, read_clusters
from ucds.training.run import TrainedRun

BRIEF = quick(bottleneck_width=8)
CPU = ucds.RunOptions()
N, K = 60, 5


def vectors(n: int = N, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Samples of five far groups."""
    rng = np.random.default_rng(seed)
    return (np.eye(8)[np.arange(n) % K] + 0.08 * rng.normal(size=(n, 8)) + 2).astype(np.float32)


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", vectors())
    return tmp_path / "x.npy"


def test_what_asks_for_a_number_is_read() -> None:
    assert read_clusters(7) == read_clusters(" 7") == 7
    assert (read_clusters(1), read_clusters("2", least=2)) == (1, 2)  # the least number itself is one
    assert read_clusters("auto") == ClusterRange(2, None)
    assert read_clusters("3..40") == read_clusters("3 .. 40") == ClusterRange(3, 40)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("auto:1", "an integer, 'auto', or a range such as 3..40, not 'auto:1'"),
        ("3.5", "is an integer, 'auto', or a range"),
        ("", "is an integer, 'auto', or a range"),
        ("0", "at least 1"),
        ("1..3", "begin at 2 or more, and end at a larger number"),
        ("5..5", "begin at 2 or more, and end at a larger number"),
    ],
)
def test_what_names_no_number_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_clusters(text)


def test_what_names_no_number_is_refused_before_any_work(samples: Path, tmp_path: Path) -> None:
    for train in (ucds.train_target, ucds.train_source):
        for number, words in (("many", "is an integer, 'auto', or a range"), (1, "at least 2")):
            with pytest.raises(InputError, match=words):
                train(samples, tmp_path / "run", n_clusters=number)
    assert not (tmp_path / "run").exists()


def test_the_function_and_the_estimator_choose_the_same_number(samples: Path, tmp_path: Path) -> None:
    own = ucds.train_target(samples, tmp_path / "own", n_clusters="auto", settings=BRIEF, options=CPU)
    fitted = TargetClustering("auto", random_state=0, accelerator="cpu", settings=BRIEF)
    fitted.fit(np.load(samples))
    assert own.n_clusters == fitted.n_clusters_ == len(fitted.prototypes_) == K
    np.testing.assert_array_equal(
        fitted.labels_, ucds.load(tmp_path / "own", compute=ucds.Compute("cpu")).predict(samples)
    )
    evidence = json.loads((tmp_path / "own/clusters.json").read_text())
    assert (evidence["asked"], evidence["number"], evidence["clear"]) == ("auto", K, True)
    assert evidence["low"] <= K <= evidence["high"]
    assert evidence["candidates"] == list(range(2, 7))


def test_a_resumed_run_keeps_its_number_and_must_ask_for_the_same(samples: Path, tmp_path: Path) -> None:
    def train(asked: str) -> TrainedRun:
        options = ucds.RunOptions(resume=(tmp_path / "run").exists())
        return ucds.train_target(samples, tmp_path / "run", n_clusters=asked, settings=BRIEF, options=options)

    assert train("4..6").n_clusters == K
    assert train("4..6").resumed_finished
    evidence = tmp_path / "run/clusters.json"
    evidence.write_text(evidence.read_text().replace(f'"number": {K}', '"number": 4'))
    (tmp_path / "run/model.safetensors").unlink()
    assert train("4..6").n_clusters == 4
    with pytest.raises(InputError, match="its clusters is '4..6', not 'auto'"):
        train("auto")


def test_the_provider_chooses_a_number_that_all_domains_share() -> None:
    domains = [vectors(60), vectors(60, 1) + np.float32(0.2)]
    fitted = SourceClustering("4..6", random_state=0, accelerator="cpu", settings=BRIEF)
    fitted.fit(np.concatenate(domains), sample_domain=np.repeat(["a", "b"], 60))
    assert fitted.n_clusters_ == K
    assert fitted.label(vectors(10)).n_clusters == K


@pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning")
@pytest.mark.torch
def test_pcd_gets_the_number_in_the_same_way(samples: Path, tmp_path: Path) -> None:
    settings = ucds.PCDSettings(tune="head", refinement_epochs=1, bottleneck_width=8)
    found = ucds.train_target(samples, tmp_path / "run", n_clusters="4..6", settings=settings, options=CPU)
    assert found.n_clusters == K
    labels = np.arange(N) % 3
    with pytest.raises(InputError, match="the provider's labels fix the number of clusters"):
        TargetClustering("auto", method="pcd").fit(vectors(), source_labels=labels)


def test_a_private_model_needs_a_number_that_its_samples_did_not_choose() -> None:
    private = SourceClustering("auto", settings={"dp_epsilon": 1.0})
    with pytest.raises(InputError, match="with `dp_epsilon`, give `n_clusters` as a number"):
        private.fit(vectors())


def test_labels_of_a_provider_play_no_part_in_the_choice() -> None:
    fitted = TargetClustering("4..6", random_state=0, accelerator="cpu", settings=BRIEF)
    assert fitted.fit(vectors(), source_labels=np.arange(N) % 20).n_clusters_ == K


def test_too_few_samples_for_a_choice_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "few.npy", vectors(29))
    with pytest.raises(InputError, match="29 different samples .* too few to choose .* as a number"):
        ucds.train_target(tmp_path / "few.npy", tmp_path / "run", n_clusters="auto", options=CPU)
    assert not (tmp_path / "run").exists()
    copies = np.repeat(vectors(25), 4, axis=0)
    with pytest.raises(InputError, match="25 different samples"):
        TargetClustering("auto").fit(copies)
    with pytest.raises(InputError, match="60 different samples .* at most 12 clusters, not 101"):
        TargetClustering("2..101").fit(vectors())


def test_where_no_number_stands_out_the_client_gets_the_finest_good_one(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).normal(size=(60, 24)).astype(np.float32)
    given: dict[str, Any] = {"n_clusters": "2..4", "settings": BRIEF, "options": CPU}
    with pytest.warns(UcdsWarning, match="2 to 4 are about as good: you get 4; join clusters in `ucds rev"):
        found = ucds.train_target(noise, tmp_path / "run", **given)
    kept = json.loads((tmp_path / "run/clusters.json").read_text())
    assert (found.n_clusters, kept["number"], kept["low"], kept["high"]) == (4, 4, 2, 4)
    assert not kept["clear"]


def test_a_provider_has_nobody_to_join_clusters_and_gets_the_best_number() -> None:
    noise = np.random.default_rng(0).normal(size=(60, 24)).astype(np.float32)
    with pytest.warns(UcdsWarning, match="2 to 4 are about as good: choose `n_clusters` by what you need"):
        found = SourceClustering("2..4", random_state=0, settings=BRIEF).fit(noise)
    assert found.n_clusters_ < 4
