"""Tests of the benchmark grid: its file, its records, and how it is taken up again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from ucds.config import Config
from ucds.data.vectors import VectorSamples
from ucds.data.views import VectorView
from ucds.errors import UserError
from ucds.experiments import benchmark as module
from ucds.experiments.benchmark import (
    Benchmark,
    Place,
    append_records,
    has_settings,
    measure,
    read_benchmark,
    read_records,
    run_benchmark,
)
from ucds.experiments.methods import Outcome
from ucds.metrics import score
from ucds.training.health import Evaluation
from ucds.training.launch import CacheOptions
from ucds.training.progress import Quiet
from ucds.training.session import StageResult
from ucds.training.stage import TrainingData

TOML = """
title = "Small"
[grid]
backbone = "ucds/oriented_edges"
targets = ["a"]
methods = ["kmeans", "po"]
seeds = [0, 1]
[settings]
tune = "head"
bottleneck_width = 8
[paper]
po = { a = 14.1 }
"""


def small(tmp_path: Path, **replaced: str) -> Benchmark:
    text = TOML
    for old, new in replaced.items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"{old} =")]
        text = text.replace(line, new)
    (tmp_path / "small.toml").write_text(text)
    return read_benchmark(tmp_path / "small.toml")


def test_reads_a_benchmark(tmp_path: Path) -> None:
    found = small(tmp_path)
    assert found.grid.targets == ("a",)
    assert found.grid.seeds == (0, 1)
    assert found.settings == {"tune": "head", "bottleneck_width": 8}
    assert found.paper == {"po": {"a": 14.1}}


def test_all_methods_and_five_seeds_are_the_default(tmp_path: Path) -> None:
    found = small(tmp_path, methods="", seeds="")
    assert found.grid.methods == ("kmeans", "po", "so", "to", "ao", "pcd")
    assert found.grid.seeds == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("replaced", "words"),
    [
        ({"methods": 'methods = ["po", "dine"]'}, "unknown methods dine; known: kmeans, po"),
        ({"targets": "targets = []"}, "grid.targets: "),
        ({"targets": 'targets = "a"'}, "grid.targets: "),
        ({"targets": ""}, "grid.targets: "),
        ({"seeds": "seed = [0]"}, "grid.seed: "),
        ({"title": ""}, "title: "),
        ({"tune": 'tune = "tail"'}, "tune: "),
        ({"tune": "epochs = 3"}, "unknown setting 'epochs'"),
        ({"po": 'po = { a = "good" }'}, "paper.po.a: "),
        ({"title": "title Small"}, "is not TOML"),
    ],
)
def test_a_benchmark_with_mistakes_is_refused(tmp_path: Path, replaced: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        small(tmp_path, **replaced)


def test_a_missing_benchmark_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read the benchmark .*absent\.toml"):
        read_benchmark(tmp_path / "absent.toml")


def test_every_config_of_the_project_can_be_read() -> None:
    configs = sorted((Path(__file__).parents[2] / "configs").glob("*.toml"))
    assert configs
    for path in configs:
        assert read_benchmark(path).title


def test_records_are_appended_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "runs.jsonl"
    assert read_records(path) == []
    append_records(path, [{"a": 1}, {"a": 2}])
    before = path.read_bytes()
    append_records(path, [{"a": 3, "text": "ä\n"}])
    assert read_records(path) == [{"a": 1}, {"a": 2}, {"a": 3, "text": "ä\n"}]
    assert path.read_bytes().startswith(before)


@pytest.mark.parametrize("torn", [b'{"a": 2, "b', b'{"a": 2}', b"\x00\x00"])
def test_a_torn_last_line_is_passed_over_and_replaced(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "runs.jsonl"
    append_records(path, [{"a": 1}])
    with path.open("ab") as file:
        file.write(torn)
    assert read_records(path) == [{"a": 1}]
    append_records(path, [{"a": 3}])
    assert read_records(path) == [{"a": 1}, {"a": 3}]


def test_a_file_with_nothing_but_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b'{"a"')
    assert read_records(path) == []
    append_records(path, [{"a": 1}])
    assert read_records(path) == [{"a": 1}]


@pytest.mark.parametrize("line", ["{half", "", "not json"])
def test_a_finished_line_that_is_no_record_is_an_error(tmp_path: Path, line: str) -> None:
    (tmp_path / "runs.jsonl").write_text(f'{{"a": 1}}\n{line}\n{{"a": 2}}\n')
    with pytest.raises(UserError, match="holds a line that is no record"):
        read_records(tmp_path / "runs.jsonl")


def test_records_belong_to_settings() -> None:
    config = Config(epsilon=0.02)
    record: dict[str, Any] = {"config": config.model_dump()}
    assert has_settings(record, config)
    assert has_settings(json.loads(json.dumps(record)), config)
    assert not has_settings(record, Config(epsilon=0.03))
    assert not has_settings(record, Config())


def test_settings_younger_than_a_record_had_their_defaults() -> None:
    old = Config().model_dump()
    del old["ensemble_momentum"]
    assert has_settings({"config": old}, Config())
    assert not has_settings({"config": old}, Config(ensemble_momentum=0.3))
    assert not has_settings({"config": old | {"forgotten": 1}}, Config())


def evaluation(labels: Sequence[int]) -> Evaluation:
    return Evaluation(1, torch.tensor(labels), 1.0, 0.5, 2, 2)


def outcome(labels: Sequence[int], *stages: StageResult) -> Outcome:
    nothing = TrainingData(VectorSamples(np.zeros((1, 1), np.float32)), VectorView())
    return Outcome("pcd", np.array(labels), 1.23456, stages, None, nothing)


def stage(name: str, snapshots: Sequence[Sequence[int]], proportions: Sequence[float]) -> StageResult:
    state = {"proportions": torch.tensor([proportions])}
    return StageResult(name, [evaluation(labels) for labels in snapshots], 0, state, 0.5)


def test_a_record_by_hand() -> None:
    classes = np.array([0, 0, 0, 1])
    labels = [1, 1, 0, 0]
    stages = (
        stage("learn-source", [[0, 0, 0, 1]], [0.5, 0.5]),
        stage("cluster-target", [[1, 1, 0, 0], [1, 0, 1, 0]], [0.3, 0.7]),
        stage("refine-target", [[1, 1, 0, 0]], [0.4, 0.6]),
    )
    found = measure(outcome(labels, *stages), classes, 2)
    expected = score(np.array(labels), classes)
    assert (found["accuracy"], found["nmi"], found["ari"]) == (0.75, expected.nmi, expected.ari)
    assert found["seconds"] == 1.235
    assert list(found["stage_seconds"]) == ["learn-source", "cluster-target", "refine-target"]
    # The oracle chooses among snapshots of the target, not those of the source (which agree by chance).
    assert found["oracle_accuracy"] == 0.75
    # Cluster 1 is class 0: estimated (0.6, 0.4) against true (0.75, 0.25) and uniform (0.5, 0.5).
    assert found["proportions_l1"] == pytest.approx(0.3, abs=1e-6)
    assert found["uniform_l1"] == pytest.approx(0.5)
    assert found["peak_memory_mib"] > 10
    json.dumps(found)


def test_methods_without_stages_have_no_oracle() -> None:
    found = measure(outcome([0, 0, 1, 1]), np.array([0, 0, 1, 1]), 2)
    assert found["accuracy"] == 1.0
    assert "oracle_accuracy" not in found
    assert "proportions_l1" not in found


class Inline:
    """Runs tasks at once, in this process."""

    def __init__(self, *args: Any, **options: Any) -> None: ...

    def __enter__(self) -> Inline:
        return self

    def __exit__(self, *error: object) -> None: ...

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments))
        except UserError as error:
            future.set_exception(error)
        return future


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(module, "ProcessPoolExecutor", Inline)
    return made_place(tmp_path)


def made_place(tmp_path: Path) -> Place:
    rng = np.random.default_rng(0)
    for domain in ("a", "b"):
        for klass in ("x", "y", "z"):
            for i in range(4):
                path = tmp_path / "data" / domain / klass / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(rng.integers(256, size=(40, 40, 3), dtype=np.uint8)).save(path)
    return Place(tmp_path / "data", "none", CacheOptions(tmp_path / "cache"), accelerator="cpu")


def cells(records: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
    return [(record["target"], record["seed"], record["method"]) for record in records]


def test_a_grid_leaves_a_self_contained_record_of_each_cell(tmp_path: Path, place: Place) -> None:
    path = tmp_path / "runs.jsonl"
    benchmark = small(tmp_path)
    assert run_benchmark(benchmark, path, place, Quiet()) == 4
    records = read_records(path)
    assert sorted(cells(records)) == [("a", seed, method) for seed in (0, 1) for method in ("kmeans", "po")]
    config = Config.from_mapping(benchmark.settings)
    for record in records:
        assert record["config"] == config.model_dump()
        assert record["config_hash"] == config.hash
        assert record["samples"] == 12
        assert 0 <= record["accuracy"] <= 1
        assert record["versions"]["torch"]
        assert record.keys() >= {"time", "revision", "device", "threads", "precision", "seconds"}


def test_a_finished_grid_runs_nothing(tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs.jsonl"
    run_benchmark(small(tmp_path), path, place, Quiet())
    before = path.read_bytes()
    monkeypatch.setattr(module, "_run_task", lambda *arguments: pytest.fail("ran again"))
    assert run_benchmark(small(tmp_path), path, place, Quiet()) == 0
    assert path.read_bytes() == before


def test_only_what_is_missing_is_run_and_comes_out_the_same(tmp_path: Path, place: Place) -> None:
    whole, path = tmp_path / "whole.jsonl", tmp_path / "runs.jsonl"
    run_benchmark(small(tmp_path), whole, place, Quiet())
    kept = [record for record in read_records(whole) if (record["seed"], record["method"]) != (1, "po")]
    append_records(path, kept)
    before = path.read_bytes()
    assert run_benchmark(small(tmp_path), path, place, Quiet()) == 1
    assert path.read_bytes().startswith(before)
    assert cells(read_records(path))[3:] == [("a", 1, "po")]
    (again,) = read_records(path)[3:]
    (first,) = [r for r in read_records(whole) if (r["seed"], r["method"]) == (1, "po")]
    assert (again["accuracy"], again["nmi"]) == (first["accuracy"], first["nmi"])


def test_other_settings_and_more_seeds_are_new_cells(tmp_path: Path, place: Place) -> None:
    path = tmp_path / "runs.jsonl"
    run_benchmark(small(tmp_path), path, place, Quiet())
    more = small(tmp_path, seeds="seeds = [0, 1, 2]")
    assert run_benchmark(more, path, place, Quiet()) == 2
    other = small(tmp_path, bottleneck_width="bottleneck_width = 4")
    assert run_benchmark(other, path, place, Quiet()) == 4
    assert len({record["config_hash"] for record in read_records(path)}) == 2


def test_a_target_that_the_data_lack_is_refused(tmp_path: Path, place: Place) -> None:
    path = tmp_path / "runs.jsonl"
    with pytest.raises(UserError, match="has no domain c"):
        run_benchmark(small(tmp_path, targets='targets = ["a", "c"]'), path, place, Quiet())
    assert not path.exists()


def test_data_without_classes_are_refused(tmp_path: Path, place: Place) -> None:
    for domain in ("a", "b"):
        for number, image in enumerate(sorted((tmp_path / "data" / domain).glob("*/*"))):
            image.rename(tmp_path / "data" / domain / f"{number}.png")
        for folder in (tmp_path / "data" / domain).glob("?"):
            folder.rmdir()
    with pytest.raises(UserError, match="no class folders to score against"):
        run_benchmark(small(tmp_path), tmp_path / "runs.jsonl", place, Quiet())


@pytest.mark.slow
def test_tasks_run_in_processes_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    assert run_benchmark(small(tmp_path), path, made_place(tmp_path), Quiet(), jobs=2) == 4
    assert len(cells(read_records(path))) == 4
