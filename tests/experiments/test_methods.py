"""Tests of the methods: lists of stages, composed by hand and held against what the runner makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from grid_kit import make_machine, picture_task, run_inline, small, write_pictures
from PIL import Image
from sklearn.cluster import KMeans
from sklearn.preprocessing import normalize

from ucds.backbones import identity_backbone
from ucds.baselines.deepcluster import DeepClusterSettings
from ucds.baselines.loop import Clustering
from ucds.config import ConsensusSettings, PCDSettings
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.errors import UserError
from ucds.experiments import runner
from ucds.experiments.methods import METHODS, PAPER_METHODS, method_named, run_methods, trained
from ucds.experiments.pipeline import Outcome, Pipeline, Task, TaskOptions
from ucds.experiments.records import FILE, read_records
from ucds.experiments.runner import run_benchmark
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.metrics import clustering_accuracy
from ucds.source.fit import fit_source
from ucds.target.fit import fit_target
from ucds.training.options import Compute
from ucds.training.prediction import predict

pytestmark = pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning")

SETTINGS = PCDSettings(
    source_epochs=3, clustering_epochs=3, refinement_epochs=3, bottleneck_width=16, evaluations_per_stage=3
)
OPTIONS = TaskOptions((SETTINGS,), seed=0)
Blobs = Callable[..., dict[str, Any]]


def changed(**settings: Any) -> TaskOptions:
    return replace(OPTIONS, settings=(SETTINGS.model_copy(update=settings),))


@pytest.fixture(scope="module")
def task(blobs: Blobs) -> Task:
    made = blobs({"a": 60, "b": 44, "t": 50})
    target = Dataset(VectorSamples(made.pop("t")))
    source = Dataset(VectorSamples.from_arrays(made))
    return Task(source, target, lambda: identity_backbone(6), 4)


@pytest.fixture(scope="module")
def outcomes(task: Task) -> dict[str, Outcome]:
    return {outcome.method: outcome for outcome in run_methods(task, OPTIONS)}


def assert_same(one: Outcome, other: Outcome) -> None:
    np.testing.assert_array_equal(one.labels, other.labels)
    assert [stage.name for stage in one.stages] == [stage.name for stage in other.stages]
    for a, b in zip(one.stages, other.stages, strict=True):
        assert torch.equal(a.proportions, b.proportions)
    if one.training is not None and other.training is not None:
        states = one.training.trained.state_dict(), other.training.trained.state_dict()
        assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


STAGES = {"kmeans": (), "po": (), "so": (1,), "to": (3,), "ao": (1, 2), "pcd": (1, 2, 3)}


def test_the_papers_methods_are_lists_of_stages(outcomes: dict[str, Outcome]) -> None:
    names = {1: "learn-source", 2: "cluster-target", 3: "refine-target"}
    assert list(outcomes) == list(PAPER_METHODS) == list(STAGES)
    for method, outcome in outcomes.items():
        assert tuple(stage.name for stage in outcome.stages) == tuple(names[s] for s in STAGES[method])
        assert outcome.labels.shape == (50,)
        assert outcome.labels.dtype == np.int64
        assert set(outcome.labels) <= set(range(4))
        if method != "kmeans":
            assert outcome.seconds == sum(stage.seconds for stage in outcome.stages)


def test_methods_make_different_things_of_the_target(outcomes: dict[str, Outcome]) -> None:
    models = [outcome.training.trained for outcome in outcomes.values() if outcome.training is not None]
    prototypes = {model.prototypes.detach().numpy().tobytes() for model in models}
    assert len(prototypes) == 5  # no method shows the weights of another


@pytest.mark.parametrize("method", PAPER_METHODS)
def test_a_method_alone_is_the_method_among_all(
    method: str, task: Task, outcomes: dict[str, Outcome]
) -> None:
    (alone,) = run_methods(task, OPTIONS, [method])
    assert_same(alone, outcomes[method])


def labels_of(model: Any, data: Dataset) -> Any:
    runtime = OPTIONS.runtime()
    return predict(model, data, runtime, SETTINGS.prediction_batch_size).argmax(-1).numpy()


def test_pcd_is_the_two_sides_runs_one_after_the_other(task: Task, outcomes: dict[str, Outcome]) -> None:
    """What the two owners would do by themselves, with nothing but labels between them."""
    source = fit_source(OPTIONS.session(SETTINGS), task.backbone(), task.source, 4).model
    answers = labels_of(source, task.target)
    np.testing.assert_array_equal(answers, outcomes["so"].labels)
    labels = ClusterLabels(task.target.samples.ids, answers, 4, "source")
    model = fit_target(OPTIONS.session(SETTINGS), task.backbone(), task.target, 4, labels).model
    np.testing.assert_array_equal(labels_of(model, task.target), outcomes["pcd"].labels)
    found = outcomes["pcd"].training
    assert found is not None
    assert torch.equal(found.trained.prototypes, model.prototypes)


def test_to_is_the_target_owners_run_alone(task: Task, outcomes: dict[str, Outcome]) -> None:
    model = fit_target(OPTIONS.session(SETTINGS), task.backbone(), task.target, 4, None).model
    np.testing.assert_array_equal(labels_of(model, task.target), outcomes["to"].labels)


def test_the_source_data_do_not_touch_what_does_without(
    task: Task, outcomes: dict[str, Outcome], blobs: Blobs
) -> None:
    other = VectorSamples.from_arrays(blobs({"x": 30, "y": 30}, seed=9))
    changed = Task(Dataset(other), task.target, task.backbone, 4)
    for outcome in run_methods(changed, OPTIONS, ["kmeans", "po", "to"]):
        assert_same(outcome, outcomes[outcome.method])
    (so,) = run_methods(changed, OPTIONS, ["so"])
    assert so.training is not None
    assert outcomes["so"].training is not None
    assert not torch.equal(so.training.trained.prototypes, outcomes["so"].training.trained.prototypes)


def test_the_two_sides_do_not_start_alike(task: Task) -> None:
    so, ao = run_methods(task, changed(new_layer_learning_rate=1e-12), ["so", "ao"])
    assert so.training is not None
    assert ao.training is not None
    assert not torch.allclose(so.training.trained.prototypes, ao.training.trained.prototypes, atol=1e-3)


def test_the_seed_decides(task: Task, outcomes: dict[str, Outcome]) -> None:
    (other,) = run_methods(task, replace(OPTIONS, seed=1), ["to"])
    assert other.training is not None
    assert outcomes["to"].training is not None
    assert not torch.equal(other.training.trained.prototypes, outcomes["to"].training.trained.prototypes)


OWN = """
import numpy as np
from ucds.config import ConsensusSettings
from ucds.experiments.methods import METHODS, Method
from ucds.experiments.pipeline import Outcome

def alternate(pipeline):
    target = pipeline.task.target
    labels = np.arange(len(target.samples)) % pipeline.task.n_clusters
    return Outcome(labels, 0.5)

widths = Method("Widths", METHODS["consensus-alone"].run, ConsensusSettings, "target")
number = 3
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of methods that no code of ours knows."""
    name = f"own_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_a_function_of_ones_own_is_a_method_without_settings(task: Task, own_module: str) -> None:
    name = f"{own_module}:alternate"
    found = method_named(name)
    assert (found.title, found.settings, found.family, found.encoders) == (name, None, None, "target")
    kmeans, own = run_methods(task, OPTIONS, [name, "kmeans"])
    assert (kmeans.method, own.method) == ("kmeans", name)  # after the known ones, under its own name
    np.testing.assert_array_equal(own.labels, np.arange(50) % 4)


def test_a_method_of_ones_own_may_have_title_and_settings(task: Task, own_module: str) -> None:
    found = method_named(f"{own_module}:widths")
    assert (found.title, found.settings, found.family) == ("Widths", ConsensusSettings, "consensus")
    options = replace(OPTIONS, settings=(ConsensusSettings(starts=1),))
    (own,) = run_methods(task, options, [f"{own_module}:widths"])
    (ours,) = run_methods(task, options, ["consensus-alone"])
    assert_same(own, ours)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_module_at_all:run", "method no_such_module_at_all:run cannot be imported: No module named"),
        ("OWN:absent", "method OWN:absent cannot be imported: .*has no attribute 'absent'"),
        (":run", "method :run cannot be imported: "),
        ("OWN:number", "method OWN:number is neither a function nor a Method"),
        ("plain", "unknown methods plain; known: kmeans, .*, or MODULE:NAME of your own"),
    ],
)
def test_a_method_that_cannot_be_had_is_refused_in_one_line(name: str, words: str, own_module: str) -> None:
    with pytest.raises(UserError, match=words.replace("OWN", own_module)) as caught:
        method_named(name.replace("OWN", own_module))
    assert "\n" not in str(caught.value)


def draw(root: Path, boundaries: Sequence[int]) -> None:
    """24 pictures a domain, always the same in the same order; boundaries cut them into class folders."""
    for d, domain in enumerate(("ink", "lead", "neon")):
        rng = np.random.default_rng(d)
        for i in range(24):
            klass = int(np.searchsorted(boundaries, i, side="right"))
            path = root / domain / f"class{klass}" / f"{i:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(256, size=(40, 40, 3), dtype=np.uint8)).save(path)


@pytest.mark.parametrize("tune", ["head", "full"])
def test_ground_truth_cannot_leak(tune: str, tmp_path: Path) -> None:
    """The same pictures in other class folders: every label of every method is the same, to the bit."""
    options = replace(changed(tune=tune), compute=Compute("cpu", cache=tmp_path / "cache"))
    found = []
    for name, boundaries in (("one", (8, 16)), ("two", (1, 21))):
        draw(tmp_path / name, boundaries)
        task = picture_task(tmp_path / name, tmp_path / "cache", "neon")
        found.append((task, list(run_methods(task, options))))
    (one, before), (two, after) = found
    assert one.target.samples.ids != two.target.samples.ids
    assert torch.equal(one.target.samples.read(np.arange(24)), two.target.samples.read(np.arange(24)))
    for a, b in zip(before, after, strict=True):
        assert_same(a, b)


def test_the_cache_changes_no_result(tmp_path: Path) -> None:
    draw(tmp_path / "data", (8, 16))
    task = picture_task(tmp_path / "data", tmp_path / "images", "neon")
    runs = [
        list(run_methods(task, replace(changed(tune="head"), compute=Compute("cpu", cache=cache))))
        for cache in (None, tmp_path / "features", tmp_path / "features")
    ]
    for other in runs[1:]:
        for a, b in zip(runs[0], other, strict=True):
            assert_same(a, b)


def test_adaptation_works_where_it_must(blobs: Blobs) -> None:
    """Far blobs that are only shifted: every stage must find them, and keep the provider's numbering."""
    made = blobs({"a": 120, "b": 120, "t": 120})
    target = Dataset(VectorSamples(made.pop("t")))
    source = Dataset(VectorSamples.from_arrays(made))
    easy = Task(source, target, lambda: identity_backbone(6), 4)
    settings = PCDSettings(source_epochs=40, clustering_epochs=30, refinement_epochs=10)
    so, pcd = run_methods(easy, replace(OPTIONS, settings=(settings,)), ["so", "pcd"])
    truth = np.arange(120) % 4
    assert clustering_accuracy(pcd.labels, truth) == 1.0
    assert (pcd.labels == so.labels).mean() >= clustering_accuracy(so.labels, truth) - 1e-12


QUICK = """
[settings.deepcluster]
tune = "head"
bottleneck_width = 8
epochs = 2
batch_size = 6
principal_components = 4
[settings.iic]
tune = "head"
bottleneck_width = 8
epochs = 1
batch_size = 6
repeats = 1
sub_heads = 2
[settings.acids]
tune = "head"
bottleneck_width = 8
source_epochs = 1
target_epochs = 1
batch_size = 8
sub_heads = 2
"""


def test_every_baseline_runs_in_a_grid_and_keeps_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "run_jobs", run_inline)
    machine = make_machine(tmp_path)
    write_pictures(tmp_path / "data", ["a", "b", "c"])
    names = ["deepcluster", "iic", "acids", "po"]
    asked = small(tmp_path, QUICK, methods=f"methods = {names}", seeds="seeds = [0]")
    assert run_benchmark(asked, tmp_path / "out", machine) == len(names)
    found = {record["method"]: record for record in read_records(tmp_path / "out" / FILE)}
    assert list(found) == names
    for method, record in found.items():
        assert record["settings"].items() >= asked.settings["pcd" if method == "po" else method].items()
        assert 0 < record["accuracy"] <= 1
        assert record["parameters"] > 0
        assert method == "po" or record["images_per_second"] > 0
    assert found["iic"]["settings"]["repeats"] == 1
    # Both heads of two sub-heads each, 8 x 3 and 8 x 21, where IIC keeps one sub-head.
    assert found["acids"]["parameters"] - found["iic"]["parameters"] == 2 * 8 * (3 + 21) - 8 * 3
    assert run_benchmark(asked, tmp_path / "out", machine) == 0
    others = asked.model_copy(update={"settings": asked.settings | {"iic": {"epochs": 2}}})
    assert run_benchmark(others, tmp_path / "out", machine) == 1


@pytest.mark.parametrize("from_scratch", [False, True])
def test_on_the_target_alone_from_the_encoder_or_from_scratch(from_scratch: bool, picture_task: Task) -> None:
    seen: list[Any] = []

    def cluster(session: Any, backbone: Any, data: Any, n_clusters: int) -> Clustering:
        seen.append((session, backbone))
        assert data is picture_task.target
        assert n_clusters == picture_task.n_clusters
        return Clustering(np.zeros(len(data.samples), np.int64), 1.0, 10, backbone.module)

    run = trained(DeepClusterSettings, cluster, from_scratch=from_scratch)
    settings = DeepClusterSettings(tune="head", epochs=7)
    for seed in (3, 4):
        outcome = run(Pipeline(picture_task, TaskOptions((settings,), seed)))
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


def test_kmeans_has_as_many_starts_as_its_name_says() -> None:
    samples = VectorSamples(np.random.default_rng(0).normal(size=(200, 5)).astype(np.float32))
    data = Dataset(samples)
    task = Task(data, data, lambda: identity_backbone(5), 12)
    vectors = normalize(samples.read(np.arange(200)).numpy())
    for outcome in run_methods(task, TaskOptions((), 0), ["kmeans", "kmeans-100"]):
        starts = {"kmeans": 5, "kmeans-100": 100}[outcome.method]
        expected = KMeans(12, n_init=starts, random_state=0).fit_predict(vectors)
        np.testing.assert_array_equal(outcome.labels, expected)


def test_baselines_come_with_their_original_track() -> None:
    assert {name for name in METHODS if METHODS[name].encoders == "none"} == {
        "deepcluster-original",
        "iic-original",
        "acids-original",
    }
