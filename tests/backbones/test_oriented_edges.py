from __future__ import annotations

import torch

from ucds.backbones.oriented_edges import OrientedEdges


def images(n: int = 6) -> torch.Tensor:
    return torch.rand(n, 3, 32, 32, generator=torch.Generator().manual_seed(0))


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
