"""Tests of the methods: lists of stages, composed by hand and held against what the runner makes."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grid_kit import picture_task, small, write_pictures
from method_kit import OPTIONS, PCD, assert_same, changed, prototypes_of, vectors_of
from sklearn.cluster import KMeans
from sklearn.preprocessing import normalize
from torch import nn

from ucds.baselines.deepcluster import DeepClusterSettings
from ucds.baselines.loop import Clustering
from ucds.config import ConsensusSettings, PCDSettings
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.encoders.encoder import IdentityEncoder
from ucds.errors import UserError
from ucds.experiments.methods import PAPER_METHODS, method_named, run_methods, trained
from ucds.experiments.pipeline import Outcome, Pipeline, Task, TaskOptions
from ucds.experiments.preflight import Machine
from ucds.experiments.records import FILE, read_records
from ucds.experiments.runner import run_benchmark
from ucds.heads import Head
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.arrays import IntArray
from ucds.math.metrics import clustering_accuracy
from ucds.source.train import fit_source
from ucds.target.train import fit_target
from ucds.training.fitting import encode
from ucds.training.options import Compute

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning"),
]
Blobs = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def outcomes(task: Task) -> dict[str, Outcome]:
    return {outcome.method: outcome for outcome in run_methods(task, OPTIONS)}


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


def test_parameters_and_images_are_counted(outcomes: dict[str, Outcome]) -> None:
    # Bottleneck 6 x 16 + 16, its normalisation 2 x 16, prototypes 16 x 4.
    assert {o.parameters for name, o in outcomes.items() if name != "kmeans"} == {112 + 32 + 64}
    steps = {name: sum(stage.evaluations[-1].step for stage in o.stages) for name, o in outcomes.items()}
    # 50 target samples make batches of 50; the source has 104 less a tenth, in batches of 64.
    assert steps == {"kmeans": 0, "po": 0, "to": 3, "so": 6, "ao": 9, "pcd": 12}
    images = {name: outcome.images for name, outcome in outcomes.items()}
    assert images == {"kmeans": 0, "po": 0, "to": 150, "so": 384, "ao": 534, "pcd": 684}


@pytest.mark.parametrize("method", PAPER_METHODS)
def test_a_method_alone_is_the_method_among_all(
    method: str, task: Task, outcomes: dict[str, Outcome]
) -> None:
    (alone,) = run_methods(task, OPTIONS, [method])
    assert_same(alone, outcomes[method])


def labels_of(head: Head, data: Dataset) -> IntArray:
    found: IntArray = head.logits(encode(head, data)).argmax(1)
    return found


def test_methods_are_what_the_owners_would_do_by_themselves(task: Task, outcomes: dict[str, Outcome]) -> None:
    """PCD is the two sides' runs, with nothing but labels between them, and TO is the target's run alone."""
    source = fit_source(OPTIONS.session(PCD), IdentityEncoder(6), task.source, 4).head
    answers = labels_of(source, task.target)
    np.testing.assert_array_equal(answers, outcomes["so"].labels)
    labels = ClusterLabels(task.target.samples.ids, answers, 4, "source")
    for method, given in (("pcd", labels), ("to", None)):
        head = fit_target(OPTIONS.session(PCD), IdentityEncoder(6), task.target, 4, given).head
        np.testing.assert_array_equal(labels_of(head, task.target), outcomes[method].labels)
        assert np.array_equal(prototypes_of(outcomes[method]), head.prototypes)


def test_the_seed_decides_and_source_data_only_where_a_method_needs_them(
    task: Task, outcomes: dict[str, Outcome], blobs: Blobs
) -> None:
    source = Dataset(VectorSamples.from_arrays(blobs({"x": 30, "y": 30}, seed=9)))
    *others, so, to = run_methods(replace(task, source=source), OPTIONS, ["kmeans", "po", "so", "to"])
    for outcome in (*others, to):
        assert_same(outcome, outcomes[outcome.method])
    assert not np.array_equal(prototypes_of(so), prototypes_of(outcomes["so"]))
    (other,) = run_methods(task, replace(OPTIONS, seed=1), ["to"])
    assert not np.array_equal(prototypes_of(other), prototypes_of(outcomes["to"]))


def test_a_method_of_ones_own_may_have_title_and_settings(task: Task, own_module: str) -> None:
    found = method_named(f"{own_module}:widths")
    assert (found.title, found.settings) == ("Widths", ConsensusSettings)
    assert_same(*run_methods(task, OPTIONS, [f"{own_module}:widths", "consensus-alone"]))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_module_at_all:run", "method no_such_module_at_all:run cannot be imported: No module named"),
        ("OWN:absent", "method OWN:absent cannot be imported: .*has no attribute 'absent'"),
        (":run", "method :run cannot be imported: "),
        ("OWN:number", "method OWN:number is neither a function nor a Method"),
    ],
)
def test_a_method_that_cannot_be_had_is_refused_in_one_line(name: str, words: str, own_module: str) -> None:
    with pytest.raises(UserError, match=words.replace("OWN", own_module)) as caught:
        method_named(name.replace("OWN", own_module))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("tune", ["head", "full"])
def test_ground_truth_cannot_leak(tune: str, tmp_path: Path) -> None:
    """The same pictures in other class folders: every label of every method is the same, to the bit."""
    write_pictures(tmp_path / "one", ("ink", "lead", "neon"), per_class=6)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    for domain in (tmp_path / "two").iterdir():
        for picture in sorted((domain / "y").iterdir())[:4]:  # all pictures stay in their order
            picture.rename(domain / "x" / f"9{picture.name}")
    short = changed(tune=tune, source_epochs=1, clustering_epochs=1, refinement_epochs=1)
    options = replace(short, compute=Compute("cpu", cache=tmp_path / "cache"))
    one, two = (picture_task(tmp_path / name, tmp_path / "cache", "neon") for name in ("one", "two"))
    assert one.target.samples.ids != two.target.samples.ids
    assert np.array_equal(*(task.target.samples.read(np.arange(18)) for task in (one, two)))
    for a, b in zip(run_methods(one, options), run_methods(two, options), strict=True):
        assert_same(a, b)


def test_adaptation_works_where_it_must(task: Task, blobs: Blobs) -> None:
    """Far blobs that are only shifted: every stage must find them, and keep the provider's numbering."""
    made = blobs({"a": 120, "b": 120, "t": 120})
    target = Dataset(VectorSamples(made.pop("t")))
    easy = replace(task, source=Dataset(VectorSamples.from_arrays(made)), target=target, queries=target)
    settings = PCDSettings(source_epochs=15, clustering_epochs=8, refinement_epochs=3, bottleneck_width=64)
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


def test_every_baseline_runs_in_a_grid_and_keeps_its_settings(machine: Machine, tmp_path: Path) -> None:
    write_pictures(tmp_path / "data", ["a", "b", "c"])
    names = ["deepcluster", "iic", "acids", "po"]
    asked = small(tmp_path, QUICK, methods=names, seeds=[0])
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
    longer = asked.settings["iic"] | {"epochs": 2}
    others = asked.model_copy(update={"settings": asked.settings | {"iic": longer}})
    assert run_benchmark(others, tmp_path / "out", machine) == 1


@pytest.mark.parametrize("from_scratch", [False, True])
def test_on_the_target_alone_from_the_encoder_or_from_scratch(from_scratch: bool, picture_task: Task) -> None:
    seen: list[Any] = []

    def cluster(session: Any, encoder: Any, data: Any, n_clusters: int) -> Clustering:
        seen.append((session, encoder))
        assert data is picture_task.target
        assert n_clusters == picture_task.n_clusters
        return Clustering(np.zeros(len(data.samples), np.int64), 1.0, 10, nn.Identity())

    run = trained("own", DeepClusterSettings, cluster, from_scratch=from_scratch).run
    settings = DeepClusterSettings(tune="head", epochs=7)
    for seed in (3, 4):
        outcome = run(Pipeline(picture_task, TaskOptions((settings,), seed)))
        assert (outcome.seconds, outcome.images) == (1.0, 10)
    (session, encoder), (_, other) = seen
    assert (session.seed, session.settings.epochs) == (3, 7)
    if not from_scratch:
        assert session.settings == settings
        assert encoder.spec.name == "ucds/oriented_edges"
        return
    # A random encoder cannot stay frozen, and every seed has its own.
    assert session.settings.tune == "full"
    assert encoder.weights == "none (random)"
    weights = [next(built.module.parameters()).detach().numpy() for built in (encoder, other)]
    assert not np.array_equal(*weights)


def test_kmeans_has_as_many_starts_as_its_name_says() -> None:
    samples = VectorSamples(np.random.default_rng(0).normal(size=(200, 5)).astype(np.float32))
    data = Dataset(samples)
    task = Task(data, data, data, vectors_of(5), vectors_of(5), 12, 12)
    vectors = normalize(samples.read(np.arange(200)))
    for outcome in run_methods(task, TaskOptions((), 0), ["kmeans", "kmeans-100"]):
        starts = {"kmeans": 5, "kmeans-100": 100}[outcome.method]
        expected = KMeans(12, n_init=starts, random_state=0).fit_predict(vectors)
        np.testing.assert_array_equal(outcome.labels, expected)
