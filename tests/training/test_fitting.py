"""Tests of giving a model the clusters found in its features, and of fitting it to them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ucds.backbones import Backbone, identity_backbone, module_backbone
from ucds.config import ConsensusSettings
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.errors import UserError
from ucds.math.spaces import centre, principal_axes, unit_rows
from ucds.training.fitting import (
    LOGIT_SCALE,
    FeatureClusters,
    build_model,
    features_to_cluster,
    fit_prototypes,
    read_all,
    remember,
)
from ucds.training.options import Compute
from ucds.training.prediction import encode, predict
from ucds.training.prepare import Training
from ucds.training.run_folder import RunFolder
from ucds.training.runtime import Runtime
from ucds.training.session import Session

N, K = 60, 4
TRUTH = np.arange(N) % K


def settings(**changes: Any) -> ConsensusSettings:
    return ConsensusSettings.from_mapping({"bottleneck_width": 8} | changes)


def opened(cache: Path | None = None, **changes: Any) -> Session[ConsensusSettings]:
    return Session(Runtime(Compute("cpu", cache=cache)), settings(**changes))


def blob_data(domains: int = 1) -> Dataset:
    rng = np.random.default_rng(0)
    vectors = (np.eye(K, 6)[TRUTH] + 0.05 * rng.normal(size=(N, 6)) + 0.3).astype(np.float32)
    domain = np.arange(N) * domains // N
    return Dataset(VectorSamples(vectors, domain, tuple("abc"[:domains])))


def network(seed: int = 0) -> Backbone:
    torch.manual_seed(seed)
    return module_backbone(nn.Sequential(nn.Linear(6, 9), nn.Dropout(0.2), nn.Tanh()), 9)


def built(
    session: Session[ConsensusSettings], backbone: Backbone, data: Dataset
) -> tuple[Training, FeatureClusters, np.ndarray]:
    """The model of the true clusters, these clusters, and the features that they were found in."""
    seen: list[np.ndarray] = []
    training, _ = start(
        session, backbone, data, lambda vectors: (seen.append(vectors), clusters_in(vectors))[1]
    )
    return training, clusters_in(seen[0]), seen[0]


def start(
    session: Session[ConsensusSettings],
    backbone: Backbone,
    data: Dataset,
    cluster: Callable[[np.ndarray], FeatureClusters],
    n_clusters: int = K,
) -> tuple[Training, torch.Tensor]:
    features = features_to_cluster(session, backbone, data, n_clusters)
    found = remember(session, "find", lambda: cluster(read_all(features)))
    return build_model(session, "find", backbone, features, found, n_clusters)


def refuse(vectors: np.ndarray) -> FeatureClusters:
    pytest.fail("clustered again")


def clusters_in(vectors: np.ndarray, truth: np.ndarray = TRUTH) -> FeatureClusters:
    axes, _ = principal_axes(centre(vectors), 5)
    mean = unit_rows(vectors).mean(0)
    shares = np.eye(K, dtype=np.float32)[truth]
    prototypes = unit_rows(shares.T @ ((unit_rows(vectors) - mean) @ axes)).T
    return FeatureClusters(axes, mean, prototypes, shares.mean(0, keepdims=True), shares)


def test_features_are_those_of_the_frozen_backbone() -> None:
    data, backbone = blob_data(), network()
    _, _, vectors = built(opened(), backbone, data)
    with torch.no_grad():
        expected = backbone.module.eval()(data.samples.read(np.arange(N)))
    np.testing.assert_allclose(vectors, expected.numpy(), atol=1e-6)
    assert all(weight.requires_grad for weight in backbone.module.parameters())


def test_fewer_samples_than_clusters_are_refused() -> None:
    session, data = opened(), blob_data()
    with pytest.raises(UserError, match=f"^{N} samples cannot form {N + 1} clusters$"):
        start(session, identity_backbone(6), data, refuse, N + 1)


@pytest.mark.parametrize("cached", [True, False])
def test_features_that_are_not_finite_are_refused(cached: bool, tmp_path: Path) -> None:
    backbone = network()
    named = dataclasses.replace(backbone, spec=dataclasses.replace(backbone.spec, name="broken"))
    nn.init.constant_(named.module[0].bias, math.nan)
    with pytest.raises(UserError, match="features are not finite: are its weights right"):
        start(opened(tmp_path / "cache" if cached else None), named, blob_data(), refuse)


def test_the_model_built_from_clusters_predicts_them() -> None:
    session, data = opened(), blob_data()
    training, clusters, vectors = built(session, network(), data)
    logits = LOGIT_SCALE * (unit_rows(vectors) - clusters.mean) @ clusters.axes @ clusters.prototypes
    expected = torch.from_numpy(logits).softmax(-1)
    torch.testing.assert_close(
        predict(training.model, data, session.runtime, 16), expected, atol=1e-5, rtol=1e-4
    )
    (result,) = session.results
    assert (result.name, result.selected) == ("find", 0)
    assert result.seconds > 0
    np.testing.assert_array_equal(result.evaluations[0].labels, expected.argmax(1))
    np.testing.assert_array_equal(result.assignments, clusters.assignments)
    np.testing.assert_array_equal(result.proportions, clusters.proportions)


def test_a_model_is_fitted_to_assignments_that_its_start_does_not_have() -> None:
    session, data = opened(), blob_data()
    training, _, _ = built(session, identity_backbone(6), data)
    asked = (TRUTH + 1) % K
    targets = torch.eye(K)[torch.from_numpy(asked)]
    features = encode(training.trained, training.data, session.runtime).numpy()
    fit_prototypes(session, "fit", training.trained, features, targets)
    result = session.results[-1]
    np.testing.assert_array_equal(result.evaluations[result.selected].labels, asked)
    torch.testing.assert_close(result.proportions, targets.mean(0, keepdim=True))
    said = predict(training.model, data, session.runtime, 64)
    np.testing.assert_array_equal(said.argmax(1), asked)


def test_a_resumed_session_gives_a_model_its_weights_back(tmp_path: Path) -> None:
    models = []
    for resume in (False, True):
        folder = RunFolder(tmp_path / "run")
        folder.open({}, resume=resume)
        session = Session(Runtime(Compute("cpu", cache=None), folder=folder, seed=int(resume)), settings())
        data, backbone = blob_data(), identity_backbone(6)
        if resume:
            training, _ = start(session, backbone, data, refuse)
        else:
            training, _, _ = built(session, backbone, data)
        models.append(training.model.state_dict())
        assert [result.name for result in session.results] == ["find"]
        session.close()
        folder.close()
    assert all(torch.equal(tensor, models[1][name]) for name, tensor in models[0].items())
    assert models[0]["prototypes"].any()


def test_a_run_that_is_killed_before_its_model_is_built_does_not_cluster_again(tmp_path: Path) -> None:
    """Noise of a private run that is drawn a second time would have to be paid for a second time."""
    data, kept = blob_data(), []
    for resume in (False, True):
        folder = RunFolder(tmp_path / "run")
        folder.open({}, resume=resume)
        session = Session(Runtime(Compute("cpu", cache=None), folder=folder), settings())
        features = features_to_cluster(session, identity_backbone(6), data, K)
        cluster = refuse if resume else clusters_in
        found = remember(session, "find", lambda: cluster(read_all(features)))  # noqa: B023
        assert found is not None
        kept.append(vars(found))
        session.close()
        folder.close()
    assert kept[0].keys() == kept[1].keys()
    for name, value in kept[0].items():
        np.testing.assert_array_equal(kept[1][name], value)
