"""Tests of the baselines as methods: what each sees, and what becomes of its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grid_kit import make_machine, run_inline, small, write_pictures
from sklearn.preprocessing import normalize

from ucds.backbones import identity_backbone
from ucds.baselines.clustering import Clustering
from ucds.baselines.settings import DeepClusterSettings, KMeansSettings
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.data.views import VectorView
from ucds.experiments import runner as module
from ucds.experiments.baseline_methods import on_target
from ucds.experiments.methods import METHODS, run_methods
from ucds.experiments.pipeline import Pipeline, Task, TaskOptions
from ucds.experiments.records import FILE, read_records
from ucds.experiments.runner import run_benchmark
from ucds.training.progress import Quiet

QUICK = """
[settings.deepcluster]
epochs = 2
batch_size = 6
principal_components = 4
[settings.iic]
epochs = 1
batch_size = 6
repeats = 1
sub_heads = 2
[settings.acids]
source_epochs = 1
target_epochs = 1
batch_size = 8
sub_heads = 2
"""


WITHOUT_PCD = dict.fromkeys(("clustering_epochs", "refinement_epochs", "evaluations_per_stage"), "")
"""The small benchmark without the settings that no baseline has."""


def test_every_baseline_runs_in_a_grid_and_keeps_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "run_jobs", run_inline)
    machine = make_machine(tmp_path)
    write_pictures(tmp_path / "data", ["a", "b", "c"])
    names = ["deepcluster", "iic", "acids"]
    asked = small(tmp_path, QUICK, methods=f"methods = {names}", seeds="seeds = [0]", **WITHOUT_PCD)
    assert run_benchmark(asked, tmp_path / "out", machine, Quiet()) == len(names)
    found = {record["method"]: record for record in read_records(tmp_path / "out" / FILE)}
    assert list(found) == names
    for method, record in found.items():
        assert record["settings"].items() >= asked.settings[method].items()
        assert 0 < record["accuracy"] <= 1
        assert record["parameters"] > 0
        assert record["images_per_second"] > 0
    assert found["iic"]["settings"]["repeats"] == 1
    # Both heads of two sub-heads each, 8 x 3 and 8 x 21, where IIC keeps one sub-head.
    assert found["acids"]["parameters"] - found["iic"]["parameters"] == 2 * 8 * (3 + 21) - 8 * 3
    assert run_benchmark(asked, tmp_path / "out", machine, Quiet()) == 0
    others = asked.model_copy(update={"settings": asked.settings | {"iic": {"epochs": 2}}})
    assert run_benchmark(others, tmp_path / "out", machine, Quiet()) == 1


@pytest.mark.parametrize("from_scratch", [False, True])
def test_on_the_target_alone_from_the_encoder_or_from_scratch(from_scratch: bool, picture_task: Task) -> None:
    seen: list[Any] = []

    def cluster(session: Any, backbone: Any, data: Any, n_clusters: int, *, cache: Any) -> Clustering:
        seen.append((session, backbone))
        assert data is picture_task.target
        assert n_clusters == picture_task.n_clusters
        return Clustering(np.zeros(len(data.samples), np.int64), 1.0, 10, backbone.module)

    run = on_target(DeepClusterSettings, cluster, from_scratch=from_scratch)
    settings = DeepClusterSettings(tune="head", epochs=7)
    for seed in (3, 4):
        outcome = run(Pipeline(picture_task, TaskOptions((settings,), seed, accelerator="cpu")))
        assert (outcome.seconds, outcome.images) == (1.0, 10)
    (session, backbone), (_, other) = seen
    assert (session.runtime.seed, session.settings.epochs) == (3, 7)
    if not from_scratch:
        assert session.settings == settings
        assert backbone.spec.name == "ucds/oriented_edges"
        return
    # A random encoder cannot stay frozen, and every seed has its own.
    assert session.settings.tune == "full"
    assert backbone.weights == "none (random)"
    weights = [next(built.module.parameters()).detach().numpy() for built in (backbone, other)]
    assert not np.array_equal(*weights)


def test_kmeans_has_as_many_starts_as_its_settings_say() -> None:
    samples = VectorSamples(np.random.default_rng(0).normal(size=(200, 5)).astype(np.float32))
    data = Dataset(samples, VectorView())
    task = Task(data, data, lambda: identity_backbone(5), 12)
    vectors, inertia = normalize(samples.read(np.arange(200)).numpy()), {}
    for starts in (1, 30):
        options = TaskOptions((KMeansSettings(restarts=starts),), 0, "cpu")
        (outcome,) = run_methods(task, options, ["kmeans"])
        parts = [vectors[outcome.labels == k] for k in range(12)]
        inertia[starts] = sum(((part - part.mean(0)) ** 2).sum() for part in parts)
    assert inertia[30] < inertia[1]


def test_baselines_come_with_their_original_track() -> None:
    assert {name for name in METHODS if METHODS[name].encoders == "none"} == {
        "deepcluster-original",
        "iic-original",
        "acids-original",
    }
