"""Tests of `TargetClustering`, by itself and in what scikit-learn has for its own clusterings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from quick import quick
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from ucds import ClusterLabels, InputError, SourceClustering, TargetClustering, UcdsWarning, load
from ucds.choices import VoteChoices
from ucds.training.options import Compute

pytestmark = pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning")

SHORT = {"refinement_epochs": 10}
BRIEF = {"clustering_epochs": 2, "refinement_epochs": 2, "bottleneck_width": 16}
SETTINGS: dict[str, Any] = {"pcd": BRIEF, "consensus": quick(transfer="equal")}
METHODS = ["consensus", pytest.param("pcd", marks=pytest.mark.torch)]
Blobs = Callable[..., dict[str, Any]]


ONE_VOTE = VoteChoices(fineness=(1.0,), fewest_starts=1, most_starts=1, halves=1)


@parametrize_with_checks(
    [TargetClustering(settings=quick(spaces=("features",), vote=ONE_VOTE), random_state=0)]
)
@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_keeps_scikit_learns_contract(estimator: TargetClustering, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.torch
@pytest.mark.slow
@parametrize_with_checks([TargetClustering(method="pcd", settings=SHORT, random_state=0)])
@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_keeps_scikit_learns_contract_with_pcd(
    estimator: TargetClustering, check: Callable[[Any], None]
) -> None:
    check(estimator)


PCD: dict[str, Any] = {"method": "pcd", "settings": BRIEF}
ALONE = {"refinement_epochs": 2, "bottleneck_width": 16}  # what PCD reads without labels


def brief(n_clusters: int = 4, **parameters: Any) -> TargetClustering:
    usual = {"settings": SETTINGS["consensus"], "random_state": 0, "accelerator": "cpu"}
    parameters = usual | parameters
    return TargetClustering(n_clusters, **parameters)


@pytest.fixture
def x(blobs: Blobs) -> Any:
    return blobs({"t": 48})["t"]


ANSWERS = (np.arange(48) % 4 + 1) % 4
"""A provider that is always right, and numbers the clusters in its own way."""


@pytest.mark.torch  # the other method gets the same clusters from what these labels say
def test_every_form_of_the_same_labels_gives_the_same_model(x: Any) -> None:
    order = np.random.default_rng(0).permutation(48)
    named, shuffled = (
        ClusterLabels(tuple(map(str, rows)), ANSWERS[rows], 4, "p") for rows in (np.arange(48), order)
    )
    forms = [ANSWERS, ANSWERS.astype(np.uint8).tolist(), named, shuffled]
    prototypes = [brief(**PCD).fit(x, source_labels=form).prototypes_ for form in forms]
    for other in prototypes[1:]:
        np.testing.assert_array_equal(prototypes[0], other)
    different = brief(**PCD).fit(x, source_labels=np.roll(ANSWERS, 1)).prototypes_
    assert not np.array_equal(prototypes[0], different)
    assert not np.array_equal(prototypes[0], brief(method="pcd", settings=ALONE).fit(x).prototypes_)


@pytest.mark.parametrize("method", METHODS)
def test_minus_one_stands_for_a_sample_without_a_label(x: Any, method: str) -> None:
    answers = np.where(np.arange(48) < 12, np.roll(ANSWERS, 1), ANSWERS)  # a quarter of them is wrong
    some = np.where(np.arange(48) % 3 == 0, -1, answers)
    rows = np.flatnonzero(some >= 0)
    target = brief(method=method, settings=SETTINGS[method])
    with pytest.warns(UcdsWarning, match="32 of 48 samples have a label"):
        from_array = target.fit(x, source_labels=some).prototypes_
    named = ClusterLabels(tuple(str(i) for i in rows), answers[rows], 4, "p")
    with pytest.warns(UcdsWarning, match="32 of 48 samples have a label"):
        np.testing.assert_array_equal(target.fit(x, source_labels=named).prototypes_, from_array)
    assert not np.array_equal(target.fit(x, source_labels=answers).prototypes_, from_array)


@pytest.mark.parametrize("method", METHODS)
def test_survives_its_run_folder_and_takes_a_file_as_the_array_in_it(
    method: str, x: Any, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", x)
    target = brief(method=method, settings=SETTINGS[method]).fit(tmp_path / "x.npy", source_labels=ANSWERS)
    target.save(tmp_path / "run")
    again = TargetClustering.load(str(tmp_path / "run"), accelerator="cpu")
    assert again.n_clusters == 4
    np.testing.assert_array_equal(again.predict_proba(x), target.predict_proba(x))
    np.testing.assert_array_equal(again.proportions_, target.proportions_)
    np.testing.assert_array_equal(again.predict(str(tmp_path / "x.npy")), target.labels_)
    opened = load(tmp_path / "run", role="target", compute=Compute("cpu"))
    np.testing.assert_array_equal(opened.predict(x), target.labels_)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (ANSWERS[:40], r"must be 48 integers, not int64 of \(40,\)"),
        (ANSWERS.astype(float), r"must be 48 integers, not float64 of \(48,\)"),
        (ANSWERS[:, None], r"must be 48 integers, not int64 of \(48, 1\)"),
        (ANSWERS + 1, r"labels lie in \[1, 4\], but 4 clusters"),
        (ANSWERS - 2, r"labels lie in \[-2, 1\], but 4 clusters"),
        (np.full(48, -1), "there are no labels"),
        (ANSWERS > 1, "must be 48 integers, not bool"),
        (ClusterLabels(("x",), np.array([0]), 4, "p"), "none of the 48 samples has a label"),
    ],
)
def test_labels_that_do_not_fit_are_refused(x: Any, labels: Any, words: str) -> None:
    target = brief()
    with pytest.raises(InputError, match=words):
        target.fit(x, source_labels=labels)
    assert not hasattr(target, "labels_")


@pytest.mark.torch
def test_labels_of_another_number_of_clusters_are_refused_by_the_papers_method(x: Any) -> None:
    labels = ClusterLabels(tuple(map(str, range(48))), ANSWERS, 5, "p")
    with pytest.raises(InputError, match="5 clusters, but the model has 4"):
        brief(**PCD).fit(x, source_labels=labels)


def test_folders_at_any_depth_are_one_domain(images: Path, tmp_path: Path) -> None:
    ids = tuple(path.relative_to(images).as_posix() for path in images.rglob("*.png"))
    answers = ClusterLabels(ids, np.arange(9) % 3, 3, "p")
    edges: dict[str, Any] = {"backbone": "ucds/oriented_edges", "tune": "head"}
    target = brief(3, cache=tmp_path / "cache", **edges).fit(images, source_labels=answers)
    assert sorted(target.ids_) == sorted(ids)
    assert target.domain_names_ == ("images",)
    assert (tmp_path / "cache").is_dir()
    np.testing.assert_array_equal(target.predict(images), target.labels_)


@pytest.mark.torch
def test_the_papers_method_may_have_more_clusters_than_samples() -> None:
    tiny = np.eye(3, dtype=np.float32)
    assert brief(8, method="pcd", settings=ALONE).fit(tiny).labels_.shape == (3,)


def narrow(kind: Any = TargetClustering, **parameters: Any) -> Any:
    usual = {"n_clusters": 4, "settings": quick(bottleneck_width=12), "random_state": 0}
    return kind(**usual | parameters)


@pytest.mark.parametrize("kind", [TargetClustering, SourceClustering])
def test_a_data_frame_comes_in_and_a_data_frame_goes_out(kind: Any, x: Any) -> None:
    frame = pd.DataFrame(x, columns=list("abcdef"), index=[f"row {i}" for i in range(48)])
    fitted = clone(narrow(kind)).set_output(transform="pandas").fit(frame)
    assert fitted.feature_names_in_.tolist() == list("abcdef")
    out = fitted.transform(frame)
    names = [f"{kind.__name__.lower()}{i}" for i in range(12)]
    assert out.columns.tolist() == fitted.get_feature_names_out().tolist() == names
    assert out.index.tolist() == frame.index.tolist()
    with pytest.raises(InputError, match="feature names should match"):
        fitted.transform(frame[list("bacdef")])
    with pytest.warns(UcdsWarning, match="columns that may be no features are clustered too: label$"):
        fitted.fit(frame.rename(columns={"a": "label"}))
    fitted.fit(x[:, :4])
    assert (fitted.n_features_in_, hasattr(fitted, "feature_names_in_")) == (4, False)


def test_features_are_those_in_which_the_clusters_lie(x: Any, tmp_path: Path) -> None:
    fitted = narrow().fit(x)
    features = fitted.transform(x)
    assert (features.shape, features.dtype) == ((48, 12), np.float32)
    logits = features @ fitted.prototypes_.T
    shares = np.exp(logits - logits.max(1, keepdims=True))
    np.testing.assert_allclose(shares / shares.sum(1, keepdims=True), fitted.predict_proba(x), atol=1e-5)
    np.save(tmp_path / "narrow.npy", x[:, :4])  # a file takes no columns of an earlier fit
    assert fitted.fit(tmp_path / "narrow.npy").n_features_in_ == 4
    assert len(fitted.predict(x[:, :4])) == len(x)


def test_every_image_has_a_row_and_an_unusable_one_nan(
    write_images: Callable[..., list[Path]], tmp_path: Path
) -> None:
    paths = write_images(tmp_path / "images", [f"{i}.png" for i in range(8)])
    paths[3].write_bytes(b"no image")
    fitted = narrow(n_clusters=2, backbone="ucds/oriented_edges", cache=tmp_path / "cache")
    with pytest.warns(UcdsWarning, match=r"3\.png"):
        features = fitted.set_output(transform="pandas").fit_transform(paths[0].parent)
    assert features.shape == (8, 12)
    assert features.isna().all(axis=1).tolist() == [row == 3 for row in range(8)]
