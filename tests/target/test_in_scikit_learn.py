"""The estimators do in scikit-learn what its own clusterings do: pipelines, searches, joblib, data frames."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import silhouette_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ucds import SourceClustering, TargetClustering, UcdsWarning

TRUTH = np.arange(36) % 4


def brief(kind: Any = TargetClustering, **parameters: Any) -> Any:
    usual = {"n_clusters": 4, "settings": {"starts": 1, "bottleneck_width": 12}, "random_state": 0}
    return kind(**usual | parameters)


@pytest.fixture
def x(blobs: Callable[..., dict[str, Any]]) -> Any:
    return blobs({"t": 36})["t"]


def same_groups(labels: Any) -> bool:
    return len(set(zip(labels.tolist(), TRUTH.tolist(), strict=True))) == 4


def test_it_ends_a_pipeline_and_stands_inside_one(x: Any) -> None:
    pipe = make_pipeline(StandardScaler(), brief())
    assert same_groups(pipe.fit_predict(x))
    assert same_groups(pipe.fit(x, targetclustering__source_labels=TRUTH).predict(x))
    assert pipe.transform(x).shape == (36, 12)
    classified = make_pipeline(brief(), LogisticRegression()).fit(x, TRUTH)
    assert classified.score(x, TRUTH) == 1


def test_a_grid_search_by_a_given_scorer_finds_the_number_of_clusters(x: Any) -> None:
    def score(estimator: Any, samples: Any, y: Any = None) -> float:
        return float(silhouette_score(samples, estimator.predict(samples)))

    search = GridSearchCV(brief(), {"n_clusters": [2, 4]}, scoring=score, cv=2).fit(x)
    assert search.best_params_ == {"n_clusters": 4}
    assert same_groups(search.predict(x))


def test_joblib_fits_side_by_side_and_keeps_what_was_fitted(x: Any, tmp_path: Path) -> None:
    fits = (joblib.delayed(brief(random_state=seed).fit)(x) for seed in (0, 1))
    one, other = joblib.Parallel(n_jobs=2, prefer="threads")(fits)
    assert one.stored_.card.making.seed != other.stored_.card.making.seed
    joblib.dump(one, tmp_path / "model.joblib")
    again = joblib.load(tmp_path / "model.joblib")
    np.testing.assert_array_equal(again.transform(x), one.transform(x))


@pytest.mark.parametrize("kind", [TargetClustering, SourceClustering])
def test_a_data_frame_comes_in_and_a_data_frame_goes_out(kind: Any, x: Any) -> None:
    frame = pd.DataFrame(x, columns=list("abcdef"), index=[f"row {i}" for i in range(36)])
    fitted = clone(brief(kind)).set_output(transform="pandas").fit(frame)
    assert fitted.feature_names_in_.tolist() == list("abcdef")
    out = fitted.transform(frame)
    names = [f"{kind.__name__.lower()}{i}" for i in range(12)]
    assert out.columns.tolist() == fitted.get_feature_names_out().tolist() == names
    assert out.index.tolist() == frame.index.tolist()
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.transform(frame[list("bacdef")])


def test_features_are_those_in_which_the_clusters_lie(x: Any) -> None:
    fitted = brief().fit(x)
    features = fitted.transform(x)
    assert (features.shape, features.dtype) == ((36, 12), np.float32)
    logits = features @ fitted.prototypes_.T
    shares = np.exp(logits - logits.max(1, keepdims=True))
    np.testing.assert_allclose(shares / shares.sum(1, keepdims=True), fitted.predict_proba(x), atol=1e-5)
    assert same_groups(KMeans(4, n_init=4, random_state=0).fit_predict(features))


def test_every_image_has_a_row_and_an_unusable_one_nan(
    write_images: Callable[..., list[Path]], tmp_path: Path
) -> None:
    paths = write_images(tmp_path / "images", [f"{i}.png" for i in range(8)])
    paths[3].write_bytes(b"no image")
    fitted = brief(n_clusters=2, backbone="ucds/oriented_edges", cache=tmp_path / "cache")
    with pytest.warns(UcdsWarning, match=r"3\.png"):
        features = fitted.set_output(transform="pandas").fit_transform(paths[0].parent)
    assert features.shape == (8, 12)
    assert features.isna().all(axis=1).tolist() == [row == 3 for row in range(8)]
