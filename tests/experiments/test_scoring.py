"""Tests of a record's figures, by hand."""

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from ucds.experiments.pipeline import Outcome
from ucds.experiments.scoring import column_of, measure
from ucds.math.metrics import score
from ucds.training.results import Evaluation, StageResult

pytestmark = pytest.mark.torch


def evaluation(labels: Sequence[int], step: int = 5) -> Evaluation:
    return Evaluation(step, np.array(labels), 1.0, 0.5, 2, 2)


def outcome(labels: Sequence[int], *stages: StageResult) -> Outcome:
    return Outcome(np.array(labels), 1.23456, stages, parameters=7, images=100, method="pcd")


def stage(
    name: str, snapshots: Sequence[Sequence[int]], proportions: Sequence[float], selected: int = 0
) -> StageResult:
    evaluations = [evaluation(labels, 5 * place) for place, labels in enumerate(snapshots, start=1)]
    return StageResult(name, evaluations, selected, np.array([proportions], np.float32), 0.5)


STAGES = (
    stage("learn-source", [[0, 0, 0, 1]], [0.5, 0.5]),
    stage("cluster-target", [[1, 1, 0, 0], [1, 1, 1, 0]], [0.3, 0.7], selected=0),
    stage("refine-target", [[1, 1, 0, 0]], [0.4, 0.6]),
)
CLASSES = np.array([0, 0, 0, 1])


def test_a_record_by_hand() -> None:
    found = measure(outcome([1, 1, 0, 0], *STAGES), CLASSES, ("x", "y"))
    expected = score(np.array([1, 1, 0, 0]), CLASSES)
    assert (found["accuracy"], found["nmi"], found["ari"]) == (0.75, expected.nmi, expected.ari)
    assert found["seconds"] == 1.235
    assert list(found["stage_seconds"]) == ["learn-source", "cluster-target", "refine-target"]
    assert found["parameters"] == 7
    assert found["images_per_second"] == 81.0  # 100 / 1.23456
    # The oracle chooses among snapshots of the target, not those of the source (which agree by chance).
    assert found["oracle_accuracy"] == 1.0
    # Cluster 1 is class 0: estimated (0.6, 0.4) against true (0.75, 0.25) and uniform (0.5, 0.5).
    assert found["proportions_l1"] == pytest.approx(0.3, abs=1e-6)
    assert found["uniform_l1"] == pytest.approx(0.5)
    # Each cluster holds two of the four samples.
    assert found["cluster_sizes_l1"] == pytest.approx(0.5)
    assert found["estimate_error_l1"] == pytest.approx(0.2, abs=1e-6)
    assert found["classes"] == ["x", "y"]
    assert found["true_proportions"] == [0.75, 0.25]
    assert found["estimated_proportions"] == [0.6, 0.4]
    assert found["peak_memory_mib"] > 10
    json.dumps(found)


def test_methods_without_stages_have_no_oracle() -> None:
    plain = replace(outcome([0, 0, 1, 1]), images=0)
    found = measure(plain, np.array([0, 0, 1, 1]), ("x", "y"))
    assert (found["accuracy"], found["cluster_sizes_l1"]) == (1.0, 0.0)
    of_stages = {"oracle_accuracy", "proportions_l1"}
    assert not found.keys() & {*of_stages, "images_per_second"}


def test_a_score_of_zero_counts_in_means_and_zero_seconds_do_not() -> None:
    scores = {"accuracy": 0.5, "nmi": 0.25, "ari": 0.125, "oracle_accuracy": 0.0}
    record = scores | {"seconds": 0.0, "parameters": 0}
    shown = [column_of(record, name) for name in (*record, "uniform_l1")]
    assert shown == [50.0, 25.0, 12.5, 0.0, None, None, None]
    assert column_of({"images_per_second": 32.0}, "seconds_per_batch") == 2
