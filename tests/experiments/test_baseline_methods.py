"""Tests of the baselines as methods: what each sees, and what becomes of its settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grid_kit import make_place, run_inline, small, write_pictures

from ucds.baselines import acids as acids_module
from ucds.baselines import deepcluster as deepcluster_module
from ucds.baselines import iic as iic_module
from ucds.baselines.clustering import Clustering
from ucds.config import PCDSettings
from ucds.experiments import benchmark as module
from ucds.experiments.methods import METHODS, run_methods, settings_of
from ucds.experiments.pipeline import Setting, Task
from ucds.experiments.records import FILE, read_records
from ucds.experiments.runner import run_benchmark
from ucds.training.progress import Quiet

QUICK = """
[baselines.deepcluster]
epochs = 2
batch_size = 6
principal_components = 4
[baselines.iic]
epochs = 1
batch_size = 6
repeats = 1
sub_heads = 2
[baselines.acids]
source_epochs = 1
target_epochs = 1
batch_size = 8
sub_heads = 2
"""


def test_every_baseline_runs_in_a_grid_and_keeps_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "run_jobs", run_inline)
    place = make_place(tmp_path)
    write_pictures(tmp_path / "data", ["a", "b", "c"])
    asked = small(tmp_path, QUICK, methods='methods = ["deepcluster", "iic", "acids"]', seeds="seeds = [0]")
    assert run_benchmark(asked, tmp_path / "out", place, Quiet()) == 3
    found = {record["method"]: record for record in read_records(tmp_path / "out" / FILE)}
    assert list(found) == ["deepcluster", "iic", "acids"]
    for method, record in found.items():
        assert record["baseline"] == settings_of(method, asked.baselines)
        assert 0 < record["accuracy"] <= 1
        assert record["parameters"] > 0
        assert record["images_per_second"] > 0
    assert found["iic"]["baseline"]["repeats"] == 1
    # Both heads of two sub-heads each, 8 x 3 and 8 x 21, where IIC keeps one sub-head.
    assert found["acids"]["parameters"] - found["iic"]["parameters"] == 2 * 8 * (3 + 21) - 8 * 3
    assert run_benchmark(asked, tmp_path / "out", place, Quiet()) == 0
    others = asked.model_copy(update={"baselines": asked.baselines | {"iic": {"epochs": 2}}})
    assert run_benchmark(others, tmp_path / "out", place, Quiet()) == 1


def test_settings_are_the_baselines_own_with_its_defaults() -> None:
    found = settings_of("acids-original", {"acids": {"source_epochs": 3}, "iic": {"epochs": 5}})
    assert found is not None
    assert found["source_epochs"] == 3
    assert found["target_epochs"] == acids_module.ACIDSSettings().target_epochs
    assert settings_of("pcd", {"acids": {}}) is None


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the baselines are given, in place of running them."""
    calls: list[Any] = []

    def cluster(session: Any, backbone: Any, data: Any, *rest: Any, **options: Any) -> Clustering:
        calls.append((session.settings, backbone, data))
        return Clustering(np.zeros(len(data.samples), np.int64), 1.0, 10, backbone.module)

    monkeypatch.setattr(deepcluster_module, "cluster_by_deepcluster", cluster)
    monkeypatch.setattr(iic_module, "cluster_by_iic", cluster)
    return calls


@pytest.mark.parametrize("method", ["deepcluster", "iic"])
def test_on_the_target_alone_from_the_encoder_or_from_scratch(
    method: str, seen: list[Any], picture_task: Task
) -> None:
    setting = Setting(PCDSettings(tune="head"), seed=3, accelerator="cpu")
    for name in (method, f"{method}-original"):
        (outcome,) = run_methods(picture_task, setting, [name])
        assert (outcome.seconds, outcome.images) == (1.0, 10)
    (config, backbone, data), (whole, scratch, also) = seen
    assert data is also is picture_task.target
    assert config.tune == "head"
    assert backbone.spec.name == "ucds/oriented_edges"
    # A random encoder cannot stay frozen, and every seed has its own.
    assert whole.tune == "full"
    assert scratch.weights == "none (random)"
    list(run_methods(picture_task, replace(setting, seed=4), [f"{method}-original"]))
    weights = [next(call[1].module.parameters()) for call in seen[1:]]
    assert not np.array_equal(*(weight.detach().numpy() for weight in weights))


def test_baselines_come_with_their_original_track() -> None:
    assert {name for name in METHODS if METHODS[name].encoders == "none"} == {
        "deepcluster-original",
        "iic-original",
        "acids-original",
    }
