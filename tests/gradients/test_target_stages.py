"""PCD on the client's side: with labels of some samples, and with more samples than are evaluated."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ucds.config import PCDSettings
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.encoders.encoder import IdentityEncoder
from ucds.errors import UcdsWarning
from ucds.gradients.pcd_loss import (
    distillation_loss,
    place_targets,
    temporal_ensemble,
)
from ucds.gradients.session import Session
from ucds.labels.cluster_labels import ClusterLabels
from ucds.target.train import fit_target
from ucds.training.fitting import encode
from ucds.training.options import Compute
from ucds.training.results import StageResult
from ucds.training.run_folder import RunFolder

pytestmark = pytest.mark.torch

N, K = 96, 4


def _rows(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 5, generator=torch.Generator().manual_seed(seed)).softmax(-1)


def test_a_row_of_zeros_adds_neither_loss_nor_gradient() -> None:
    logits, targets = torch.randn(6, 5, requires_grad=True), _rows(6)
    targets[[1, 4]] = 0
    taught = [0, 2, 3, 5]
    loss = distillation_loss(logits, targets)
    torch.testing.assert_close(loss, distillation_loss(logits[taught], targets[taught]))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert not gradient[[1, 4]].any()
    assert gradient[taught].any(-1).all()
    of_none = distillation_loss(logits, torch.zeros(6, 5))
    (gradient,) = torch.autograd.grad(of_none, logits)
    assert (of_none.item(), gradient.any().item()) == (0, False)


def test_the_first_ensemble_gives_a_target_and_the_next_blends_it() -> None:
    targets = place_targets(torch.tensor([[0.9, 0.1]]), torch.tensor([1]), 2)
    assert targets.tolist() == torch.tensor([[0.0, 0.0], [0.9, 0.1]]).tolist()
    once = temporal_ensemble(targets, torch.tensor([[0.2, 0.8], [0.4, 0.6]]), 0.6)
    torch.testing.assert_close(once, torch.tensor([[0.2, 0.8], [0.7, 0.3]]))
    twice = temporal_ensemble(once, torch.tensor([[1.0, 0.0], [0.0, 1.0]]), 0.6)
    torch.testing.assert_close(twice, torch.tensor([[0.52, 0.48], [0.42, 0.58]]))
    assert torch.equal(temporal_ensemble(targets, _rows(2)[:, :2], 1.0), targets)


def _data(blobs: Any, n: int = N) -> tuple[Dataset, np.ndarray]:
    # A numbering of the provider's own, which no clustering could find by itself.
    provider = np.array([2, 0, 3, 1])[np.arange(n) % K]
    return Dataset(VectorSamples(blobs({"x": n})["x"])), provider


def _fit(
    data: Dataset, labels: ClusterLabels, folder: RunFolder | None = None, **settings: int
) -> tuple[np.ndarray, Sequence[StageResult]]:
    """Return the clusters of the samples, and the stages."""
    short = {"bottleneck_width": 8, "batch_size": 16, "refinement_epochs": 5}
    chosen = PCDSettings(**(short | settings))
    session = Session(chosen, Compute("cpu", cache=None), folder=folder)
    session.open({}, resume=False)
    found = fit_target(session, IdentityEncoder(data.samples.rows.shape[1]), data, K, labels)
    return found.head.logits(encode(found.head, data)).argmax(1), found.stages


def test_labels_of_all_samples_cause_no_warning(blobs: Any) -> None:
    data, provider = _data(blobs)
    everything = ClusterLabels(data.samples.ids, provider, K, "p")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UcdsWarning)
        found, _ = _fit(data, everything, clustering_epochs=10)
    assert (found == provider).mean() > 0.95


@pytest.mark.filterwarnings("ignore:30 of 400 samples have a label")
def test_of_many_samples_some_get_targets_and_the_last_stage_sees_all(blobs: Any, tmp_path: Path) -> None:
    (data, provider), asked = _data(blobs, 400), np.arange(300, 330)
    labels = ClusterLabels(tuple(map(str, asked)), provider[asked], K, "p")
    folder = RunFolder(tmp_path / "run")
    most, size = 100, 20
    epochs = {"clustering_epochs": 20, "refinement_epochs": 2}
    found, stages = _fit(data, labels, folder, batch_size=size, most_samples=most, **epochs)
    # Eight labels would be too few for the numbering: so those asked were drawn first.
    assert (found == provider).mean() > 0.95
    clustering, refining = stages
    assert clustering.evaluations[-1].step == 20 * most // size
    assert refining.evaluations[-1].step == 2 * most // size  # an epoch is bounded, not the samples
    assert {len(one.labels) for stage in stages for one in stage.evaluations} == {most}
