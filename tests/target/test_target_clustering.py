"""Tests of `TargetClustering`, by itself and in what scikit-learn has for its own clusterings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from quick import quick
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import silhouette_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
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
    forms = [ANSWERS, ANSWERS.tolist(), ANSWERS.astype(np.uint8), named, shuffled]
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
def test_survives_its_run_folder(method: str, x: Any, tmp_path: Path) -> None:
    target = brief(method=method, settings=SETTINGS[method]).fit(x, source_labels=ANSWERS)
    target.save(tmp_path / "run")
    again = TargetClustering.load(str(tmp_path / "run"), accelerator="cpu")
    assert again.n_clusters == 4
    np.testing.assert_array_equal(again.predict_proba(x), target.predict_proba(x))
    np.testing.assert_array_equal(again.proportions_, target.proportions_)
    opened = load(tmp_path / "run", role="target", compute=Compute("cpu"))
    np.testing.assert_array_equal(opened.predict(x), target.labels_)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (ANSWERS[:40], r"must be 48 integers, not int64 of \(40,\)"),
        (ANSWERS.astype(float), r"must be 48 integers, not float64 of \(48,\)"),
        (ANSWERS[:, None], r"must be 48 integers, not int64 of \(48, 1\)"),
        (ANSWERS > 1, "must be 48 integers, not bool"),
        (ANSWERS + 1, r"labels lie in \[1, 4\], but 4 clusters"),
        (ANSWERS - 2, r"labels lie in \[-2, 1\], but 4 clusters"),
        (np.full(48, -1), "there are no labels"),
        ([None] * 48, "must be 48 integers, not object"),
        (3, r"must be 48 integers, not int64 of \(\)"),
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


def test_a_use_of_labels_without_labels_is_refused(x: Any) -> None:
    with pytest.raises(InputError, match="'transfer' has no effect without labels: leave it out$"):
        TargetClustering(4, settings={"transfer": "equal"}).fit(x)


def test_files_of_embeddings_and_arrays_are_the_same(tmp_path: Path, x: Any) -> None:
    np.save(tmp_path / "x.npy", x)
    from_file = brief().fit(tmp_path / "x.npy", source_labels=ANSWERS)
    from_array = brief().fit(x, source_labels=ANSWERS)
    np.testing.assert_array_equal(from_file.prototypes_, from_array.prototypes_)
    np.testing.assert_array_equal(from_file.predict(str(tmp_path / "x.npy")), from_array.labels_)


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


def same_groups(labels: Any) -> bool:
    return len(set(zip(labels.tolist(), ANSWERS.tolist(), strict=True))) == 4


def test_it_ends_a_pipeline_and_stands_inside_one(x: Any) -> None:
    pipe = make_pipeline(StandardScaler(), narrow())
    assert same_groups(pipe.fit_predict(x))
    assert same_groups(pipe.fit(x, targetclustering__source_labels=ANSWERS).predict(x))
    assert pipe.transform(x).shape == (48, 12)
    classified = make_pipeline(narrow(), LogisticRegression()).fit(x, ANSWERS)
    assert classified.score(x, ANSWERS) == 1


def test_a_grid_search_by_a_given_scorer_finds_the_number_of_clusters(x: Any) -> None:
    def score(estimator: Any, samples: Any, y: Any = None) -> float:
        return float(silhouette_score(samples, estimator.predict(samples)))

    search = GridSearchCV(narrow(), {"n_clusters": [2, 4]}, scoring=score, cv=2).fit(x)
    assert search.best_params_ == {"n_clusters": 4}
    assert same_groups(search.predict(x))


def test_joblib_fits_side_by_side_and_keeps_what_was_fitted(x: Any, tmp_path: Path) -> None:
    fits = (joblib.delayed(narrow(random_state=seed).fit)(x) for seed in (0, 1))
    one, other = joblib.Parallel(n_jobs=2, prefer="threads")(fits)
    assert one.stored_.card.making.seed != other.stored_.card.making.seed
    joblib.dump(one, tmp_path / "model.joblib")
    again = joblib.load(tmp_path / "model.joblib")
    np.testing.assert_array_equal(again.transform(x), one.transform(x))


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


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_wrong_array_is_refused_in_one_line(wrong: float, x: Any) -> None:
    with pytest.raises(InputError) as caught:
        TargetClustering(2).fit(np.where(x == x[0, 0], wrong, x))
    assert "\n" not in str(caught.value)


def test_an_encoder_of_files_takes_no_columns_of_an_earlier_fit(tmp_path: Path, x: Any) -> None:
    np.save(tmp_path / "narrow.npy", x[:, :4])
    fitted = clone(narrow(TargetClustering)).fit(x).fit(tmp_path / "narrow.npy")
    assert fitted.n_features_in_ == 4
    assert len(fitted.predict(x[:, :4])) == len(x)


def test_features_are_those_in_which_the_clusters_lie(x: Any) -> None:
    fitted = narrow().fit(x)
    features = fitted.transform(x)
    assert (features.shape, features.dtype) == ((48, 12), np.float32)
    logits = features @ fitted.prototypes_.T
    shares = np.exp(logits - logits.max(1, keepdims=True))
    np.testing.assert_allclose(shares / shares.sum(1, keepdims=True), fitted.predict_proba(x), atol=1e-5)
    assert same_groups(KMeans(4, n_init=4, random_state=0).fit_predict(features))


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
