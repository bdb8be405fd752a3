"""Tests of the clustering model: its size, its start, and its head as arrays."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from ucds.networks.build import build_network
from ucds.networks.encoder import identity_network, module_encoder, tensors_digest
from ucds.networks.model import ClusteringModel, fold

pytestmark = pytest.mark.torch


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small_model(n_clusters: int = 5) -> ClusteringModel:
    torch.manual_seed(0)
    backbone = module_encoder(nn.Sequential(nn.Linear(12, 8), nn.ReLU()), 8)
    return ClusteringModel(backbone, n_clusters, bottleneck_width=6, generator=seeded(1))


def test_resnet18_has_the_papers_size() -> None:
    """11.32 M in the paper: 11,176,512 of ResNet-18, 131,840 of the bottleneck, 7,936 of the prototypes."""
    model = ClusteringModel(build_network("resnet18", weights="none", input_size=64), 31)
    assert model.count_parameters() == 11_316_288
    assert sum(weight.numel() for weight in model.encoder.backbone.parameters()) == 11_176_512


def test_output_is_features_and_their_products_with_the_prototypes() -> None:
    model = small_model().eval()
    assert (model.n_clusters, model.bottleneck_width) == (5, 6)
    inputs = torch.randn(4, 12)
    output = model(inputs)
    linear = model.encoder.bottleneck.linear
    by_hand = linear(torch.relu(model.encoder.backbone[0](inputs))) / math.sqrt(1 + 1e-5)
    torch.testing.assert_close(output.features, by_hand)
    torch.testing.assert_close(output.logits, torch.einsum("nd,dk->nk", by_hand, model.prototypes))


def test_the_start_depends_on_the_generator_alone() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = ClusteringModel(identity_network(9), 4, generator=seeded(1))
    assert torch.equal(torch.get_rng_state(), before)
    again = ClusteringModel(identity_network(9), 4, generator=seeded(1))
    other = ClusteringModel(identity_network(9), 4, generator=seeded(2))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.prototypes, other.prototypes)


def test_new_layers_start_after_xavier_with_zero_bias() -> None:
    model = ClusteringModel(identity_network(512), 31, generator=seeded(0))
    linear = model.encoder.bottleneck.linear
    assert not linear.bias.any()
    assert linear.weight.std().item() == pytest.approx(math.sqrt(2 / (512 + 256)), rel=0.02)
    assert model.prototypes.std().item() == pytest.approx(math.sqrt(2 / (256 + 31)), rel=0.05)


@pytest.mark.parametrize("spread", [False, True])
def test_a_folded_head_gives_the_models_features_and_logits(spread: bool) -> None:
    model, inputs = small_model(), torch.randn(90, 12, generator=seeded(3))
    if spread:  # statistics far from those of a new layer
        norm = model.encoder.bottleneck.norm
        for tensor, scale in ((norm.running_mean, 3.0), (norm.weight.data, 5.0), (norm.bias.data, 2.0)):
            tensor.copy_(scale * torch.randn(6, generator=seeded(4)))
        norm.running_var.copy_(torch.rand(6, generator=seeded(5)) / 100 + 1e-3)
    output = model.eval()(inputs)
    head = fold(model)
    below = model.encoder.backbone(inputs).detach().numpy()
    features = head.features(below)
    expected = [tensor.detach().numpy() for tensor in output]
    apart = np.linalg.norm(features - expected[0], axis=1) / np.linalg.norm(expected[0], axis=1)
    assert apart.max() < 1e-5
    np.testing.assert_allclose(head.logits(features), expected[1], rtol=1e-4, atol=1e-4)
    before = head.prototypes.copy()
    with torch.no_grad():
        model.prototypes.zero_()
    assert np.array_equal(head.prototypes, before)  # arrays of its own


def test_the_digest_is_of_weights_and_names() -> None:
    def linear(scale: float = 1.0, dtype: torch.dtype = torch.float32) -> nn.Module:
        module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        for tensor in module.state_dict().values():
            tensor.fill_(scale)
        return module.to(dtype)

    base = tensors_digest(linear().state_dict())
    assert base == tensors_digest(linear().state_dict())
    others = [
        tensors_digest(linear(2.0).state_dict()),
        tensors_digest(linear(dtype=torch.float64).state_dict()),
        tensors_digest(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3)).state_dict()),
        tensors_digest(nn.Linear(3, 3).state_dict()),
        tensors_digest(nn.Identity().state_dict()),
    ]
    changed = linear()
    changed[1].num_batches_tracked += 1
    others.append(tensors_digest(changed.state_dict()))
    with torch.no_grad():
        changed[1].weight[2] = torch.nextafter(changed[1].weight[2], torch.tensor(2.0))  # by one bit
    others.append(tensors_digest(changed.state_dict()))
    assert len({base, *others}) == 8
    assert tensors_digest(changed.eval().state_dict()) == others[-1]
