"""Tests of giving a model the clusters found in its features, and of fitting it to them."""

from __future__ import annotations

import re
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from ucds.config import ConsensusSettings
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.gradients.runtime import Runtime
from ucds.gradients.session import Session
from ucds.math.prototypes import solve_prototypes
from ucds.math.spaces import centre, principal_axes, unit_rows
from ucds.networks.model import ClusteringModel
from ucds.networks.spec import Backbone, identity_backbone, module_backbone
from ucds.training.fitting import (
    LOGIT_SCALE,
    FeatureClusters,
    build_model,
    features_to_cluster,
    fit_prototypes,
    read_all,
    remember,
    tell_what_drawing_costs,
)
from ucds.training.options import Compute
from ucds.training.prediction import encode, predict
from ucds.training.prepare import Training
from ucds.training.progress import Quiet
from ucds.training.run_folder import RunFolder

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


def built(backbone: Backbone) -> tuple[Session[ConsensusSettings], Training]:
    """A session with the model of clusters that are found in the features."""
    session = Session(Runtime(Compute("cpu", cache=None)), SETTINGS)
    features = features_to_cluster(session, backbone, DATA, K)
    found = remember(session, "find", lambda: clusters_in(read_all(features)))
    return session, build_model(session, "find", backbone, features, found, K)


def test_the_model_built_from_clusters_in_frozen_features_predicts_them() -> None:
    torch.manual_seed(0)
    backbone = module_backbone(nn.Sequential(nn.Linear(6, 9), nn.Dropout(0.2), nn.Tanh()), 9)
    session, training = built(backbone)
    with torch.no_grad():
        vectors = backbone.module.eval()(torch.from_numpy(DATA.samples.read(np.arange(N)))).numpy()
    clusters = clusters_in(vectors)
    logits = LOGIT_SCALE * (unit_rows(vectors) - clusters.mean) @ clusters.axes @ clusters.prototypes
    expected = torch.from_numpy(logits).softmax(-1)
    found = predict(training.model, DATA, session.runtime, 16)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    (result,) = session.results
    assert (result.name, result.selected) == ("find", 0)
    assert result.seconds > 0
    np.testing.assert_array_equal(result.evaluations[0].labels, expected.argmax(1))
    np.testing.assert_array_equal(result.assignments, clusters.assignments)
    np.testing.assert_array_equal(result.proportions, clusters.proportions)


def test_a_model_is_fitted_to_assignments_that_its_start_does_not_have() -> None:
    session, training = built(identity_backbone(6))
    asked = (TRUTH + 1) % K
    targets = np.eye(K, dtype=np.float32)[asked]
    features = encode(training.trained, training.data, session.runtime).numpy()
    fit_prototypes(session, "fit", training.trained, features, targets)
    result = session.results[-1]
    np.testing.assert_array_equal(result.evaluations[result.selected].labels, asked)
    torch.testing.assert_close(result.proportions, torch.from_numpy(targets).mean(0, keepdim=True))
    said = predict(training.model, DATA, session.runtime, 64)
    np.testing.assert_array_equal(said.argmax(1), asked)


def test_the_estimate_for_samples_that_were_not_drawn_does_not_see_those_it_is_made_with() -> None:
    """Random targets of few samples with many features can be learned by heart, and not foreseen."""
    said: list[str] = []
    features = np.random.default_rng(0).normal(size=(N, 64)).astype(np.float32)
    targets = np.eye(K, dtype=np.float32)[np.random.default_rng(1).integers(K, size=N)]
    model = ClusteringModel(identity_backbone(64), K, bottleneck_width=64)
    model.prototypes.data = torch.from_numpy(
        solve_prototypes(features, targets, np.zeros((64, K), np.float32))
    )
    reporter = Quiet()
    reporter.say = said.append  # type: ignore[method-assign]
    session = Session(Runtime(Compute("cpu", cache=None, reporter=reporter)), SETTINGS)
    tell_what_drawing_costs(session, model, features, targets, fitted=True)
    inside, outside = (float(figure) for figure in re.findall(r"([\d.]+)%", said[0]))
    assert inside == 100
    assert outside < 60


def test_a_run_that_is_killed_before_its_model_is_built_does_not_cluster_again(tmp_path: Path) -> None:
    """Noise of a private run that is drawn a second time would have to be paid for a second time."""
    kept = []
    for resume, cluster in enumerate((clusters_in, refuse)):
        folder = RunFolder(tmp_path / "run")
        folder.open({}, resume=bool(resume))
        session = Session(Runtime(Compute("cpu", cache=None), folder=folder, seed=resume), SETTINGS)
        with closing(folder), closing(session):
            features = features_to_cluster(session, identity_backbone(6), DATA, K)
            found = remember(session, "find", partial(cluster, read_all(features)))
            kept.append(vars(found))
    np.testing.assert_equal(kept[1], kept[0])
    # The order in memory decides how products are rounded.
    arrays = [name for name, value in kept[0].items() if isinstance(value, np.ndarray)]
    assert [kept[1][name].strides for name in arrays] == [kept[0][name].strides for name in arrays]
