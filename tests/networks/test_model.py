"""Tests of the clustering model: its size, its start, and its head."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from ucds.networks.build import build_network
from ucds.networks.encoder import identity_network, module_encoder, tensors_digest
from ucds.networks.model import ClusteringModel, ProjectionHead


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


def test_without_a_generator_the_global_one_is_used() -> None:
    models = []
    for _ in range(2):
        torch.manual_seed(3)
        models.append(ClusteringModel(identity_network(9), 4))
    assert torch.equal(models[0].prototypes, models[1].prototypes)


def test_new_layers_start_after_xavier_with_zero_bias() -> None:
    model = ClusteringModel(identity_network(512), 31, generator=seeded(0))
    linear = model.encoder.bottleneck.linear
    assert not linear.bias.any()
    assert linear.weight.std().item() == pytest.approx(math.sqrt(2 / (512 + 256)), rel=0.02)
    assert model.prototypes.std().item() == pytest.approx(math.sqrt(2 / (256 + 31)), rel=0.05)


def test_head_sees_features_as_the_model_sees_inputs_and_draws_no_random_numbers() -> None:
    model = small_model().eval()
    inputs = torch.randn(4, 12)
    before = torch.get_rng_state()
    head = model.head()
    assert torch.equal(torch.get_rng_state(), before)
    assert not head.training
    assert head.spec == identity_network(8).spec
    assert torch.equal(head(model.encoder.backbone(inputs)).logits, model(inputs).logits)


def test_training_the_head_trains_the_model() -> None:
    model = small_model().train()
    head = model.head()
    assert head.prototypes is model.prototypes
    before = model.prototypes.detach().clone()
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    head(torch.randn(16, 8)).logits.square().mean().backward()
    optimizer.step()
    assert not torch.equal(model.prototypes, before)
    assert model.encoder.bottleneck.norm.num_batches_tracked == 1
    assert all(weight.grad is None for weight in model.encoder.backbone.parameters())


def test_one_cluster_takes_everything() -> None:
    model = ClusteringModel(identity_network(4), 1).eval()
    assert torch.equal(model(torch.randn(5, 4)).logits.softmax(-1), torch.ones(5, 1))


def unit_model(head: ProjectionHead) -> ClusteringModel:
    return ClusteringModel(identity_network(7), 5, bottleneck_width=6, unit_features=True, head=head)


def known_head(inputs: torch.Tensor, kept: int) -> tuple[ProjectionHead, torch.Tensor]:
    """A head for ``inputs``, and the logits that it means."""
    axes = torch.linalg.qr(torch.randn(inputs.shape[1], kept, generator=seeded(5)))[0]
    prototypes = nn.functional.normalize(torch.randn(kept, 5, generator=seeded(6)), dim=0)
    units = nn.functional.normalize(inputs, dim=1)
    projected = (units - units.mean(0)) @ axes
    head = ProjectionHead(axes, units.mean(0), projected.var(0, correction=0), 20 * prototypes)
    return head, projected @ head.prototypes


def some_inputs(n: int = 400) -> torch.Tensor:
    return torch.randn(n, 7, generator=seeded(4)) + torch.tensor([2.0, 0, 0, 1, 0, 0, 0])


def test_the_length_of_features_does_not_matter_where_they_are_brought_to_one() -> None:
    inputs, lengths = some_inputs(9), torch.linspace(0.1, 50, 9)[:, None]
    for unit_features in (True, False):
        model = ClusteringModel(identity_network(7), 5, unit_features=unit_features).eval()
        same = torch.allclose(model(inputs).logits, model(lengths * inputs).logits, atol=1e-5)
        assert same is unit_features
        assert model.head().encoder.unit_features is unit_features


@pytest.mark.parametrize("kept", [3, 6])
def test_a_given_head_means_its_formula_and_draws_no_random_numbers(kept: int) -> None:
    inputs = some_inputs()
    head, logits = known_head(inputs, kept)
    before = torch.get_rng_state()
    model = unit_model(head).eval()
    assert torch.equal(torch.get_rng_state(), before)
    output = model(inputs)
    torch.testing.assert_close(output.logits, logits, atol=1e-5, rtol=1e-5)
    assert not output.features[:, kept:].any()
    torch.testing.assert_close(model(inputs[:1]).logits, logits[:1], atol=1e-5, rtol=1e-5)  # alone, too
    torch.testing.assert_close(model.head().eval()(inputs).logits, logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(model.train()(inputs).logits, logits, atol=1e-3, rtol=1e-3)  # about the same
    torch.testing.assert_close(model.eval()(inputs).logits, logits, atol=1e-2, rtol=1e-2)
    flat = unit_model(head._replace(variances=torch.zeros(kept))).eval()
    torch.testing.assert_close(flat(inputs).logits, logits, atol=1e-5, rtol=1e-4)


def test_recentring_is_subtracting_another_mean_by_hand() -> None:
    inputs, other = some_inputs(9), torch.randn(7)
    head, logits = known_head(inputs, 3)
    model = unit_model(head).eval()
    before = tensors_digest(model.state_dict())
    seen = model.recentred(other)
    by_hand = (nn.functional.normalize(inputs, dim=1) - other) @ head.axes @ head.prototypes
    torch.testing.assert_close(seen(inputs).logits, by_hand, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(model.recentred(head.mean)(inputs).logits, logits, atol=1e-5, rtol=1e-4)
    assert tensors_digest(model.state_dict()) == before  # it is a copy
    assert not seen.training


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
    assert len({base, *others}) == 6


def test_the_digest_sees_one_bit_and_running_statistics() -> None:
    module = nn.BatchNorm1d(4)
    digests = [tensors_digest(module.state_dict())]
    module.num_batches_tracked += 1
    digests.append(tensors_digest(module.state_dict()))
    with torch.no_grad():
        module.weight[3] = torch.nextafter(module.weight[3], torch.tensor(2.0))
    digests.append(tensors_digest(module.state_dict()))
    assert len(set(digests)) == 3
    assert tensors_digest(module.eval().state_dict()) == digests[-1]
