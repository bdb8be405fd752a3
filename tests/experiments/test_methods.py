"""Tests of the methods: lists of stages, composed by hand and held against what the runner makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.cluster import KMeans
from sklearn.preprocessing import normalize

from ucds.backbones import build_backbone, identity_backbone
from ucds.config import PCDSettings
from ucds.data.dataset import Dataset
from ucds.data.folders import scan_domains
from ucds.data.images import ImageSamples
from ucds.data.samples import subset
from ucds.data.vectors import VectorSamples
from ucds.data.views import VectorView
from ucds.errors import UserError
from ucds.experiments.methods import PAPER_METHODS, run_methods
from ucds.experiments.pipeline import Outcome, Setting, Task
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.metrics import clustering_accuracy
from ucds.source.train import train_source
from ucds.target.train import train_target
from ucds.training.inputs import stored_size, view_for
from ucds.training.prediction import predict

pytestmark = pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning")

CONFIG = PCDSettings(
    source_epochs=3, clustering_epochs=3, refinement_epochs=3, bottleneck_width=16, evaluations_per_stage=3
)
SETTING = Setting(CONFIG, seed=0, accelerator="cpu")
Blobs = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def task(blobs: Blobs) -> Task:
    made = blobs({"a": 60, "b": 44, "t": 50})
    target = Dataset(VectorSamples(made.pop("t")), VectorView())
    source = Dataset(VectorSamples.from_arrays(made), VectorView())
    return Task(source, target, lambda: identity_backbone(6), 4)


@pytest.fixture(scope="module")
def outcomes(task: Task) -> dict[str, Outcome]:
    return {outcome.method: outcome for outcome in run_methods(task, SETTING)}


def assert_same(one: Outcome, other: Outcome) -> None:
    np.testing.assert_array_equal(one.labels, other.labels)
    assert [stage.name for stage in one.stages] == [stage.name for stage in other.stages]
    for a, b in zip(one.stages, other.stages, strict=True):
        assert torch.equal(a.proportions, b.proportions)
    if one.model is not None and other.model is not None:
        states = one.model.state_dict(), other.model.state_dict()
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
    models = [outcome.model for outcome in outcomes.values() if outcome.model is not None]
    prototypes = {model.prototypes.detach().numpy().tobytes() for model in models}
    assert len(prototypes) == 5  # no method shows the weights of another


@pytest.mark.parametrize("method", PAPER_METHODS)
def test_a_method_alone_is_the_method_among_all(
    method: str, task: Task, outcomes: dict[str, Outcome]
) -> None:
    (alone,) = run_methods(task, SETTING, [method])
    assert_same(alone, outcomes[method])


def test_kmeans_is_the_best_of_several_on_normalised_vectors(
    task: Task, outcomes: dict[str, Outcome]
) -> None:
    vectors = normalize(task.target.samples.read(np.arange(50)).numpy())
    found = outcomes["kmeans"].labels
    centres = np.stack([vectors[found == k].mean(0) for k in range(4)])
    inertia = ((vectors - centres[found]) ** 2).sum()
    best = min(KMeans(4, n_init=1, random_state=seed).fit(vectors).inertia_ for seed in range(20))
    assert inertia == pytest.approx(best, rel=1e-4)


def labels_of(model: Any, data: Dataset) -> Any:
    runtime = SETTING.session().runtime
    return predict(model, data.samples, data.view, runtime, CONFIG.prediction_batch_size).argmax(-1).numpy()


def test_pcd_is_the_two_sides_runs_one_after_the_other(task: Task, outcomes: dict[str, Outcome]) -> None:
    """What the two owners would do by themselves, with nothing but labels between them."""
    source = train_source(SETTING.session(), task.backbone(), task.source, 4)
    answers = labels_of(source, task.target)
    np.testing.assert_array_equal(answers, outcomes["so"].labels)
    labels = ClusterLabels(task.target.samples.ids, answers, 4, "source")
    model = train_target(SETTING.session(), task.backbone(), task.target, labels)
    np.testing.assert_array_equal(labels_of(model, task.target), outcomes["pcd"].labels)
    found = outcomes["pcd"].model
    assert found is not None
    assert torch.equal(found.prototypes, model.prototypes)


def test_to_is_the_target_owners_run_alone(task: Task, outcomes: dict[str, Outcome]) -> None:
    model = train_target(SETTING.session(), task.backbone(), task.target, None, n_clusters=4)
    np.testing.assert_array_equal(labels_of(model, task.target), outcomes["to"].labels)


def test_the_source_data_do_not_touch_what_does_without(
    task: Task, outcomes: dict[str, Outcome], blobs: Blobs
) -> None:
    other = VectorSamples.from_arrays(blobs({"x": 30, "y": 30}, seed=9))
    changed = Task(Dataset(other, VectorView()), task.target, task.backbone, 4)
    for outcome in run_methods(changed, SETTING, ["kmeans", "po", "to"]):
        assert_same(outcome, outcomes[outcome.method])
    (so,) = run_methods(changed, SETTING, ["so"])
    assert so.model is not None
    assert outcomes["so"].model is not None
    assert not torch.equal(so.model.prototypes, outcomes["so"].model.prototypes)


def test_the_two_sides_do_not_start_alike(task: Task) -> None:
    still = Setting(
        PCDSettings(**CONFIG.model_dump() | {"new_layer_learning_rate": 1e-12}), 0, accelerator="cpu"
    )
    so, ao = run_methods(task, still, ["so", "ao"])
    assert so.model is not None
    assert ao.model is not None
    assert not torch.allclose(so.model.prototypes, ao.model.prototypes, atol=1e-3)


def test_the_seed_decides(task: Task, outcomes: dict[str, Outcome]) -> None:
    (other,) = run_methods(task, Setting(CONFIG, seed=1, accelerator="cpu"), ["to"])
    assert other.model is not None
    assert outcomes["to"].model is not None
    assert not torch.equal(other.model.prototypes, outcomes["to"].model.prototypes)


def test_unknown_methods_are_refused(task: Task) -> None:
    with pytest.raises(UserError, match="unknown methods pdc; known: kmeans, "):
        list(run_methods(task, SETTING, ["pdc", "po"]))


def draw(root: Path, boundaries: Sequence[int]) -> None:
    """24 pictures a domain, always the same in the same order; boundaries cut them into class folders."""
    for d, domain in enumerate(("ink", "lead", "neon")):
        rng = np.random.default_rng(d)
        for i in range(24):
            klass = int(np.searchsorted(boundaries, i, side="right"))
            path = root / domain / f"class{klass}" / f"{i:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(256, size=(40, 40, 3), dtype=np.uint8)).save(path)


def picture_task(root: Path, cache: Path) -> Task:
    backbone = build_backbone("ucds/oriented_edges", weights="none")
    samples = ImageSamples.open(scan_domains(root), cache, size=stored_size(backbone.spec))
    view = view_for(backbone.spec)
    is_target = samples.domain == samples.domain_names.index("neon")
    return Task(
        Dataset(subset(samples, np.flatnonzero(~is_target)), view),
        Dataset(subset(samples, np.flatnonzero(is_target)), view),
        lambda: build_backbone("ucds/oriented_edges", weights="none"),
        3,
    )


@pytest.mark.parametrize("tune", ["head", "full"])
def test_ground_truth_cannot_leak(tune: str, tmp_path: Path) -> None:
    """The same pictures in other class folders: every label of every method is the same, to the bit."""
    setting = Setting(
        PCDSettings(**CONFIG.model_dump() | {"tune": tune}), 0, accelerator="cpu", cache=tmp_path / "cache"
    )
    found = []
    for name, boundaries in (("one", (8, 16)), ("two", (1, 21))):
        draw(tmp_path / name, boundaries)
        task = picture_task(tmp_path / name, tmp_path / "cache")
        found.append((task, list(run_methods(task, setting))))
    (one, before), (two, after) = found
    assert one.target.samples.ids != two.target.samples.ids
    assert torch.equal(one.target.samples.read(np.arange(24)), two.target.samples.read(np.arange(24)))
    for a, b in zip(before, after, strict=True):
        assert_same(a, b)


def test_the_cache_changes_no_result(tmp_path: Path) -> None:
    draw(tmp_path / "data", (8, 16))
    task = picture_task(tmp_path / "data", tmp_path / "images")
    head = PCDSettings(**CONFIG.model_dump() | {"tune": "head"})
    runs = [
        list(run_methods(task, Setting(head, 0, accelerator="cpu", cache=cache)))
        for cache in (None, tmp_path / "features", tmp_path / "features")
    ]
    for other in runs[1:]:
        for a, b in zip(runs[0], other, strict=True):
            assert_same(a, b)


def test_adaptation_works_where_it_must(blobs: Blobs) -> None:
    """Far blobs that are only shifted: every stage must find them, and keep the provider's numbering."""
    made = blobs({"a": 120, "b": 120, "t": 120})
    target = Dataset(VectorSamples(made.pop("t")), VectorView())
    source = Dataset(VectorSamples.from_arrays(made), VectorView())
    easy = Task(source, target, lambda: identity_backbone(6), 4)
    config = PCDSettings(source_epochs=40, clustering_epochs=30, refinement_epochs=10)
    so, pcd = run_methods(easy, Setting(config, 0, accelerator="cpu"), ["so", "pcd"])
    truth = np.arange(120) % 4
    assert clustering_accuracy(pcd.labels, truth) == 1.0
    assert (pcd.labels == so.labels).mean() >= clustering_accuracy(so.labels, truth) - 1e-12
