"""Tests of the target owner's estimator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.utils.estimator_checks import parametrize_with_checks

from ucds import ClusterLabels, TargetClustering, UserError

pytestmark = pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning")

SHORT = {"source_epochs": 10}
BRIEF = {"clustering_epochs": 2, "refinement_epochs": 2, "bottleneck_width": 16}
Blobs = Callable[..., dict[str, Any]]


@parametrize_with_checks(
    [
        TargetClustering(recipe="pcd", settings=SHORT, random_state=0),
        TargetClustering(settings={"fitting_epochs": 2, "space_partitions": 1}, random_state=0),
    ]
)
@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_keeps_scikit_learns_contract(estimator: TargetClustering, check: Callable[[Any], None]) -> None:
    check(estimator)


def brief(n_clusters: int = 4, **parameters: Any) -> TargetClustering:
    parameters = {"recipe": "pcd", "settings": BRIEF, "random_state": 0, "accelerator": "cpu"} | parameters
    return TargetClustering(n_clusters, **parameters)


@pytest.fixture
def x(blobs: Blobs) -> Any:
    return blobs({"t": 48})["t"]


ANSWERS = (np.arange(48) % 4 + 1) % 4
"""A provider that is always right, and numbers the clusters in its own way."""


def test_without_labels_only_refinement_is_done(x: Any) -> None:
    alone = brief().fit(x)
    assert [stage.name for stage in alone.stages_] == ["refine-target"]
    assert alone.proportions_.shape == (1, 4)
    assert alone.labels_.shape == (48,)
    assert set(alone.labels_) <= set(range(4))


def test_with_labels_both_stages_are_done_and_their_numbering_is_kept(x: Any) -> None:
    taught = brief(settings={"clustering_epochs": 30, "refinement_epochs": 2}).fit(x, source_labels=ANSWERS)
    assert [stage.name for stage in taught.stages_] == ["cluster-target", "refine-target"]
    np.testing.assert_array_equal(taught.labels_, ANSWERS)
    np.testing.assert_array_equal(taught.predict(x[5:9]), ANSWERS[5:9])
    assert not hasattr(taught, "_answers")  # what the provider said is not kept


def test_every_form_of_the_same_labels_gives_the_same_model(x: Any) -> None:
    ids = tuple(str(i) for i in range(48))
    order = np.random.default_rng(0).permutation(48)
    shuffled = ClusterLabels(tuple(ids[i] for i in order), ANSWERS[order], 4, "p")
    forms = [
        ANSWERS,
        ANSWERS.tolist(),
        ANSWERS.astype(np.uint8),
        ClusterLabels(ids, ANSWERS, 4, "p"),
        shuffled,
    ]
    prototypes = [brief().fit(x, source_labels=form).prototypes_ for form in forms]
    for other in prototypes[1:]:
        np.testing.assert_array_equal(prototypes[0], other)
    different = brief().fit(x, source_labels=np.roll(ANSWERS, 1)).prototypes_
    assert not np.array_equal(prototypes[0], different)
    assert not np.array_equal(prototypes[0], brief().fit(x).prototypes_)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (ANSWERS[:40], "48 sample ids but 40 labels"),
        (ANSWERS.astype(float), "list of integers, not float64"),
        (ANSWERS[:, None], "list of integers"),
        (ANSWERS + 1, r"labels lie in \[1, 4\], but 4 clusters"),
        (ANSWERS - 1, r"labels lie in \[-1, 2\]"),
        ([None] * 48, "list of integers"),
        (3, "list of integers"),
        (ClusterLabels(("x",), np.array([0]), 4, "p"), "none of the 48 samples has a label"),
        (ClusterLabels(tuple(map(str, range(48))), ANSWERS, 5, "p"), "5 clusters, but the model has 4"),
    ],
)
def test_labels_that_do_not_fit_are_refused(x: Any, labels: Any, words: str) -> None:
    target = brief()
    with pytest.raises(UserError, match=words):
        target.fit(x, source_labels=labels)
    assert not hasattr(target, "labels_")
    assert not hasattr(target, "_answers")


def test_the_same_seed_gives_the_same_model_to_the_bit(x: Any) -> None:
    one, two = (brief().fit(x, source_labels=ANSWERS) for _ in range(2))
    np.testing.assert_array_equal(one.prototypes_, two.prototypes_)
    other = brief(random_state=1).fit(x, source_labels=ANSWERS)
    assert not np.array_equal(other.prototypes_, one.prototypes_)


def test_the_given_arrays_are_not_changed(x: Any) -> None:
    vectors, answers = x.copy(), ANSWERS.copy()
    brief().fit(vectors, source_labels=answers)
    np.testing.assert_array_equal(vectors, x)
    np.testing.assert_array_equal(answers, ANSWERS)
    assert answers.flags.writeable


def test_a_target_is_one_domain(tmp_path: Path, x: Any) -> None:
    np.savez(tmp_path / "two.npz", a=x, b=x)
    with pytest.raises(UserError, match="a target is one domain"):
        brief().fit(tmp_path / "two.npz")
    with pytest.raises(TypeError, match="sample_domain"):
        brief().fit(x, sample_domain=ANSWERS)


def test_files_of_embeddings_and_arrays_are_the_same(tmp_path: Path, x: Any) -> None:
    np.save(tmp_path / "x.npy", x)
    from_file = brief().fit(tmp_path / "x.npy", source_labels=ANSWERS)
    from_array = brief().fit(x, source_labels=ANSWERS)
    np.testing.assert_array_equal(from_file.prototypes_, from_array.prototypes_)
    np.testing.assert_array_equal(from_file.predict(str(tmp_path / "x.npy")), from_array.labels_)


def test_folders_at_any_depth_are_one_domain(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ids = ("a/deep/2.png", "a/1.png", "0.png", "b/3.png")
    for name in ids:
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(256, size=(40, 40, 3), dtype=np.uint8)).save(tmp_path / "images" / name)
    answers = ClusterLabels(ids, np.array([2, 1, 0, 1]), 3, "p")
    edges: dict[str, Any] = {"backbone": "ucds/oriented_edges", "weights": "none", "tune": "head"}
    target = brief(3, cache=tmp_path / "cache", **edges).fit(tmp_path / "images", source_labels=answers)
    assert sorted(target.ids_) == sorted(ids)
    assert target.domain_names_ == ("images",)
    assert (tmp_path / "cache").is_dir()
    np.testing.assert_array_equal(target.predict(tmp_path / "images"), target.labels_)
    whole = brief(3, **{**edges, "tune": "full"}).fit(tmp_path / "images", source_labels=answers)
    assert whole.labels_.shape == (4,)


def test_more_clusters_than_samples_is_possible() -> None:
    tiny = np.eye(3, dtype=np.float32)
    assert brief(8).fit(tiny).labels_.shape == (3,)
