"""One step of each stage against the same step written out in plain PyTorch and NumPy."""

import copy
from collections.abc import Callable

import numpy as np
import ot
import pytest
import torch
from torch.nn.functional import kl_div, one_hot

from ucds.config import PCDSettings
from ucds.data.batches import DomainBalancedSampler
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.gradients.pcd_loss import PCDLoss
from ucds.gradients.session import Session
from ucds.gradients.source_stage import learn_source
from ucds.gradients.target_stages import cluster_target, refine_target
from ucds.labels.cluster_labels import ClusterLabels
from ucds.networks.encoder import identity_network
from ucds.networks.model import ClusteringModel
from ucds.training.options import Compute

pytestmark = pytest.mark.torch

K, WIDTH = 4, 6
SETTINGS = PCDSettings(
    bottleneck_width=5,
    batch_size=64,
    mixing_weight=0.0,
    transport_weight=1.5,
    information_weight=0.7,
    distillation_weight=0.9,
    transport_tolerance=1e-9,
    source_epochs=1,
    clustering_epochs=1,
    refinement_epochs=1,
    evaluations_per_stage=1,
    source_proportion_momentum=0.8,
    target_proportion_momentum=0.8,
)


def model() -> ClusteringModel:
    return ClusteringModel(
        identity_network(WIDTH), K, bottleneck_width=5, generator=torch.Generator().manual_seed(0)
    )


def vectors(*sizes: int) -> VectorSamples:
    rng = np.random.default_rng(0)
    return VectorSamples.from_arrays({f"d{i}": rng.normal(size=(n, WIDTH)) for i, n in enumerate(sizes)})


def session(settings: PCDSettings = SETTINGS) -> Session[PCDSettings]:
    return Session(settings, Compute("cpu", cache=None))


def one_step(
    before: ClusteringModel,
    samples: VectorSamples,
    distil: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = lambda logits, index: torch.zeros(()),
) -> tuple[ClusteringModel, torch.Tensor]:
    """The model after one step of the paper's clustering loss, and the new proportions."""
    after = copy.deepcopy(before).train()
    sampler = DomainBalancedSampler(samples.domain, SETTINGS.batch_size, 0)
    index = torch.from_numpy(sampler.batch(0))
    features = after.encoder(torch.from_numpy(samples.read(index.numpy())))
    logits = features @ after.prototypes
    transport, proportions = torch.zeros(()), []
    domain = torch.from_numpy(samples.domain)[index]
    for d in range(len(samples.domain_names)):
        mine = domain == d
        # Eq. 2, from a uniform start.
        old = torch.full((K,), 1 / K)
        weighed = logits[mine].exp() * old
        new = 0.8 * old + 0.2 * (weighed / weighed.sum(1, keepdim=True)).mean(0).detach()
        proportions.append(new)
        # Eq. 1, by an independent solver.
        cost = 1 - torch.nn.functional.cosine_similarity(
            features[mine].unsqueeze(1), after.prototypes.T.unsqueeze(0), dim=-1
        )
        u = np.full(int(mine.sum()), 1 / int(mine.sum()))
        v = new.double().numpy()
        plan = ot.sinkhorn(
            u, v / v.sum(), cost.detach().double().numpy(), 0.01, "sinkhorn_log", 200_000, stopThr=1e-11
        )
        transport = transport + (torch.tensor(plan, dtype=torch.float32) * cost).sum()
    transport = transport / len(proportions)
    # Eq. 3.
    p = logits.softmax(1)
    conditional = -(p * p.log()).sum(1).mean()
    marginal = -(p.mean(0) * p.mean(0).log()).sum()
    loss = 1.5 * transport + 0.7 * (conditional - marginal) + 0.9 * distil(logits, index)
    loss.backward()
    # The first step of SGD with Nesterov momentum: g + 0.9 g, where g holds the weight decay; p = 0.
    with torch.no_grad():
        for weight in after.parameters():
            assert weight.grad is not None
            weight -= 0.01 * 1.9 * (weight.grad + 1e-3 * weight)
    return after, torch.stack(proportions)


def assert_same(found: ClusteringModel, expected: ClusteringModel) -> None:
    for (name, one), two in zip(found.named_parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=2e-6, msg=lambda m, n=name: f"{n}: {m}")


def test_stage_1_over_domains_of_unequal_size() -> None:
    samples, found = vectors(9, 14), model()
    expected, proportions = one_step(found, samples)
    result = learn_source(session(), found, Dataset(samples), samples)
    assert_same(found, expected)
    torch.testing.assert_close(torch.from_numpy(result.proportions), proportions)


def test_stage_3() -> None:
    samples, found = vectors(20), model()
    expected, proportions = one_step(found, samples)
    result = refine_target(session(), found, Dataset(samples))
    assert_same(found, expected)
    torch.testing.assert_close(torch.from_numpy(result.proportions), proportions)


def test_stage_2_adds_the_distance_from_smoothed_labels() -> None:
    samples, found = vectors(20), model()
    hard = np.arange(20) % K

    def distil(logits: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        targets = 0.9 * one_hot(torch.from_numpy(hard)[index], K) + 0.1 / K
        return kl_div(logits.log_softmax(1), targets, reduction="batchmean")

    expected, _ = one_step(found, samples, distil)
    labels = ClusterLabels(samples.ids, hard, K, "test")
    cluster_target(session(), found, Dataset(samples), labels)
    assert_same(found, expected)


def test_the_temporal_ensemble_is_refreshed_as_often_as_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """With tau = 0 the targets become the model's own predictions after the first refresh."""
    samples, trained = vectors(40), model()
    targets: list[torch.Tensor] = []
    update = PCDLoss.update_targets

    def spied(loss: PCDLoss, predictions: torch.Tensor) -> None:
        update(loss, predictions)
        assert loss.targets is not None
        targets.append(loss.targets)

    monkeypatch.setattr(PCDLoss, "update_targets", spied)
    settings = SETTINGS.model_copy(
        update={"ensemble_momentum": 0.0, "clustering_epochs": 6, "evaluations_per_stage": 3}
    )
    labels = ClusterLabels(samples.ids, np.zeros(40, dtype=np.int64), K, "test")
    result = cluster_target(session(settings), trained, Dataset(samples), labels)
    assert [e.step for e in result.evaluations] == [2, 4, 6]
    # The targets at the end come from the refresh at step 4; the last evaluation serves no further step.
    assert result.selected == 2
    assert [list(t.argmax(1)) for t in targets] == [list(e.labels) for e in result.evaluations[:2]]
    assert not torch.equal(targets[1], targets[1].round())
