"""Tests of tables whose rows differ by their lengths, or lie far from zero: no cluster is lost."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from quick import quick
from sklearn.metrics import adjusted_rand_score

import ucds
from ucds import InputError, SourceClustering, TargetClustering
from ucds.data.vectors import VectorSamples
from ucds.encoders.spec import IDENTITY, LENGTHS
from ucds.labels.questions import VectorQuestions
from ucds.labels.wire import ServiceInfo
from ucds.training.inputs import see_vectors

Vectors = NDArray[np.float64]
FAR = 4.5e6
LINE = np.array([[0.0, 0], [5, 5], [10, 10]])
CROSS = np.array([[0.0, 0], [10, 0], [-10, 0], [0, 10], [0, -10]])
COLUMN = np.array([[0.0], [1], [2], [3]])
SIZES = (60, 20, 12, 8, 8)


def clumps(
    centres: Vectors, width: float = 0.3, seed: int = 0, *, even: bool = True
) -> tuple[Vectors, list[int]]:
    """Draw narrow clumps around centres, which are equally large or not."""
    classes = np.repeat(np.arange(len(centres)), 24 if even else SIZES[: len(centres)])
    noise = np.random.default_rng(seed).normal(size=(len(classes), centres.shape[1]))
    return centres[classes] + width * noise, classes.tolist()


def fitted(k: int | str, rows: Vectors, **given: object) -> TargetClustering:
    estimator = TargetClustering(k, settings=quick(), random_state=0, accelerator="cpu")
    return estimator.fit(rows, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("centres", "width", "even"),
    [
        *((LINE, 0.3, True), (CROSS, 0.5, True), (COLUMN, 0.1, True)),
        *((CROSS, 0.5, False), (COLUMN, 0.1, False), (1e-9 * LINE, 3e-10, False), (1e9 * LINE, 3e8, False)),
    ],
    ids=["line", "cross", "one column", "unequal cross", "unequal in one column", "tiny", "huge"],
)
def test_clumps_are_found_whatever_their_directions(centres: Vectors, width: float, even: bool) -> None:
    rows, classes = clumps(centres, width, even=even)
    found = fitted(len(centres), rows)
    assert adjusted_rand_score(classes, found.labels_) == 1
    np.testing.assert_array_equal(found.predict(rows), found.labels_)


@pytest.mark.parametrize("scale", [1.0, 1e-6], ids=lambda scale: f"spread {scale:g}")
@pytest.mark.parametrize("method", ["consensus", pytest.param("pcd", marks=pytest.mark.torch)])
def test_a_common_offset_changes_no_cluster(scale: float, method: str) -> None:
    rows, classes = clumps(scale * LINE, 0.3 * scale)
    settings = quick() if method == "consensus" else {"refinement_epochs": 10}
    estimator = TargetClustering(3, method=method, settings=settings, random_state=0, accelerator="cpu")
    near = estimator.fit(rows).labels_.copy()
    far = estimator.fit(rows + FAR)
    assert adjusted_rand_score(near, far.labels_) == adjusted_rand_score(classes, near) == 1
    np.testing.assert_array_equal(far.predict(rows[::-1] + FAR), far.labels_[::-1])


def test_whole_numbers_beyond_single_precision_are_told_apart() -> None:
    rows, classes = clumps(1000 * LINE, 300)
    assert adjusted_rand_score(classes, fitted(3, (rows + 2**40).astype(np.int64)).labels_) == 1


def test_one_row_far_from_all_others_does_not_make_them_look_alike() -> None:
    rows, classes = clumps(LINE)
    found = fitted(4, np.concatenate([rows, [[1e5, -1e5]]])).labels_[:-1]
    assert adjusted_rand_score(classes, found) > 0.9


def test_a_number_of_clusters_is_chosen_by_lengths_too() -> None:
    rows, classes = clumps(CROSS, 0.5)
    found = fitted("2..8", rows + FAR)
    assert found.n_clusters_ == 5
    assert adjusted_rand_score(classes, found.labels_) == 1


@pytest.mark.parametrize("kind", ["csv", "parquet", "npy"])
def test_both_sides_and_all_files_keep_what_single_precision_loses(tmp_path: Path, kind: str) -> None:
    """Provider and client over files, 4.5e6 from zero with clumps 0.5 apart."""
    settings, files = quick(), []
    for number, side in enumerate(("source", "target")):
        rows, classes = clumps(0.1 * LINE, 0.03, seed=number)
        files.append(tmp_path / f"{side}.{kind}")
        table = pd.DataFrame(rows + FAR, columns=["a", "b"])
        if kind == "csv":
            table.to_csv(files[-1], index=False)
        elif kind == "parquet":
            pd.DataFrame({"embedding": list(rows + FAR)}).to_parquet(files[-1])
        else:
            np.save(files[-1], rows + FAR)
    provider = ucds.train_source(files[0], tmp_path / "provider", n_clusters=3, settings=settings)
    labels = ucds.label(provider.folder, files[1])
    assert adjusted_rand_score(classes, labels.labels) == 1
    run = ucds.train_target(files[1], tmp_path / "client", labels=labels, settings=settings)
    predicted = ucds.load(run.folder).predict(files[1])
    assert adjusted_rand_score(classes, predicted) == 1
    np.testing.assert_array_equal(predicted, labels.labels)  # the provider's numbers


def test_domains_of_a_provider_share_clusters_that_differ_by_length() -> None:
    (one, classes), (other, _) = clumps(LINE), clumps(LINE + 1, seed=1)
    domain = np.repeat([0, 1], len(one))
    source = SourceClustering(3, settings=quick(), random_state=0, accelerator="cpu")
    found = source.fit(np.concatenate([one, other]) + FAR, sample_domain=domain).labels_
    assert adjusted_rand_score(classes * 2, found) == 1


def test_embeddings_of_many_dimensions_stay_directions_unless_they_lie_far_from_zero() -> None:
    wide = np.random.default_rng(0).normal(size=(200, 64))
    seen = [wide + 1, np.ones((9, 64)), wide + 100, wide[:, :4] @ wide[:4]]
    names = [see_vectors(VectorSamples(rows)).spec.name for rows in seen]
    assert names == [IDENTITY, IDENTITY, LENGTHS, LENGTHS]


def test_rows_that_single_precision_would_blur_are_not_sent_to_a_service() -> None:
    rows = VectorSamples(clumps(0.1 * LINE, 0.03)[0] + FAR)
    info = ServiceInfo.model_construct(provider="m", accepts="embeddings", width=2)
    with pytest.raises(InputError, match="ask the provider to label them"):
        VectorQuestions(rows).for_service(info)
