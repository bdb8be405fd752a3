"""Tests of giving a model the clusters found in its features, and of fitting it to them."""

import re
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from ucds.config import ConsensusSettings
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.encoders.encoder import Encoder, FunctionEncoder, IdentityEncoder
from ucds.heads import Head, softmax
from ucds.math.domain_transport import FeatureClusters
from ucds.math.prototypes import solve_prototypes
from ucds.math.spaces import centre, principal_axes, unit_rows
from ucds.training.features import read_all
from ucds.training.fitting import (
    LOGIT_SCALE,
    build_head,
    features_to_cluster,
    fit_prototypes,
    tell_what_drawing_costs,
)
from ucds.training.options import Compute
from ucds.training.progress import Quiet
from ucds.training.run_folder import RunFolder
from ucds.training.work import Work

N, K = 60, 4
TRUTH = np.arange(N) % K
VECTORS = np.eye(K, 6)[TRUTH] + 0.05 * np.random.default_rng(0).normal(size=(N, 6)) + 0.3
DATA = Dataset(VectorSamples(VECTORS.astype(np.float32)))
SETTINGS = ConsensusSettings(bottleneck_width=8)


def clusters_in(vectors: np.ndarray) -> FeatureClusters:
    axes = principal_axes(centre(vectors), 5)[0][:, ::-1]  # a view, as mathematics may return one
    mean = unit_rows(vectors).mean(0)
    shares = np.eye(K, dtype=np.float32)[TRUTH]
    prototypes = unit_rows(shares.T @ ((unit_rows(vectors) - mean) @ axes)).T
    return FeatureClusters(axes, mean, prototypes, shares.mean(0, keepdims=True), shares)


def refuse(vectors: np.ndarray) -> FeatureClusters:
    pytest.fail("clustered again")


Built = tuple[Work[ConsensusSettings], Head, np.ndarray]


def built(encoder: Encoder) -> Built:
    """A run, the head of clusters that are found in the features, and its features of the samples."""
    work = Work(SETTINGS)
    features = features_to_cluster(work, encoder, DATA, K)
    head, _, encoded = build_head(work, "find", features, lambda: clusters_in(read_all(features)))
    return work, head, encoded


def test_the_head_built_from_clusters_in_frozen_features_predicts_them() -> None:
    weights = np.random.default_rng(0).normal(size=(6, 9))
    encoder = FunctionEncoder(lambda rows: np.tanh(rows @ weights), 9)
    work, head, encoded = built(encoder)
    vectors = encoder(DATA.samples.read(np.arange(N)))
    clusters = clusters_in(vectors)
    logits = LOGIT_SCALE * (unit_rows(vectors) - clusters.mean) @ clusters.axes @ clusters.prototypes
    expected = softmax(logits)
    np.testing.assert_allclose(head.probabilities(encoded), expected, atol=1e-5, rtol=1e-4)
    np.testing.assert_array_equal(head.features(vectors), encoded)
    (result,) = work.results
    assert (result.name, result.selected) == ("find", 0)
    assert result.seconds > 0
    np.testing.assert_array_equal(result.evaluations[0].labels, expected.argmax(1))
    np.testing.assert_array_equal(result.assignments, clusters.assignments)
    np.testing.assert_array_equal(result.proportions, clusters.proportions)


def test_a_head_is_fitted_to_assignments_that_its_start_does_not_have() -> None:
    work, head, features = built(IdentityEncoder(6))
    asked = (TRUTH + 1) % K
    targets = np.eye(K, dtype=np.float32)[asked]
    fitted = fit_prototypes(work, "fit", head, features, targets)
    result = work.results[-1]
    np.testing.assert_array_equal(result.evaluations[result.selected].labels, asked)
    np.testing.assert_allclose(result.proportions, targets.mean(0, keepdims=True))
    np.testing.assert_array_equal(fitted.logits(features).argmax(1), asked)
    np.testing.assert_array_equal(head.logits(features).argmax(1), TRUTH)  # it stays as it was


def test_the_estimate_for_samples_that_were_not_drawn_does_not_see_those_it_is_made_with() -> None:
    """Random targets of few samples with many features can be learned by heart, and not foreseen."""
    said: list[str] = []
    features = np.random.default_rng(0).normal(size=(N, 64)).astype(np.float32)
    targets = np.eye(K, dtype=np.float32)[np.random.default_rng(1).integers(K, size=N)]
    prototypes = solve_prototypes(features, targets, np.zeros((64, K), np.float32))
    head = Head(np.eye(64, dtype=np.float32), np.zeros(64, np.float32), prototypes)
    reporter = Quiet()
    reporter.say = said.append  # type: ignore[method-assign]
    work = Work(SETTINGS, Compute("cpu", cache=None, reporter=reporter))
    tell_what_drawing_costs(work, head, features, targets, fitted=True)
    inside, outside = (float(figure) for figure in re.findall(r"([\d.]+)%", said[0]))
    assert inside == 100
    assert outside < 60


def test_a_run_that_is_killed_before_its_head_is_built_does_not_cluster_again(tmp_path: Path) -> None:
    """Noise of a private run that is drawn a second time would have to be paid for a second time."""
    kept = []
    for resume, cluster in enumerate((clusters_in, refuse)):
        folder = RunFolder(tmp_path / "run")
        folder.open({}, resume=bool(resume))
        with closing(folder):
            work = Work(SETTINGS, seed=resume, folder=folder)
            features = features_to_cluster(work, IdentityEncoder(6), DATA, K)
            found = build_head(work, "find", features, lambda: cluster(read_all(features)))[1]  # noqa: B023
            kept.append(vars(found) | {"seconds": work.results[-1].seconds})
    np.testing.assert_equal(kept[1], kept[0])
    # The order in memory decides how products are rounded.
    arrays = [name for name, value in kept[0].items() if isinstance(value, np.ndarray)]
    assert [kept[1][name].strides for name in arrays] == [kept[0][name].strides for name in arrays]
