"""Tests of networks that need no name, and of the network of edges."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ucds.encoders.spec import LENGTHS, EncoderSpec
from ucds.errors import InputError, UserError
from ucds.networks.build import rebuild_network
from ucds.networks.encoder import Viewpoint, identity_network, module_encoder
from ucds.networks.oriented_edges import OrientedEdges


def test_identity_returns_its_input() -> None:
    backbone = identity_network(5)
    inputs = torch.randn(3, 5)
    assert backbone.module(inputs) is inputs
    assert rebuild_network(backbone.spec).spec == EncoderSpec("identity", 5)


def test_module_width_is_found_and_nothing_changed() -> None:
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout())
    module[2].eval()
    backbone = module_encoder(module, example=torch.randn(1, 4))
    assert backbone.spec == EncoderSpec("function", 6)
    assert backbone.module is module
    assert [child.training for child in module] == [True, True, False]
    assert module[1].num_batches_tracked == 0


def test_module_width_may_be_announced_and_must_fit() -> None:
    assert module_encoder(nn.Linear(4, 6), 6).spec.width == 6
    with pytest.raises(UserError, match="returns 6 features, not the 5"):
        module_encoder(nn.Linear(4, 6), 5, example=torch.randn(2, 4))
    with pytest.raises(UserError, match="give the width"):
        module_encoder(nn.Linear(4, 6))
    with pytest.raises(UserError, match="'Linear' cannot take inputs of shape 2x5"):
        module_encoder(nn.Linear(4, 6), example=torch.randn(2, 5))


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ([torch.zeros(2, 3)], "not list"),
        (torch.zeros(2, 3, dtype=torch.int64), "not torch.int64"),
        (torch.zeros(2, 3, 4), "one row of features per input"),
        (torch.zeros(1, 3), "one row of features per input"),
    ],
)
def test_module_must_return_rows_of_floats(output: object, message: str) -> None:
    odd = nn.Identity()
    odd.register_forward_hook(lambda *given: output)
    with pytest.raises(UserError, match=message):
        module_encoder(odd, example=torch.randn(2, 4))


def images() -> torch.Tensor:
    return torch.rand(6, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_a_picture_has_the_same_features_in_any_company() -> None:
    network = OrientedEdges()
    together = network(images())
    for i in range(6):
        torch.testing.assert_close(network(images()[i : i + 1])[0], together[i])


def test_light_on_dark_looks_like_dark_on_light() -> None:
    torch.testing.assert_close(OrientedEdges()(1 - images()), OrientedEdges()(images()), rtol=1e-4, atol=1e-5)


def test_an_edge_answers_in_its_own_direction() -> None:
    upright = torch.zeros(1, 3, 32, 32)
    upright[..., 16:] = 1.0  # brightness changes from left to right
    strength = OrientedEdges()(upright).view(8, 4, 4).sum((1, 2))
    assert strength.argmax() == 0
    assert OrientedEdges()(upright.transpose(2, 3)).view(8, 4, 4).sum((1, 2)).argmax() == 4


def test_a_blank_picture_has_finite_features() -> None:
    assert torch.isfinite(OrientedEdges()(torch.zeros(2, 3, 32, 32))).all()


def test_vectors_are_seen_as_unit_vectors_from_a_point_beside_their_plane() -> None:
    module = Viewpoint(3)
    module.point = torch.tensor([1.0, 2.0, -5.0], dtype=torch.float64)
    seen = module(torch.tensor([[1.0, 2.0], [13.0, 2.0], [1.0, 2.0 + 5.0]]))
    half = 0.5**0.5
    expected = torch.tensor([[0, 0, 1], [12 / 13, 0, 5 / 13], [0, half, half]])
    torch.testing.assert_close(seen, expected)
    far = torch.tensor([[1.0, 2.5]], dtype=torch.float64)
    module.point[:2] += 4.5e9
    torch.testing.assert_close(module(far + 4.5e9), torch.tensor([[0, 0.5, 5.0]]) / 25.25**0.5)


def test_such_a_backbone_is_built_again_from_its_description() -> None:
    spec = EncoderSpec(LENGTHS, 4)
    assert (spec.takes, identity_network(4).spec.takes) == (3, 4)
    assert isinstance(rebuild_network(spec).module, Viewpoint)
    with pytest.raises(InputError, match="at least 1"):
        EncoderSpec(LENGTHS, 1)
